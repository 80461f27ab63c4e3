"""A process keeps the memory that it frees: without Spark."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from penstock.spark.freed_memory import keep_freed_memory
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a huge page would be one fault instead of 512
if {keeps}:
    keep_freed_memory()
for _ in range(20):
    blocks = [bytearray(10 << 20) for _ in range(3)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such options")


def faults(keeps: bool, **environment: str) -> int:
    """Returns the page faults of a process that allocates and frees 30 MiB twenty times."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", PROGRAM.format(keeps=keeps)]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_memory_that_was_freed_is_used_again() -> None:
    every_time = 20 * 3 * (10 << 20) // 4096
    assert faults(keeps=False) > every_time / 2
    assert faults(keeps=True) < every_time / 4


def test_an_allocator_that_the_environment_configures_is_left_alone() -> None:
    given = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    assert faults(keeps=True, **given) > 20 * 3 * (10 << 20) // 4096 / 2
