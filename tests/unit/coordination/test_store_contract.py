"""What every store keeps to, whoever implements it."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.store import ABSENT, Check, Conflict, Delete, Op, Put, Store, StoreUnavailable
from penstock.foundation.codes import ErrorCode

from .stores import FACTORIES, Opened, Watched


@pytest.fixture(params=FACTORIES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    return FACTORIES[request.param](tmp_path)


async def put(store: Store, key: str, value: bytes) -> int:
    """Set a key whatever its version; the version it has now."""
    found = await store.get(key)
    await store.transact([Put(key, value, found.version if found else ABSENT)])
    now = await store.get(key)
    assert now is not None
    return now.version


# -- compare and set


async def test_a_key_that_is_not_there_is_none(opened: Opened) -> None:
    async with opened() as store:
        assert await store.get("a/b") is None


async def test_a_key_is_made_changed_and_removed(opened: Opened) -> None:
    async with opened() as store:
        await store.transact([Put("a/b", b"1", ABSENT)])
        first = await store.get("a/b")
        assert first is not None
        assert first.value == b"1"
        assert first.version != ABSENT
        await store.transact([Put("a/b", b"2", first.version)])
        second = await store.get("a/b")
        assert second is not None
        assert second.value == b"2"
        assert second.version != first.version
        await store.transact([Delete("a/b", second.version)])
        assert await store.get("a/b") is None


async def test_values_are_any_bytes(opened: Opened) -> None:
    async with opened() as store:
        for number, value in enumerate((b"", b"\0\xff", bytes(100_000))):
            await store.transact([Put(f"k/{number}", value, ABSENT)])
            found = await store.get(f"k/{number}")
            assert found is not None
            assert found.value == value


async def test_a_change_on_an_old_view_changes_nothing(opened: Opened) -> None:
    async with opened() as store:
        old = await put(store, "k", b"1")
        now = await put(store, "k", b"2")
        wrong: list[list[Op]] = [
            [Put("k", b"3", old)],
            [Put("k", b"3", ABSENT)],
            [Delete("k", old)],
            [Check("k", old)],
            [Check("k", ABSENT)],
            [Put("other", b"3", old)],
            [Delete("other", now)],
            [Check("other", now)],
        ]
        for ops in wrong:
            with pytest.raises(Conflict) as refused:
                await store.transact(ops)
            assert refused.value.key == ops[0].key
            assert refused.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED
        found = await store.get("k")
        assert found is not None
        assert (found.value, found.version) == (b"2", now)
        assert await store.get("other") is None


async def test_a_key_that_was_removed_and_made_again_has_another_version(opened: Opened) -> None:
    async with opened() as store:
        first = await put(store, "k", b"1")
        await store.transact([Delete("k", first)])
        second = await put(store, "k", b"1")
        assert second != first
        with pytest.raises(Conflict):
            await store.transact([Put("k", b"2", first)])


async def test_a_transaction_is_all_or_nothing(opened: Opened) -> None:
    async with opened() as store:
        a, b = await put(store, "a", b"1"), await put(store, "b", b"1")
        with pytest.raises(Conflict) as refused:
            await store.transact([Put("a", b"2", a), Put("new", b"2", ABSENT), Delete("b", b + 1000)])
        assert refused.value.key == "b"
        assert [await store.get(key) is not None for key in ("a", "b", "new")] == [True, True, False]
        await store.transact([Put("a", b"2", a), Put("new", b"2", ABSENT), Delete("b", b)])
        assert [await store.get(key) is not None for key in ("a", "b", "new")] == [True, False, True]


async def test_a_check_guards_what_is_changed_beside_it(opened: Opened) -> None:
    async with opened() as store:
        guard = await put(store, "guard", b"1")
        await store.transact([Check("guard", guard), Put("k", b"1", ABSENT)])
        unchanged = await store.get("guard")
        assert unchanged is not None
        assert unchanged.version == guard
        await put(store, "guard", b"2")
        with pytest.raises(Conflict):
            await store.transact([Check("guard", guard), Put("more", b"1", ABSENT)])
        assert await store.get("more") is None


async def test_a_transaction_that_only_checks_changes_nothing_and_can_be_waited_for(opened: Opened) -> None:
    async with opened() as store:
        watched = Watched()
        version = await put(store, "k", b"1")
        await store.watch("", watched)
        revision = await store.transact([Check("k", version), Check("nothing", ABSENT)])
        await watched.reached(revision)
        assert watched.values == {"k": b"1"}


async def test_what_was_written_is_there_for_the_next_connection(opened: Opened) -> None:
    async with opened() as store:
        kept = await put(store, "kept", b"1")
        gone = await put(store, "gone", b"1")
        revision = await store.transact([Delete("gone", gone)])
    async with opened() as store:
        found = await store.get("kept")
        assert found is not None
        assert (found.value, found.version) == (b"1", kept)
        assert await store.get("gone") is None
        assert await store.transact([Put("kept", b"2", kept)]) > revision


# -- watching


async def test_a_watcher_is_told_what_is_there_and_then_what_changes(opened: Opened) -> None:
    async with opened() as store:
        first = await put(store, "a", b"1")
        await put(store, "b", b"1")
        watched = Watched()
        await store.watch("", watched)
        assert [change.snapshot for change in watched.changes] == [True]
        assert watched.values == {"a": b"1", "b": b"1"}
        await store.transact([Put("c", b"1", ABSENT)])
        revision = await store.transact([Delete("a", first)])
        await watched.reached(revision)
        assert watched.values == {"b": b"1", "c": b"1"}
        found = await store.get("c")
        assert watched.states["c"] == found


async def test_a_watcher_sees_one_prefix(opened: Opened) -> None:
    async with opened() as store:
        for key in ("topic/1", "topics/1", "topics/2", "tz"):
            await put(store, key, b"old")
        watched, everything = Watched(), Watched()
        await store.watch("topics/", watched)
        await store.watch("", everything)
        assert watched.values == {"topics/1": b"old", "topics/2": b"old"}
        for key in ("topic/1", "topics/3", "tz"):
            await put(store, key, b"new")
        found = await store.get("topics/1")
        assert found is not None
        revision = await store.transact([Put("topics/1", b"new", found.version), Put("topicz", b"new", ABSENT)])
        await watched.reached(revision)
        await everything.reached(revision)
        assert watched.values == {"topics/1": b"new", "topics/2": b"old", "topics/3": b"new"}
        assert len(everything.values) == 6


async def test_a_transaction_is_told_as_one(opened: Opened) -> None:
    async with opened() as store:
        watched = Watched()
        await store.watch("", watched)
        revision = await store.transact([Put(f"k/{number}", b"1", ABSENT) for number in range(20)])
        await watched.reached(revision)
        (told,) = [change for change in watched.changes if "k/0" in change.states]
        assert len(told.states) == 20


async def test_a_conflict_is_told_to_nobody(opened: Opened) -> None:
    async with opened() as store:
        watched = Watched()
        await store.watch("", watched)
        with pytest.raises(Conflict):
            await store.transact([Put("a", b"1", ABSENT), Check("b", 7)])
        revision = await store.transact([Put("c", b"1", ABSENT)])
        await watched.reached(revision)
        assert watched.values == {"c": b"1"}


async def test_revisions_only_grow_for_a_watcher(opened: Opened) -> None:
    async with opened() as store:
        watched = Watched()
        await store.watch("", watched)
        revisions = [await store.transact([Put(f"k/{number}", b"1", ABSENT)]) for number in range(10)]
        await watched.reached(revisions[-1])
        assert revisions == sorted(set(revisions))
        told = [change.revision for change in watched.changes]
        assert told == sorted(told)


async def test_nothing_is_missed_between_the_snapshot_and_the_first_change(opened: Opened) -> None:
    async with opened() as store:
        for round_ in range(5):
            watched = Watched()
            writing = [store.transact([Put(f"{round_}/{number}", b"1", ABSENT)]) for number in range(10)]
            _, *revisions = await asyncio.gather(store.watch("", watched), *writing)
            await watched.reached(max(revisions))
            assert len(watched.values) == 10 * (round_ + 1)


async def test_a_watcher_is_told_even_if_the_writer_did_not_wait(opened: Opened) -> None:
    async with opened() as store:
        watched = Watched()
        await store.watch("", watched)
        for number in range(40):
            writing = asyncio.create_task(store.transact([Put(f"k/{number}", b"1", ABSENT)]))
            for _ in range(number % 8):
                await store.get("k")  # meanwhile it gets on, or not
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        revision = await store.transact([Put("later", b"1", ABSENT)])
        await watched.reached(revision)
        there = [number for number in range(40) if await store.get(f"k/{number}") is not None]
        assert [number for number in range(40) if f"k/{number}" in watched.states] == there


# -- many writers


async def test_of_many_writers_one_wins_and_the_others_know(opened: Opened) -> None:
    async with opened() as store:
        version = await put(store, "k", b"start")
        writing = [store.transact([Put("k", b"%d" % number, version)]) for number in range(20)]
        outcomes = await asyncio.gather(*writing, return_exceptions=True)
        winners = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
        found = await store.get("k")
        assert found is not None
        assert found.value == b"%d" % winners[0]


async def test_writers_that_look_again_lose_nothing(opened: Opened) -> None:
    async with opened() as store:
        await put(store, "count", b"0")

        async def count_up() -> None:
            for _ in range(5):
                while True:
                    found = await store.get("count")
                    assert found is not None
                    try:
                        await store.transact([Put("count", b"%d" % (int(found.value) + 1), found.version)])
                    except Conflict:
                        continue
                    break

        await asyncio.gather(*(count_up() for _ in range(6)))
        found = await store.get("count")
        assert found is not None
        assert found.value == b"30"


async def test_a_store_that_is_closed_is_unavailable(opened: Opened) -> None:
    async with opened() as store:
        await put(store, "k", b"1")
    with pytest.raises(StoreUnavailable):
        await store.get("k")
    with pytest.raises(StoreUnavailable):
        await store.transact([Put("x", b"1", ABSENT)])
    with pytest.raises(StoreUnavailable):
        await store.watch("", Watched())
    await store.close()


# -- any transactions at all

OPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.sampled_from(["put", "delete", "check"]), st.sampled_from([0, 0, 0, 1])
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda op: op[0],
    ),
    max_size=12,
)


def op_of(kind: str, key: str, value: bytes, version: int) -> Op:
    if kind == "put":
        return Put(key, value, version)
    return Delete(key, version) if kind == "delete" else Check(key, version)


@pytest.mark.parametrize("name", FACTORIES)
@given(transactions=OPS)
@settings(max_examples=25, deadline=None)
def test_a_store_is_what_a_plain_table_would_be(
    name: str, transactions: list[list[tuple[str, str, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def run() -> None:
        async with FACTORIES[name](tmp_path_factory.mktemp("store"))() as store:
            watched, model = Watched(), {}
            await store.watch("", watched)
            revision = watched.revision
            for number, wanted in enumerate(transactions):
                ops: list[Op] = []
                for key, kind, wrong in wanted:
                    found = await store.get(key)
                    version = (found.version if found else ABSENT) + wrong
                    ops.append(op_of(kind, key, b"%d" % number, version))
                should_fail = any(wrong for _, _, wrong in wanted)
                try:
                    revision = await store.transact(ops)
                except Conflict:
                    assert should_fail
                else:
                    assert not should_fail
                    for op in ops:
                        if isinstance(op, Put):
                            model[op.key] = op.value
                        elif isinstance(op, Delete):
                            model.pop(op.key, None)
            await watched.reached(revision)
            assert watched.values == model

    asyncio.run(run())
