"""The real disk: what only it can do, and its errors."""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.disk import MAP_BYTES_MIN, RESERVE_BYTES, ColdRead, OsDisk, OsFile

from .descriptors import open_below

TINY_BYTES = 256 << 10


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path / "data")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[OsDisk]:
    """A disk of a few pages, of its own."""
    place = tmp_path / "tiny"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a file system of its own needs root and mount")
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={TINY_BYTES}", "tmpfs", str(place)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        yield OsDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def run_alone(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, where a signal kills nothing but it."""
    command = [sys.executable, "-c", dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# -- writes that fail


def test_an_append_that_a_full_disk_refuses_leaves_nothing_behind(tiny: OsDisk) -> None:
    file = tiny.open("log")
    file.append(b"kept" * 1000)
    with pytest.raises(StorageError, match="No space left"):
        file.append(bytes(TINY_BYTES))
    assert file.size == 4000
    assert tiny.load("log") == b"kept" * 1000
    file.append(b"more")
    assert tiny.load("log") == b"kept" * 1000 + b"more"


def test_bytes_that_are_there_are_written_over_on_a_full_disk(tiny: OsDisk) -> None:
    file = tiny.open("checkpoint")
    file.append(bytes(2048))
    fill(tiny)
    file.write_at(512, b"mark")
    assert bytes(file.read(512, 4)) == b"mark"


def test_a_mapped_file_that_a_full_disk_does_not_let_be_cut_stays_as_it_was(tiny: OsDisk) -> None:
    file = tiny.open("log")
    file.append(b"x" * (3 * MAP_BYTES_MIN))
    sent = file.read(0, 2 * MAP_BYTES_MIN, blocking=False)
    fill(tiny)
    with pytest.raises(StorageError, match="No space left"):
        file.prepare_truncate(2 * MAP_BYTES_MIN)
    assert file.size == 3 * MAP_BYTES_MIN
    assert tiny.load("log.cut") is None
    file.append(b"")
    tiny.remove("filler")
    file.prepare_truncate(2 * MAP_BYTES_MIN)
    fill(tiny)
    file.truncate(2 * MAP_BYTES_MIN)
    assert tiny.load("log") == bytes(sent) == b"x" * (2 * MAP_BYTES_MIN)


def test_a_copy_that_was_not_needed_after_all_is_removed(tiny: OsDisk) -> None:
    file = tiny.open("log")
    file.append(b"x" * (3 * MAP_BYTES_MIN))
    file.read(0, 2 * MAP_BYTES_MIN, blocking=False)
    file.prepare_truncate(MAP_BYTES_MIN)
    file.truncate(2 * MAP_BYTES_MIN)
    assert tiny.load("log") == b"x" * (2 * MAP_BYTES_MIN)
    file.read(0, MAP_BYTES_MIN, blocking=False)
    file.prepare_truncate(MAP_BYTES_MIN)
    file.close()
    assert tiny.names("") == ["log"]


def test_a_small_file_that_cannot_be_replaced_stays_as_it_was(tiny: OsDisk) -> None:
    tiny.store("epochs", b"before")
    fill(tiny)
    for durable in (False, True):
        with pytest.raises(StorageError, match="No space left"):
            tiny.store("epochs", bytes(9000), durable)
    assert tiny.load("epochs") == b"before"
    assert tiny.names("") == ["epochs", "filler"]


def test_a_mapped_file_that_a_full_disk_cannot_copy_stays_as_it_was(tiny: OsDisk) -> None:
    file = tiny.open("log")
    file.append(b"x" * (2 * MAP_BYTES_MIN))
    held = file.read(0, 2 * MAP_BYTES_MIN, blocking=False)
    fill(tiny)
    for _ in range(2):  # the second attempt must not fall back to cutting the pages under the slice
        with pytest.raises(StorageError, match="No space left"):
            file.truncate(MAP_BYTES_MIN + 10_000)
    assert file.size == 2 * MAP_BYTES_MIN
    assert tiny.names("") == ["filler", "log"]
    tiny.remove("filler")
    file.truncate(MAP_BYTES_MIN)
    assert file.size == MAP_BYTES_MIN
    assert bytes(held) == b"x" * (2 * MAP_BYTES_MIN)


def fill(disk: OsDisk) -> None:
    filler = disk.open("filler")
    for size in (1 << 16, 1 << 12, 1):
        for _ in range(TINY_BYTES // size):
            try:
                filler.append(bytes(size))
            except StorageError:
                break
    filler.close()


def test_a_short_write_is_truncated(tmp_path: Path) -> None:
    """The limit on a file's size makes the kernel write a part first, and refuse the rest."""
    done = run_alone(
        """
        import resource, signal, sys
        from penstock.foundation.errors import StorageError
        from penstock.log.disk import OsDisk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        disk = OsDisk(sys.argv[1])
        file = disk.open("log")
        file.append(b"k" * 9_000)
        try:
            file.append(b"lost" * 1_000)
        except StorageError as error:
            print(error)
        file.append(b"s" * 1_000)
        try:
            disk.store("small", bytes(20_000))
        except StorageError as error:
            print(error)
        print(disk.load("log") == b"k" * 9_000 + b"s" * 1_000, disk.names(""))
        """,
        tmp_path,
    )
    first, second, third = done.stdout.splitlines()
    assert "log cannot be written: File too large" in first
    assert "small cannot be written" in second
    assert third == "True ['log']"


def test_a_device_that_takes_nothing_is_a_storage_error() -> None:
    file = OsFile("/dev/full")
    with pytest.raises(StorageError, match="cannot be"):
        file.append(b"x")
    with pytest.raises(StorageError, match="cannot be flushed"):
        file.sync()
    file.close()


def test_errors_of_the_operating_system_are_storage_errors(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "data" / "folder").mkdir()
    refusals = [
        lambda: disk.open("nowhere/log"),
        lambda: disk.open("folder"),
        lambda: disk.store("nowhere/small", b"x"),
        lambda: disk.store("folder", b"x"),
        lambda: disk.load("folder"),
        lambda: disk.rename("nowhere", "there"),
        lambda: disk.sync_folder("nowhere"),
    ]
    for refusal in refusals:
        with pytest.raises(StorageError, match="cannot be"):
            refusal()
    assert disk.names("") == ["folder"]


# -- truncating under a reader


def test_a_slice_outlives_the_bytes_that_are_truncated_under_it(tmp_path: Path) -> None:
    done = run_alone(
        """
        import sys
        from penstock.log.disk import OsDisk
        file = OsDisk(sys.argv[1]).open("log")
        file.append(b"a" * 300_000)
        held = file.read(0, 300_000, blocking=False)
        assert isinstance(held, memoryview)
        file.truncate(5_000)
        file.append(b"b" * 1_000)
        print(bytes(held) == b"a" * 300_000, bytes(file.read(0, 10_000)) == b"a" * 5_000 + b"b" * 1_000)
        again = file.read(0, 6_000, blocking=False)
        file.append(b"c" * 200_000)
        held = file.read(6_000, 200_000, blocking=False)
        file.close()
        print(bytes(held) == b"c" * 200_000, len(again))
        """,
        tmp_path,
    )
    assert done.returncode != -signal.SIGBUS, "the process was killed for reading what it held"
    assert done.stdout.splitlines() == ["True True", "True 6000"], done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_truncated_file_is_the_one_that_the_next_process_finds(disk: OsDisk) -> None:
    file = disk.open("log")
    file.append(b"a" * 100_000)
    file.read(0, 100_000, blocking=False)
    file.truncate(70_000)
    file.append(b"b" * 10)
    file.close()
    assert disk.load("log") == b"a" * 70_000 + b"b" * 10


# -- reading


def test_a_large_read_that_must_not_block_aliases_the_file(disk: OsDisk) -> None:
    file = disk.open("log")
    file.append(b"x" * MAP_BYTES_MIN)
    held = file.read(0, MAP_BYTES_MIN, blocking=False)
    file.write_at(7, b"!")
    assert isinstance(held, memoryview)
    assert held[7] == ord("!")


def test_smaller_reads_and_reads_that_may_block_are_copies(disk: OsDisk) -> None:
    file = disk.open("log")
    file.append(b"x" * MAP_BYTES_MIN)
    copies = [file.read(0, MAP_BYTES_MIN - 1, blocking=False), file.read(0, MAP_BYTES_MIN)]
    file.write_at(7, b"!")
    assert [copy[7] for copy in copies] == [ord("x"), ord("x")]


@pytest.mark.parametrize("size", [100, MAP_BYTES_MIN - 1, 3 * MAP_BYTES_MIN])
def test_bytes_that_left_the_page_cache_are_warmed_and_then_read(disk: OsDisk, tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    file = disk.open("log")
    file.append(content)
    file.sync()
    fd = os.open(tmp_path / "data" / "log", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    try:
        found = file.read(0, size, blocking=False)
    except ColdRead as cold:
        cold.warm()
        found = file.read(0, size, blocking=False)
    assert bytes(found) == content[:size]
    assert bytes(file.read(0, size, blocking=False)) == content[:size], "once read, it is cached"


def cold_read(disk: OsDisk, folder: Path) -> ColdRead:
    """What reading a file says that is on the device only; skips where that cannot be had."""
    file = disk.open("cold")
    file.append(bytes(range(256)) * 1000)
    file.sync()
    for _ in range(20):
        fd = os.open(folder / "cold", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        try:
            file.read(0, 200_000, blocking=False)
        except ColdRead as cold:
            file.close()
            return cold
    file.close()
    pytest.skip("this file system never says that it would have to wait")


def test_bytes_are_warmed_through_a_descriptor_of_their_own(disk: OsDisk, tmp_path: Path) -> None:
    cold = cold_read(disk, tmp_path / "data")  # and the file is closed by now
    disk.remove("cold")
    other = disk.open("other")  # likely with the same number
    other.append(b"x")
    cold.warm()
    assert disk.load("other") == b"x"


def test_a_cancelled_cold_read_leaves_nothing_behind(disk: OsDisk, tmp_path: Path) -> None:
    before = open_below(tmp_path)
    for _ in range(3):
        cold = cold_read(disk, tmp_path / "data")
        assert open_below(tmp_path) == before + 1
        del cold
        gc.collect()
        assert open_below(tmp_path) == before


def test_a_file_that_is_closed_cannot_be_read(disk: OsDisk) -> None:
    file = disk.open("log")
    file.append(b"x" * 100)
    file.close()
    for blocking in (True, False):
        with pytest.raises(StorageError, match="cannot be read"):
            file.read(0, 10, blocking)


# -- syncing, closing, removing


def test_a_file_that_was_closed_before_its_sync_came_needs_none(disk: OsDisk) -> None:
    """A sync waits for a thread; meanwhile retention may remove the segment."""
    file = disk.open("log")
    file.append(b"x")
    file.close()
    file.close()
    file.sync()
    assert disk.load("log") == b"x"


def test_a_sync_that_cannot_even_begin_is_a_storage_error(tmp_path: Path) -> None:
    done = run_alone(
        """
        import os, resource, sys
        from penstock.foundation.errors import StorageError
        from penstock.log.disk import OsDisk
        file = OsDisk(sys.argv[1]).open("log")
        file.append(b"x")
        resource.setrlimit(resource.RLIMIT_NOFILE, (file._fd + 1, file._fd + 1))
        try:
            file.sync()
        except StorageError as error:
            print(error)
        """,
        tmp_path,
    )
    assert "Too many open files" in done.stdout, done.stderr


def test_a_folder_is_removed_though_a_thread_still_writes_into_it(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.make_folder("logs/t")
    left_to_make = 3
    remove_for_good = shutil.rmtree

    def remove_in_a_race(path: Path) -> None:
        nonlocal left_to_make
        left_to_make -= 1
        if left_to_make > 0:
            (path / f"made-{left_to_make}").touch()
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        remove_for_good(path)

    monkeypatch.setattr(shutil, "rmtree", remove_in_a_race)
    disk.remove("logs/t")
    assert disk.names("logs") == []


def test_files_do_not_use_up_descriptors(disk: OsDisk) -> None:
    gc.collect()  # what other tests have left; some of it ends later, in threads of libraries
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        file = disk.open("log")
        file.append(bytes(MAP_BYTES_MIN))
        file.read(0, MAP_BYTES_MIN, blocking=False)
        file.sync()
        file.truncate(0)
        file.close()
        disk.store("small", b"x", durable=True)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_large_file_preallocates_blocks_and_releases_the_rest(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    file = disk.open("log")
    piece = bytes(range(256)) * 4096
    while file.size <= RESERVE_BYTES:
        file.append(piece)
    assert (tmp_path / "log").stat().st_size == file.size, "what is reserved does not show"
    again = disk.open("log")
    assert again.size == file.size
    again.close()
    assert file.read(file.size - len(piece), len(piece)) == piece
    file.close()
    assert (tmp_path / "log").stat().st_blocks * 512 <= RESERVE_BYTES + 2 * len(piece)


def test_a_removed_file_is_gone_at_once_and_its_blocks_later(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        disk = OsDisk(tmp_path, threads)
        disk.make_folder("logs/orders")
        disk.open("logs/orders/0.log").append(b"x")
        disk.open("other").append(b"y")
        started = threading.Event()
        threads.submit(started.wait, 10)  # the thread is busy: nothing that is removed waits for it
        disk.remove("logs")
        disk.remove("other")
        disk.remove("never there")
        assert disk.names("logs") == []
        assert disk.load("other") is None
        disk.make_folder("logs/orders")  # the name is free
        started.set()
    assert list(tmp_path.glob("trash/*/*")) == []
    assert disk.names("") == ["logs", "trash"]


def test_trash_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "trash" / "3" / "17"
    left.mkdir(parents=True)
    (left / "0.log").write_bytes(b"x")
    with ThreadPoolExecutor(1) as threads:
        disk = OsDisk(tmp_path, threads)
        disk.open("fresh").append(b"y")
        disk.remove("fresh")
    assert [path.name for path in tmp_path.glob("trash/*")] == ["4"]
    assert list(tmp_path.glob("trash/4/*")) == []
