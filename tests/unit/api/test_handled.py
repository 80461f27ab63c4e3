import sqlite3
from pathlib import Path

import pytest

from penstock.api.core.handled import TRIM_EVERY, SqliteHandled, create_handled_filter, default_path
from penstock.api.core.message import Message
from penstock.api.errors import InvalidArgument, InvalidValue
from tests.simulation.clock import FakeClock


def message(offset: int = 0) -> Message:
    return Message(
        topic="orders", partition=0, offset=offset, timestamp_ms=1, key=None, value=b"%d" % offset, headers=()
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_marked_message_is_known_and_may_be_marked_again() -> None:
    store = SqliteHandled()
    assert not store.seen("a")
    store.mark("a")
    store.mark("a")
    assert store.seen("a")
    assert not store.seen("b")
    store.close()


def test_a_number_is_not_its_digits() -> None:
    store = SqliteHandled()
    store.mark(1)
    assert [store.seen(id) for id in (1, "1", b"1")] == [True, False, False]
    store.mark("1")
    store.mark(b"1")
    assert [store.seen(id) for id in (1, "1", b"1")] == [True, True, True]
    store.close()


def test_a_file_is_remembered_by_the_next_one_and_shared_with_others(tmp_path: Path) -> None:
    first, second = (SqliteHandled(tmp_path / "handled.sqlite") for _ in range(2))
    first.mark("a")
    assert second.seen("a")
    first.close()
    second.close()
    third = SqliteHandled(tmp_path / "handled.sqlite")
    assert third.seen("a")
    third.close()


def test_expired_marks_are_ignored_at_once_and_deleted_later(clock: FakeClock, tmp_path: Path) -> None:
    store = SqliteHandled(tmp_path / "handled.sqlite", keep_s=10, clock=clock)
    store.mark("a")
    clock.advance(10_000)
    assert store.seen("a")
    clock.advance(1)
    assert not store.seen("a")
    for number in range(TRIM_EVERY):
        store.mark(number)
    store.close()
    assert rows(tmp_path / "handled.sqlite") == TRIM_EVERY


def test_marking_again_keeps_an_id_for_longer(clock: FakeClock) -> None:
    store = SqliteHandled(keep_s=10, clock=clock)
    store.mark("a")
    clock.advance(9_000)
    store.mark("a")
    clock.advance(9_000)
    assert store.seen("a")
    store.close()


def test_only_the_last_so_many_are_kept(tmp_path: Path) -> None:
    store = SqliteHandled(tmp_path / "handled.sqlite", keep=100)
    for number in range(3 * TRIM_EVERY):
        store.mark(number)
    assert not store.seen(0)
    assert all(store.seen(number) for number in range(3 * TRIM_EVERY - 100, 3 * TRIM_EVERY))
    store.close()
    assert rows(tmp_path / "handled.sqlite") == 100


def rows(path: Path) -> int:
    database = sqlite3.connect(path)
    (count,) = database.execute("SELECT count(*) FROM handled").fetchone()
    database.close()
    return count


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are no tables, " * 100)
    with pytest.raises(InvalidArgument, match=r"notes\.txt' cannot be used"):
        SqliteHandled(tmp_path / "notes.txt")
    with pytest.raises(InvalidArgument, match="unable to open"):
        SqliteHandled(tmp_path / "missing" / "handled.sqlite")


@pytest.mark.parametrize("name", ["keep", "keep_s"])
def test_bounds_must_be_above_zero(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}=0"):
        SqliteHandled(**{name: 0})


def test_a_group_s_file_has_a_name_that_any_file_system_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path("billing") == tmp_path / "penstock" / "handled" / "billing.sqlite"
    assert "/" not in default_path("../etc/passwd").name
    assert len(default_path("x" * 1000).name) < 100
    assert default_path("x" * 1000) != default_path("x" * 1001)
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_path("billing").is_relative_to(Path.home())


def test_without_a_store_a_group_has_a_file_and_a_lone_reader_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    grouped = create_handled_filter(lambda each: each.offset, None, "billing")
    alone = create_handled_filter(lambda each: each.offset, None, None)
    assert grouped is not None
    assert alone is not None
    for each in (grouped, alone):
        each.mark(each.id(message(7)))
        assert each.seen(7)
        each.close()
    assert [path.name for path in tmp_path.rglob("*.sqlite")] == ["billing.sqlite"]


def test_a_store_of_one_s_own_is_used_and_left_open() -> None:
    store = SqliteHandled()
    mine = create_handled_filter(lambda each: str(each.offset), store, "billing")
    assert mine is not None
    mine.mark("7")
    mine.close()
    assert store.seen("7")
    store.close()


def test_no_ids_no_store() -> None:
    assert create_handled_filter(None, None, "billing") is None
    with pytest.raises(InvalidArgument, match="give both"):
        create_handled_filter(None, ":memory:", "billing")


@pytest.mark.parametrize("id", [None, 1.5, ["a"], 2**70])
def test_ids_must_be_text_bytes_or_whole_numbers(id: object) -> None:
    handled = create_handled_filter(lambda each: id, ":memory:", None)  # type: ignore[arg-type, return-value]
    assert handled is not None
    with pytest.raises(InvalidValue, match="offset 3 of partition orders-0; it must return str, bytes or int"):
        handled.id(message(3))
    handled.close()
