"""What the operating system tells of the machine that this process runs on."""

import secrets
import shutil
import socket
from pathlib import Path
from typing import Final

_ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737): the way to it begins at this machine's own address."""


def boot_id() -> str:
    """Changes when the machine restarts; without one, every start is taken for one after power loss."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(16)


def reachable_host() -> str:
    """The address of this machine that others most likely reach it by. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            host: str = probe.getsockname()[0]
        except OSError:  # no network
            return "127.0.0.1"
    return host


def disk_space(folder: Path) -> tuple[int, int]:
    """Bytes in all, and bytes that are free, of the file system that a folder is on."""
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free
