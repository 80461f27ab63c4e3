"""An unlinked scratch file that stores sorted runs of delayed entries; rebuilt from the log at every start."""

import logging
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Final

from penstock.delays.run_storage import MemoryRunStorage

logger = logging.getLogger(__name__)

SLOT_BYTES: Final = 2 << 20
"""Size of a slot of the file, in bytes. Each block has one slot; the slots of dropped blocks are reused."""
IN_MEMORY: Final = 1 << 40
"""Lowest number of the blocks that are in memory because the disk was full. Lower numbers are slots of the file."""


class ScratchFile:
    """Stores blocks of up to SLOT_BYTES. The file is created with the first block and deleted at process exit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self._free: list[int] = []
        self._slots = count()
        self._spare = MemoryRunStorage()

    def put(self, data: bytes | bytearray) -> int:
        if len(data) > SLOT_BYTES:
            raise ValueError(f"a block of {len(data)} bytes is too large; at most {SLOT_BYTES} bytes are allowed")
        slot = self._free.pop() if self._free else next(self._slots)
        try:
            if self._fd < 0:
                self._fd = self._open()
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], slot * SLOT_BYTES + written)
        except OSError as error:  # keep the block in memory instead
            logger.warning("delays_not_spilled folder=%s reason=%r", self._folder, str(error))
            self._free.append(slot)
            return IN_MEMORY + self._spare.put(data)
        return slot

    def _open(self) -> int:
        fd, name = tempfile.mkstemp(prefix=".delays-", dir=self._folder)
        os.unlink(name)
        return fd

    def read(self, number: int, at: int, size: int) -> bytes:
        if number >= IN_MEMORY:
            return self._spare.read(number - IN_MEMORY, at, size)
        return os.pread(self._fd, min(size, SLOT_BYTES - at), number * SLOT_BYTES + at)

    def patch(self, number: int, at: int, data: bytes) -> None:
        if number >= IN_MEMORY:
            self._spare.patch(number - IN_MEMORY, at, data)
        else:
            os.pwrite(self._fd, data, number * SLOT_BYTES + at)

    def drop(self, number: int) -> None:
        if number >= IN_MEMORY:
            self._spare.drop(number - IN_MEMORY)
        else:
            self._free.append(number)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # a state machine that is replaced is not closed
