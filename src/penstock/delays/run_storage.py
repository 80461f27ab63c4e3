"""Where the far future lies: a port, so that who decides about messages touches no files."""

from itertools import count
from typing import Protocol


class Shelf(Protocol):
    """Keeps blocks of bytes for as long as the process lives: what lies here can be made again from the log."""

    def put(self, data: bytes | bytearray) -> int:
        """Keep a block; the number that it is found by."""

    def read(self, number: int, at: int, size: int) -> bytes: ...

    def patch(self, number: int, at: int, data: bytes) -> None:
        """Write over bytes of a block."""

    def drop(self, number: int) -> None: ...

    def close(self) -> None: ...


class MemoryShelf:
    """In memory: for tests, and for whoever has no disk to spare."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}
        self._numbers = count()

    def put(self, data: bytes | bytearray) -> int:
        number = next(self._numbers)
        self._blocks[number] = bytearray(data)
        return number

    def read(self, number: int, at: int, size: int) -> bytes:
        return bytes(self._blocks[number][at : at + size])

    def patch(self, number: int, at: int, data: bytes) -> None:
        self._blocks[number][at : at + len(data)] = data

    def drop(self, number: int) -> None:
        del self._blocks[number]

    def close(self) -> None:
        self._blocks.clear()
