"""The in-memory disk of topics with storage=memory; all other log code is the same for them."""

import sys
from bisect import bisect_right

from penstock.foundation.errors import StorageError
from penstock.wire.schema import Buffer


class MemoryFile:
    """An in-memory file: a list of appended buffers, so that an append never resizes a buffer in use by a reader."""

    __slots__ = ("_pieces", "_starts", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        self.size = 0

    def append(self, data: Buffer) -> None:
        self._starts.append(self.size)
        self._pieces.append(bytes(data))
        self.size += len(data)

    def read(self, at: int, count: int, blocking: bool = True) -> Buffer:
        count = min(count, self.size - at)
        if count <= 0:
            return b""
        number = bisect_right(self._starts, at) - 1
        skip = at - self._starts[number]
        piece = self._pieces[number]
        if skip + count <= len(piece):
            return piece if count == len(piece) else piece[skip : skip + count]
        last = bisect_right(self._starts, at + count - 1)
        return b"".join(self._pieces[number:last])[skip : skip + count]

    def write_at(self, at: int, data: bytes) -> None:
        whole = b"".join(self._pieces)
        self._pieces = [whole[:at] + data + whole[at + len(data) :]]
        self._starts = [0]

    def prepare_truncate(self, size: int) -> None:
        """Does nothing: a file in memory is truncated without a copy."""

    def truncate(self, size: int) -> None:
        size = min(size, self.size)
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._pieces.pop()
        if self._pieces:
            self._pieces[-1] = self._pieces[-1][: size - self._starts[-1]]
        self.size = size

    def sync(self) -> None:
        """Does nothing: memory is never durable."""

    def close(self) -> None:
        """Does nothing: the MemoryDisk still has the bytes."""


class MemoryDisk:
    """An in-memory disk: files by path. Folders are only prefixes of paths."""

    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}

    def open(self, path: str) -> MemoryFile:
        return self.files.setdefault(path, MemoryFile())

    def spare_files(self) -> int:
        return sys.maxsize

    def names(self, path: str) -> list[str]:
        inside = path + "/" if path else ""
        return sorted({name[len(inside) :].partition("/")[0] for name in self.files if name.startswith(inside)})

    def make_folder(self, path: str) -> None:
        """Does nothing: folders are only prefixes of paths."""

    def remove(self, path: str) -> None:
        for name in [name for name in self.files if name == path or name.startswith(path + "/")]:
            del self.files[name]

    def rename(self, old: str, new: str) -> None:
        if old not in self.files:
            raise StorageError(f"{old} cannot be renamed: it is not there")
        self.files[new] = self.files.pop(old)

    def load(self, path: str) -> bytes | None:
        file = self.files.get(path)
        return bytes(file.read(0, file.size)) if file else None

    def store(self, path: str, data: bytes, durable: bool = False) -> None:
        file = self.files[path] = MemoryFile()
        file.append(data)

    def sync_folder(self, path: str) -> None:
        """Does nothing: memory is never durable."""
