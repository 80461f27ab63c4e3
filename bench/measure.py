"""What the kernel knows about a process: its CPU time and its memory."""

import os
import platform
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
DIRTY_BYTES_MAX: Final = 256 << 20
SETTLE_S_MAX: Final = 20.0


def cpu_s(pid: int) -> float:
    """CPU time that a process and its descendants have used, those that have ended included."""
    ticks = 0
    for each in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # a process that has just ended
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # its own, and those of children that it waited for
    return ticks / _TICKS_PER_S


def fine_cpu_s(pid: int) -> float:
    """CPU time of a process's threads to the nanosecond, for what takes less than a tick of the clock above."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def machine_cpu_s() -> float:
    """CPU time that everything on this machine has used."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # a process or thread that has just ended
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def rss_anon_mb(pid: int) -> float:
    """Memory that is a process's own: not the page cache, not its program files."""
    return _status_mb(pid, "RssAnon")


def rss_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, name: str) -> float:
    total = 0
    for each in tree(pid):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


def settle() -> None:
    """Wait until little is on its way to the disk, so that one run does not pay for the one before."""
    give_up_s = time.monotonic() + SETTLE_S_MAX
    while _dirty_bytes() > DIRTY_BYTES_MAX and time.monotonic() < give_up_s:
        os.sync()
        time.sleep(0.1)


def _dirty_bytes() -> int:
    total = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(("Dirty:", "Writeback:")):
            total += int(line.split()[1]) * 1024
    return total


def forget_files(folder: Path) -> None:
    """Drop a folder's files from the page cache, as far as no process uses them."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def machine() -> dict[str, str]:
    """Facts that figures depend on; nothing that says whose machine it is."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory_gb:.0f} GB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
        "Java": _java_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return done.stderr.split('"')[1] if '"' in done.stderr else "unknown"
