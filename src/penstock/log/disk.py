"""The disk as a port (files, fsync, rename), so that a simulator can replace it and lose power.

OsDisk writes and reads through the page cache on the calling thread: a `pread` of a cached page costs less than a
switch to another thread. A read that would wait for the device raises ColdRead unless it may block; the caller then
has the bytes read into the page cache on a thread, and reads again.
"""

import ctypes
import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from penstock.foundation import descriptors
from penstock.foundation.errors import PenstockError, StorageError
from penstock.wire.schema import Buffer

MAP_BYTES_MIN: Final = 32 << 10
"""Minimum size, in bytes, of reads that return a memory map; smaller reads copy (see bench/RESULTS.md)."""


class ColdRead(PenstockError):
    """The bytes to read are not in the page cache: call the error's `warm` on a thread, then repeat the read."""

    def __init__(self, message: str, warm: Callable[[], None]) -> None:
        super().__init__(message)
        self.warm = warm


class File(Protocol):
    """An append-only file. `size` is the file's length in bytes."""

    size: int

    def append(self, data: Buffer) -> None:
        """Appends all of `data`. If it raises StorageError, nothing was appended."""

    def read(self, at: int, count: int, blocking: bool = True) -> Buffer:
        """Returns up to `count` bytes from position `at`, fewer at end of file; large reads may return memory
        maps. Unless `blocking`, raises ColdRead if the bytes are not in the page cache."""

    def write_at(self, at: int, data: bytes) -> None:
        """Overwrites existing bytes in place; this needs no disk space."""

    def prepare_truncate(self, size: int) -> None:
        """Prepares `truncate(size)`: if truncating must replace the file by a copy of its first `size` bytes, writes
        the copy now. Raises StorageError, for example on a full disk; then the file is unchanged."""

    def truncate(self, size: int) -> None:
        """Truncates the file to `size` bytes; does nothing if the file is not longer than that."""

    def sync(self) -> None:
        """Fsyncs everything appended so far. May be called from another thread."""

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str) -> File:
        """Opens the file at `path`; creates it if it does not exist."""

    def spare_files(self) -> int:
        """Returns how many files may be opened for new logs and segments; 0 if file descriptors are scarce."""

    def names(self, path: str) -> list[str]:
        """Returns the sorted names of a folder's entries; an empty list if the folder does not exist."""

    def make_folder(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file or a whole folder; does nothing if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Atomically renames `old` to `new`, replacing an existing file `new`."""

    def load(self, path: str) -> bytes | None:
        """Returns the content of a small file, or None if it does not exist."""

    def store(self, path: str, data: bytes, durable: bool = False) -> None:
        """Atomically replaces a small file; `durable` waits for fsync of the file and its folder."""

    def sync_folder(self, path: str) -> None:
        """Fsyncs the folder itself: makes created, renamed and removed entries durable."""


_REMOVE_ATTEMPTS: Final = 10
CUT: Final = ".cut"
"""Suffix of the copy of a file's first bytes that replaces the file when a memory-mapped file is truncated."""
TRASH: Final = "trash"
"""Folder of files that a background thread deletes."""
_preadv: Final = os.preadv
_pwrite: Final = os.pwrite
_NOWAIT: Final = os.RWF_NOWAIT
_WARM_BYTES: Final = 1 << 20
RESERVE_BYTES: Final = 16 << 20
"""File size, in bytes, from which blocks are preallocated ahead of appends: this makes writes a fifth faster."""
_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Returns Linux's fallocate, or None if there is none. (os.posix_fallocate would change the file's size.)"""
    try:
        found = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call: Callable[[int, int, int, int], int] = found
    return call


_fallocate: Final = _find_fallocate()


@contextmanager
def _as_storage_error(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror or error}") from error


class _PageCacheWarmer:
    """A callable that reads a range of a file into the page cache. It duplicates the file descriptor: the file may
    be closed, and its descriptor reused, before a thread calls the warmer."""

    __slots__ = ("_at", "_count", "_fd")

    def __init__(self, fd: int, at: int, count: int) -> None:
        self._fd = -1
        self._at = at
        self._count = count
        self._fd = os.dup(fd)

    def __call__(self) -> None:
        end = self._at + self._count
        with _as_storage_error("a log cannot be read"):
            for start in range(self._at, end, _WARM_BYTES):
                os.pread(self._fd, min(_WARM_BYTES, end - start), start)
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # a read that is not needed any more is just dropped


class OsFile:
    """A file of the operating system: the File of an OsDisk."""

    __slots__ = ("_copy", "_fd", "_path", "_reserve_at", "_view", "size")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._fd).st_size
        self._view: memoryview | None = None  # of the memory-mapped file
        self._copy: tuple[int, int] | None = None  # size and descriptor of the copy to truncate to
        self._reserve_at = max(self.size, RESERVE_BYTES)

    def append(self, data: Buffer) -> None:
        if self.size >= self._reserve_at:
            self._reserve()
        try:
            written = _pwrite(self._fd, data, self.size)
            while written < len(data):  # a short write: writes the rest, or raises
                written += os.pwrite(self._fd, memoryview(data)[written:], self.size + written)
        except OSError as error:
            self._undo_append()
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error
        self.size += written

    def _reserve(self) -> None:
        """Preallocates blocks for the next appends; the file's size does not change."""
        count = min(RESERVE_BYTES, self.size >> 3)
        if _fallocate is not None:
            _fallocate(self._fd, _KEEP_SIZE, self.size, count)  # on failure the write allocates
        self._reserve_at = self.size + count

    def _undo_append(self) -> None:
        """Truncates the bytes of a failed append, so that recovery never finds them."""
        try:
            os.ftruncate(self._fd, self.size)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be truncated: {error.strerror}") from error

    def read(self, at: int, count: int, blocking: bool = True) -> Buffer:
        if count > self.size - at:
            count = self.size - at
            if count <= 0:
                return b""
        try:
            if blocking:
                return os.pread(self._fd, count, at)
            if count < MAP_BYTES_MIN:
                out = bytearray(count)
                if _preadv(self._fd, (out,), at, _NOWAIT) == count:
                    return out
                raise BlockingIOError
            # Checks the last byte only: the page cache usually holds a file up to some position.
            _preadv(self._fd, (bytearray(1),), at + count - 1, _NOWAIT)
        except BlockingIOError:
            raise ColdRead(f"{self._path} is not cached at {at}", _PageCacheWarmer(self._fd, at, count)) from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # file system without RWF_NOWAIT: block
                raise StorageError(f"{self._path} cannot be read: {error.strerror}") from error
            if count < MAP_BYTES_MIN:
                return self.read(at, count, blocking=True)
        view = self._view
        end = at + count
        if view is None or len(view) < end:
            # An older, shorter map stays alive as long as slices of it exist.
            try:
                view = self._view = memoryview(mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ))
            except OSError as error:
                raise StorageError(f"{self._path} cannot be mapped: {error.strerror}") from error
        return view[at:end]

    def write_at(self, at: int, data: bytes) -> None:
        try:
            os.pwrite(self._fd, data, at)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error

    def prepare_truncate(self, size: int) -> None:
        """Copies the first `size` bytes of a memory-mapped file; `truncate` replaces the file by the copy. The map
        may still be in use for sending to a socket, and reading a truncated page of a map raises SIGBUS."""
        if size >= self.size or self._view is None:
            return
        self._drop_copy()
        with _as_storage_error(f"{self._path} cannot be truncated"):
            self._copy = size, self._copy_prefix(size)

    def truncate(self, size: int) -> None:
        if size >= self.size:
            return
        if self._copy is None or self._copy[0] != size:
            self.prepare_truncate(size)
        with _as_storage_error(f"{self._path} cannot be truncated"):
            if self._copy is None:
                os.ftruncate(self._fd, size)
            else:
                os.rename(self._path + CUT, self._path)
                old, self._fd = self._fd, self._copy[1]
                self._copy = None
                os.close(old)
        self._view = None
        self.size = size

    def _copy_prefix(self, size: int) -> int:
        """Returns the descriptor of an fsynced copy of the file's first `size` bytes."""
        path = self._path + CUT
        copy = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            done = 0
            while done < size:
                sent = os.sendfile(copy, self._fd, done, size - done)
                if not sent:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                done += sent
            os.fsync(copy)
        except OSError:
            os.close(copy)
            os.unlink(path)
            raise
        return copy

    def _drop_copy(self) -> None:
        if self._copy is not None:
            os.close(self._copy[1])
            self._copy = None
            with suppress(FileNotFoundError):
                os.unlink(self._path + CUT)

    def sync(self) -> None:
        with _as_storage_error(f"{self._path} cannot be flushed"):
            try:
                # Own descriptor: this runs on a thread, and the segment may be closed meanwhile.
                own = os.dup(self._fd)
            except OSError as error:
                if error.errno == errno.EBADF:
                    return  # closed: the segment was removed, or replaced by a synced one
                raise
            try:
                os.fdatasync(own)
            finally:
                os.close(own)

    def close(self) -> None:
        self._drop_copy()
        if self._fd >= 0:
            if self._reserve_at > max(self.size, RESERVE_BYTES):
                with suppress(OSError):  # the file is not writable anyway
                    os.ftruncate(self._fd, self.size)  # frees preallocated blocks
            os.close(self._fd)
            self._fd = -1
            self._view = None


