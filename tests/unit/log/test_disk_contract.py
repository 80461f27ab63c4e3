"""The contract of every disk: the real one, the one in memory, and the simulated one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.disk import Disk, OsDisk
from penstock.log.memory import MemoryDisk
from tests.examples import examples
from tests.simulation.disk import FakeDisk

Opened = Callable[[], AbstractContextManager[Disk]]


@contextmanager
def os_disk() -> Iterator[Disk]:
    with TemporaryDirectory() as folder:
        yield OsDisk(Path(folder) / "data")


@contextmanager
def memory_disk() -> Iterator[Disk]:
    yield MemoryDisk()


@contextmanager
def fake_disk() -> Iterator[Disk]:
    yield FakeDisk(Random(0))


DISKS = pytest.mark.parametrize("opened", [os_disk, memory_disk, fake_disk])


@pytest.fixture(params=[os_disk, memory_disk, fake_disk])
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    with request.param() as made:
        yield made


def test_a_file_is_made_when_it_is_opened(disk: Disk) -> None:
    assert disk.open("log").size == 0
    assert disk.names("") == ["log"]
    assert disk.load("log") == b""


def test_appended_bytes_are_read_back(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"first")
    file.append(memoryview(bytearray(b"second")))
    file.append(bytearray(b"third"))
    assert file.size == 16
    assert bytes(file.read(0, 16)) == b"firstsecondthird"
    assert bytes(file.read(3, 5)) == b"stsec"


def test_a_buffer_may_be_used_again_once_it_was_appended(disk: Disk) -> None:
    file, buffer = disk.open("log"), bytearray(b"here")
    file.append(buffer)
    buffer[:] = b"gone"
    assert bytes(file.read(0, 4)) == b"here"


def test_a_read_gives_fewer_bytes_at_the_end_and_none_after_it(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"0123456789")
    assert bytes(file.read(7, 100)) == b"789"
    assert bytes(file.read(10, 100)) == b""
    assert bytes(file.read(50, 100)) == b""
    assert bytes(file.read(3, 0)) == b""


def test_a_file_that_is_opened_again_has_what_was_appended(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"kept")
    file.close()
    again = disk.open("log")
    assert again.size == 4
    again.append(b" on")
    assert disk.load("log") == b"kept on"


def test_bytes_are_written_over_in_place(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"0123")
    file.append(b"4567")
    file.write_at(2, b"abcd")
    assert file.size == 8
    assert bytes(file.read(0, 8)) == b"01abcd67"


def test_truncated_bytes_are_gone_and_may_be_written_again(disk: Disk) -> None:
    file = disk.open("log")
    for piece in (b"aaaa", b"bbbb", b"cccc"):
        file.append(piece)
    file.truncate(6)
    assert file.size == 6
    file.append(b"dd")
    assert bytes(file.read(0, 100)) == b"aaaabbdd"
    file.truncate(0)
    assert (file.size, bytes(file.read(0, 100))) == (0, b"")


def test_a_file_never_grows_by_being_truncated(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"1234")
    file.truncate(10)
    assert file.size == 4
    file.append(b"5")
    assert bytes(file.read(0, 10)) == b"12345"


def test_bytes_that_were_read_stay_as_they_were_while_the_file_grows(disk: Disk) -> None:
    file = disk.open("log")
    file.append(b"x" * 100_000)
    held = file.read(0, 100_000, blocking=False)
    for _ in range(10):
        file.append(b"y" * 100_000)
    assert bytes(held) == b"x" * 100_000
    assert bytes(file.read(900_000, 200_000, blocking=False)) == b"y" * 200_000


def test_names_are_those_of_one_folder_in_order(disk: Disk) -> None:
    for folder in ("logs", "logs/b", "logs/b/deep"):
        disk.make_folder(folder)
    for name in ("logs/b/2", "logs/b/1", "logs/b/deep/3", "logs/a"):
        disk.open(name).close()
    disk.store("small", b"")
    assert disk.names("logs/b") == ["1", "2", "deep"]
    assert disk.names("logs") == ["a", "b"]
    assert disk.names("") == ["logs", "small"]


def test_a_folder_that_is_not_there_has_no_names(disk: Disk) -> None:
    disk.open("file").close()
    assert disk.names("nowhere") == []
    assert disk.names("file") == []


def test_a_folder_is_removed_with_all_that_is_in_it_and_nothing_else(disk: Disk) -> None:
    for folder in ("logs/t/1", "logs/t/10"):
        disk.make_folder(folder)
        disk.open(f"{folder}/log").append(b"x")
        disk.store(f"{folder}/small", b"y")
    disk.remove("logs/t/1")
    assert disk.names("logs/t") == ["10"]
    assert disk.load("logs/t/1/log") is None
    assert disk.load("logs/t/10/small") == b"y"


def test_removing_what_is_not_there_does_nothing(disk: Disk) -> None:
    disk.store("here", b"1")
    disk.remove("there")
    disk.remove("there/below")
    disk.remove("here")
    assert disk.names("") == []


def test_a_file_takes_the_place_of_another(disk: Disk) -> None:
    disk.open("old").append(b"old")
    disk.open("new").append(b"new")
    disk.rename("new", "old")
    assert disk.names("") == ["old"]
    assert disk.load("old") == b"new"


def test_a_small_file_that_is_not_there_is_none(disk: Disk) -> None:
    assert disk.load("nowhere") is None
    assert disk.load("no/where") is None


@pytest.mark.parametrize("durable", [False, True])
def test_a_small_file_is_replaced_whole(disk: Disk, durable: bool) -> None:
    disk.make_folder("a")
    disk.store("a/small", b"a long first version", durable)
    disk.store("a/small", b"second", durable)
    assert disk.load("a/small") == b"second"
    assert disk.names("a") == ["small"]


def test_a_small_file_takes_the_place_of_one_that_was_appended_to(disk: Disk) -> None:
    disk.open("both").append(b"appended")
    disk.store("both", b"stored")
    assert disk.load("both") == b"stored"
    file = disk.open("both")
    file.append(b" on")
    assert disk.load("both") == b"stored on"


def test_files_and_folders_are_synced(disk: Disk) -> None:
    disk.make_folder("a")
    file = disk.open("a/log")
    file.append(b"x")
    file.sync()
    disk.sync_folder("a")
    disk.sync_folder("")
    assert disk.load("a/log") == b"x"


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=40), st.just(0)),
        st.tuples(st.just("truncate"), st.just(b""), st.integers(0, 150)),
        st.tuples(st.just("write_at"), st.binary(min_size=1, max_size=20), st.integers(0, 100)),
        st.tuples(st.just("reopen"), st.just(b""), st.just(0)),
    ),
    max_size=30,
)


@DISKS
@given(operations=OPERATIONS, at=st.integers(0, 200), count=st.integers(0, 200), blocking=st.booleans())
@examples(60, deadline=None)
def test_a_file_is_what_a_plain_buffer_would_be(
    opened: Opened, operations: list[tuple[str, bytes, int]], at: int, count: int, blocking: bool
) -> None:
    with opened() as disk:
        file, model = disk.open("log"), bytearray()
        for operation, data, place in operations:
            if operation == "append":
                file.append(data)
                model += data
            elif operation == "truncate":
                file.truncate(place)
                del model[place:]
            elif operation == "reopen":
                file.close()
                file = disk.open("log")
            elif place + len(data) <= len(model):
                file.write_at(place, data)
                model[place : place + len(data)] = data
            assert file.size == len(model)
        assert bytes(file.read(at, count, blocking)) == bytes(model[at : at + count])
        assert disk.load("log") == bytes(model)
        file.close()
