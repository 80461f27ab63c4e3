"""A wall clock that a test sets for one process, by a small library before the C library.

The kernel has no wall clock for each process (its time namespaces hold the steady ones), and the machine's own is
everybody's. The steady clock of the process goes on as it should.
"""

import mmap
import os
import shutil
import subprocess
from pathlib import Path

NS = 1_000_000_000
_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shift_ns;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = fd < 0 ? MAP_FAILED : mmap(0, sizeof *shift_ns, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (found != MAP_FAILED)
        shift_ns = found;
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    int code = syscall(SYS_clock_gettime, id, at);
    if (code == 0 && shift_ns && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long now = at->tv_sec * 1000000000LL + at->tv_nsec + *shift_ns;
        at->tv_sec = now / 1000000000LL;
        at->tv_nsec = now % 1000000000LL;
    }
    return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""


class ShiftedClock:
    """The clock of a process that is started with `environment`."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(mmap.PAGESIZE))
        fd = os.open(file, os.O_RDWR)
        try:
            self._shift = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            os.close(fd)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(file)}

    def jump(self, seconds: float) -> None:
        """Set the clock so far from the machine's own."""
        self._shift[:8] = int(seconds * NS).to_bytes(8, "little", signed=True)

    def close(self) -> None:
        self._shift.close()


def build(folder: Path) -> Path | None:
    """The library; None where there is no compiler for it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library
