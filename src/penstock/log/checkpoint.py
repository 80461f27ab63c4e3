"""What a log may trust after a restart: a small file, replaced whole, with a checksum.

Two marks, because two things can go wrong. A killed process loses nothing that was written, since the page cache
is the kernel's: after it, everything up to `written_to` is as it was. A machine that stopped may have lost
whatever was not synced: after it, only `synced_to` holds. The kernel's boot id tells the two apart.
"""

import json
import zlib
from dataclasses import asdict, dataclass

from penstock.log.disk import Disk

FILE_NAME = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    start_offset: int = 0
    """The first offset that readers may see (retention and trims move it)."""
    written_to: int = 0
    """The log's end when this was written."""
    synced_to: int = 0
    """Everything below survives power loss."""
    clean_to: int = 0
    """Everything below was compacted."""
    boot_id: str = ""

    def trusted_to(self, boot_id: str) -> int:
        return self.written_to if self.boot_id == boot_id else self.synced_to

    def save(self, disk: Disk, folder: str, durable: bool = False) -> None:
        body = json.dumps(asdict(self)).encode()
        disk.store(f"{folder}/{FILE_NAME}", b"%08x %s\n" % (zlib.crc32(body), body), durable)

    @classmethod
    def load(cls, disk: Disk, folder: str) -> "Checkpoint | None":
        """None if there is none, or it is damaged: then the log is read from its start."""
        data = disk.load(f"{folder}/{FILE_NAME}")
        if data is None:
            return None
        crc, _, body = data.rstrip(b"\n").partition(b" ")
        if crc != b"%08x" % zlib.crc32(body):
            return None
        return cls(**json.loads(body))
