"""What the operating system tells of the machine that this process runs on."""

import secrets
import shutil
from pathlib import Path


def boot_id() -> str:
    """Changes when the machine restarts; without one, every start is taken for one after power loss."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(16)


def disk_space(folder: Path) -> tuple[int, int]:
    """Bytes in all, and bytes that are free, of the file system that a folder is on."""
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free