def _remove(where: Path) -> None:
    """Removes a file or a whole folder; does nothing if it does not exist."""
    for _ in range(_REMOVE_ATTEMPTS):
        if not where.is_dir():
            where.unlink(missing_ok=True)
            return
        try:
            shutil.rmtree(where)
        except OSError as error:
            # A thread that still works on this log may have created or removed a file meanwhile.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


class OsDisk:
    """The operating system's file system, below one folder."""

    def __init__(self, root: str | Path, threads: Executor | None = None) -> None:
        """`threads`: executor that deletes large files in the background; if None, `remove` blocks."""
        self._root = str(root)
        self._threads = threads
        self._numbers = count()
        os.makedirs(self._root, exist_ok=True)
        if threads is not None:
            trash = Path(self._root, TRASH)
            left = list(trash.glob("*"))
            self._trash = trash / str(1 + max((int(old.name) for old in left if old.name.isdecimal()), default=0))
            self._trash.mkdir(parents=True)
            for old in left:
                threads.submit(_remove, old)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def open(self, path: str) -> OsFile:
        with _as_storage_error(f"{path} cannot be opened"):
            return OsFile(self._at(path))

    def spare_files(self) -> int:
        return descriptors.available(descriptors.Reserve.NEW_FILES)

    def names(self, path: str) -> list[str]:
        with _as_storage_error(f"{path} cannot be listed"):
            try:
                return sorted(os.listdir(self._at(path)))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def make_folder(self, path: str) -> None:
        with _as_storage_error(f"{path} cannot be created"):
            try:
                os.mkdir(self._at(path))
            except FileExistsError:
                pass
            except FileNotFoundError:
                os.makedirs(self._at(path), exist_ok=True)

    def remove(self, path: str) -> None:
        where = Path(self._at(path))
        with _as_storage_error(f"{path} cannot be removed"):
            if self._threads is None:
                _remove(where)
                return
            trashed = self._trash / str(next(self._numbers))
            try:
                os.rename(where, trashed)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError:  # disk too full even for a rename
                _remove(where)
                return
            self._threads.submit(_remove, trashed)

    def rename(self, old: str, new: str) -> None:
        with _as_storage_error(f"{old} cannot be renamed"):
            os.rename(self._at(old), self._at(new))

    def load(self, path: str) -> bytes | None:
        with _as_storage_error(f"{path} cannot be read"):
            try:
                with open(self._at(path), "rb", buffering=0) as file:
                    return file.readall()
            except FileNotFoundError:
                return None

    def store(self, path: str, data: bytes, durable: bool = False) -> None:
        where = self._at(path)
        with _as_storage_error(f"{path} cannot be written"):
            fresh = where + ".new"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                written = os.write(fd, data)
                if written < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if durable:
                    os.fsync(fd)
                os.rename(fresh, where)
            except OSError:
                os.unlink(fresh)  # free the space: the disk may be full
                raise
            finally:
                os.close(fd)
        if durable:
            self.sync_folder(os.path.dirname(path))

    def sync_folder(self, path: str) -> None:
        with _as_storage_error(f"{path} cannot be flushed"):
            fd = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
