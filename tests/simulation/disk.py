"""A disk that can lose its process in the middle of a write, its power, or its last free byte, or fail an fsync.

What was written is in the cache; what was synced is durable. Killing the process loses nothing but the rest of
the operation in progress. Losing power keeps, of what was not synced, any pages at all, and of the folder's changes
a prefix, as a journalling file system does. An fsync that fails drops pages that were not synced, once: as with
Linux, the next one succeeds though they are gone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from penstock.foundation.errors import StorageError
from penstock.wire.schema import Buffer

PAGE = 512
ROOMS = (0, 1, 3, *(1000 for _ in range(20)))
"""How many new files there are descriptors for."""


class Killed(BaseException):
    """The process ended here. Not an Exception: nothing in the code under test may catch it."""


class Inode:
    def __init__(self) -> None:
        self.cache = bytearray()
        self.durable = bytearray()
        self._clean: set[int] = set()
        """Pages that count as written, and are not on the device: no fsync writes them unless they are written to."""

    def touch(self, at: int, count: int) -> None:
        """Pages are written to."""
        if self._clean:
            self._clean.difference_update(range(at // PAGE, (at + count) // PAGE + 1))

    def sync(self) -> None:
        before, self.durable = self.durable, bytearray(self.cache)
        for page in self._clean:
            at, end = page * PAGE, min((page + 1) * PAGE, len(self.cache))
            if at < end:
                self.durable[at:end] = bytes(before[at:end]).ljust(end - at, b"\0")

    def forget_clean(self) -> None:
        self._clean.clear()

    def drop_unsynced(self, rng: Random) -> None:
        """A write to the device has failed: its pages are clean now, and some read as they are on the device."""
        luck = rng.choice((0.0, 0.5, 1.0))
        for at in range(0, len(self.cache), PAGE):
            end = min(at + PAGE, len(self.cache))
            on_device = bytes(self.durable[at:end]).ljust(end - at, b"\0")
            if self.cache[at:end] != on_device:
                if rng.random() < luck:
                    self.cache[at:end] = on_device
                else:
                    self._clean.add(at // PAGE)


class FakeFile:
    def __init__(self, disk: "FakeDisk", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._incarnation = disk.incarnation
        self.size = len(inode.cache)

    def _alive(self) -> None:
        assert self._incarnation == self._disk.incarnation, "a file of an earlier incarnation is used"

    def append(self, data: Buffer) -> None:
        self._alive()
        del self._inode.cache[self.size :]
        if len(data) > self._disk.free_bytes:
            raise StorageError("no space left")
        torn = self._disk.step()
        self._inode.touch(self.size, len(data))
        if torn is not None:
            self._inode.cache += data[: int(len(data) * torn)]
            raise Killed
        self._disk.free_bytes -= len(data)
        self._inode.cache += data
        self.size += len(data)

    def read(self, at: int, count: int, blocking: bool = True) -> Buffer:
        self._alive()
        return bytes(self._inode.cache[at : min(at + count, self.size)])

    def write_at(self, at: int, data: bytes) -> None:
        self._alive()
        assert at + len(data) <= self.size
        torn = self._disk.step()
        done = len(data) if torn is None else int(len(data) * torn)
        self._inode.touch(at, done)
        self._inode.cache[at : at + done] = data[:done]
        if torn is not None:
            raise Killed

    def prepare_truncate(self, size: int) -> None:
        """As where every file is mapped: what stays is copied."""
        self._alive()
        if size > self._disk.free_bytes:
            raise StorageError("no space left")
        self._disk.step_or_die()

    def truncate(self, size: int) -> None:
        self._alive()
        self._disk.step_or_die()
        size = min(size, self.size)
        self._disk.free_bytes += self.size - size
        del self._inode.cache[size:]
        self.size = size

    def sync(self) -> None:
        self._alive()
        self._disk.step_or_die()
        if self._disk.fails_sync():
            self._inode.drop_unsynced(self._disk.rng)
            self._disk.has_dropped = True
            raise StorageError("fsync failed")
        self._inode.sync()

    def close(self) -> None:
        self._alive()


class FakeDisk:
    """Implements the log's Disk port. Names are changed through `_journal`, so that power loss can undo them."""

    def __init__(self, rng: Random, size_bytes: int = 1 << 40) -> None:
        self.rng = rng
        self.free_bytes = size_bytes
        self.incarnation = 0
        self.operations = 0
        self._die_at: int | None = None
        self._fail_sync_in = 0
        self.failed_syncs = 0
        self.has_dropped = False
        """Whether one has dropped pages since the process began."""
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._journal: list[Callable[[dict[str, Inode]], object]] = []

    # -- faults

    def die_after(self, operations: int) -> None:
        """Kill the process in the middle of a later operation."""
        self._die_at = self.operations + operations

    def fail_sync_after(self, syncs: int) -> None:
        """Fail the one of the next fsyncs with this number: 1 is the next."""
        self._fail_sync_in = syncs + 1

    def fails_sync(self) -> bool:
        """Count an fsync; whether it fails."""
        self._fail_sync_in -= self._fail_sync_in > 0
        has_failed = self._fail_sync_in == 1
        if has_failed:
            self._die_at = None  # a process that is killed at the same moment cannot note it
            self._fail_sync_in = 0
            self.failed_syncs += 1
        return has_failed

    def disarm(self) -> None:
        self._die_at = None
        self._fail_sync_in = 0

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """For checks that read a broker's files from outside: they do not trigger faults."""
        armed, before, self._die_at = self._die_at, self.operations, None
        yield
        self._die_at = armed and armed + self.operations - before

    def step(self) -> float | None:
        """Count an operation; how much of it is done if the process dies in it."""
        self.operations += 1
        if self._die_at is not None and self.operations >= self._die_at:
            self._die_at = None
            return self.rng.random()
        return None

    def step_or_die(self) -> None:
        if self.step() is not None:
            raise Killed

    def restart(self) -> None:
        """A new process finds the cache as it was."""
        self.incarnation += 1
        self.has_dropped = False
        self._die_at = None

    def lose_power(self) -> None:
        """A new process finds what was synced, and some of what was not."""
        self.incarnation += 1
        self.has_dropped = False
        self._die_at = None
        kept = self.rng.randint(0, len(self._journal))
        for change in self._journal[:kept]:
            change(self._durable_names)
        self._journal.clear()
        self._names = dict(self._durable_names)
        for inode in dict.fromkeys(self._names.values()):
            inode.cache = self._some_of(inode)
            inode.durable = bytearray(inode.cache)
            inode.forget_clean()

    def _some_of(self, inode: Inode) -> bytearray:
        cache, durable = inode.cache, inode.durable
        if cache == durable:
            return bytearray(durable)
        low, high = sorted((len(cache), len(durable)))
        size = self.rng.choice((len(cache), len(durable), self.rng.randint(low, high)))
        found = bytearray(size)
        luck = self.rng.choice((0.0, 0.5, 0.95, 1.0))
        for at in range(0, size, PAGE):
            source = cache if self.rng.random() < luck else durable
            piece = source[at : min(at + PAGE, size)]
            found[at : at + len(piece)] = piece
        return found

    def _change_names(self, change: Callable[[dict[str, Inode]], object]) -> None:
        self.step_or_die()
        change(self._names)
        self._journal.append(change)

    # -- the port

    def open(self, path: str) -> FakeFile:
        if path not in self._names:
            inode = Inode()
            self._change_names(lambda names: names.setdefault(path, inode))
        return FakeFile(self, self._names[path])

    def spare_files(self) -> int:
        """Sometimes there are too few descriptors for a while."""
        return self.rng.choice(ROOMS)

    def names(self, path: str) -> list[str]:
        inside = path + "/" if path else ""
        return sorted({name[len(inside) :].partition("/")[0] for name in self._names if name.startswith(inside)})

    def make_folder(self, path: str) -> None:
        """Folders are only prefixes here."""

    def remove(self, path: str) -> None:
        inside = [path] if path in self._names else [name for name in self._names if name.startswith(path + "/")]
        for name in inside:
            self.free_bytes += len(self._names[name].cache)
            self._change_names(lambda names, name=name: names.pop(name, None))

    def rename(self, old: str, new: str) -> None:
        assert old in self._names, f"{old} is not there"

        def move(names: dict[str, Inode]) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._change_names(move)

    def load(self, path: str) -> bytes | None:
        inode = self._names.get(path)
        return bytes(inode.cache) if inode else None

    def store(self, path: str, data: bytes, durable: bool = False) -> None:
        if len(data) > self.free_bytes:
            raise StorageError("no space left")
        self.step_or_die()
        inode = Inode()
        inode.cache = bytearray(data)
        if durable:
            if self.fails_sync():
                raise StorageError("fsync failed")
            inode.durable = bytearray(data)
        self._change_names(lambda names: names.__setitem__(path, inode))
        if durable:
            self.sync_folder(path.rpartition("/")[0])

    def sync_folder(self, path: str) -> None:
        self.step_or_die()
        if self.fails_sync():
            raise StorageError("fsync failed")
        for change in self._journal:
            change(self._durable_names)
        self._journal.clear()
