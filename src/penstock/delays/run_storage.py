"""Storage interface for sorted blocks of delayed-message entries, so that the state machine does no file I/O."""

from itertools import count
from typing import Protocol


class RunStorage(Protocol):
    """Stores runs (sorted blocks of delayed-message entries) until the process ends. The next start rebuilds them
    from the companion log, the partition's second log, which stores the delayed messages."""

    def put(self, data: bytes | bytearray) -> int:
        """Stores a block; returns the number that identifies it."""

    def read(self, number: int, at: int, size: int) -> bytes: ...

    def patch(self, number: int, at: int, data: bytes) -> None:
        """Overwrites the bytes of a block from position `at` on with `data`."""

    def drop(self, number: int) -> None: ...

    def close(self) -> None: ...


class MemoryRunStorage:
    """Stores blocks in memory: for tests, and when the disk is full."""

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
