"""Facts about the host from the operating system: boot id, reachable address, disk space."""

import secrets
import shutil
import socket
from pathlib import Path
from typing import Final

_UNUSED_ADDRESS: Final = ("192.0.2.1", 9)
"""An IP address that no host has (RFC 5737): the route to it tells this host's own address."""


def boot_id() -> str:
    """Returns an id that changes when the machine restarts; a random id if the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex(16)


def reachable_host() -> str:
    """Returns the address at which other hosts most likely reach this host. Sends no packets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNUSED_ADDRESS)
            host: str = probe.getsockname()[0]
        except OSError:  # no network
            return "127.0.0.1"
    return host


def disk_space(folder: Path) -> tuple[int, int]:
    """Returns total and free bytes of the file system that contains `folder`."""
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free
