"""The contract of every store: compare and set, all or nothing, many writers."""

import asyncio
import itertools
import random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.coordination.store import (
    ABSENT,
    Check,
    Conflict,
    Delete,
    Op,
    Put,
    Store,
    StoreUnavailable,
)
from penstock.foundation.codes import ErrorCode
from tests.examples import examples

from .stores import Stores, Watched, count_up, put

# -- compare and set


async def test_a_key_that_is_not_there_is_none(stores: Stores) -> None:
    async with stores.opened() as store:
        assert await store.get("a/b") is None


async def test_a_key_is_made_changed_and_removed(stores: Stores) -> None:
    async with stores.opened() as store:
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


async def test_values_are_any_bytes(stores: Stores, rng: random.Random) -> None:
    async with stores.opened() as store:
        for number, value in enumerate((b"", b"\0\xff", rng.randbytes(100_000))):
            await store.transact([Put(f"k/{number}", value, ABSENT)])
            found = await store.get(f"k/{number}")
            assert found is not None
            assert found.value == value


KEYS = ("ключ/木/é", "a b%c", "..", ".", "a//b/", "/a", "%2F", "a/./b", "x" * 500, "\t\u200b\x7f", "🙂/🙂", "00/a")


async def test_keys_are_any_text(stores: Stores) -> None:
    async with stores.opened() as store:
        watched, late = Watched(), Watched()
        await store.watch("", watched)
        for key in KEYS:
            await store.transact([Put(key, key.encode(), ABSENT)])
            found = await store.get(key)
            assert found is not None
            assert found.value == key.encode()
        assert watched.values == {key: key.encode() for key in KEYS}
        await store.watch("", late)
        assert late.values == watched.values
        narrow = Watched()
        await store.watch("a//", narrow)
        assert narrow.values == {"a//b/": b"a//b/"}


async def test_a_change_on_an_old_view_changes_nothing(stores: Stores) -> None:
    async with stores.opened() as store:
        old = await put(store, "k", b"1")
        now = await put(store, "k", b"2")
        wrong: list[list[Op]] = [
            [Put("k", b"3", old)],
            [Put("k", b"3", ABSENT)],
            [Delete("k", old)],
            [Delete("k", ABSENT)],
            [Check("k", old)],
            [Check("k", ABSENT)],
            [Check("k", 2**40)],
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


async def test_a_key_that_was_removed_and_made_again_has_another_version(stores: Stores) -> None:
    if stores.kind == "zookeeper":
        pytest.skip("ZooKeeper counts every node from the beginning: see the docstring of coordination/store.py")
    async with stores.opened() as store:
        first = await put(store, "k", b"1")
        await store.transact([Delete("k", first)])
        second = await put(store, "k", b"1")
        assert second != first
        with pytest.raises(Conflict):
            await store.transact([Put("k", b"2", first)])


async def test_a_transaction_is_all_or_nothing(stores: Stores) -> None:
    async with stores.opened() as store:
        a, b = await put(store, "a", b"1"), await put(store, "b", b"1")
        with pytest.raises(Conflict) as refused:
            await store.transact([Put("a", b"2", a), Put("new", b"2", ABSENT), Delete("b", b + 1000)])
        assert refused.value.key == "b"
        assert [await store.get(key) is not None for key in ("a", "b", "new")] == [True, True, False]
        await store.transact([Put("a", b"2", a), Put("new", b"2", ABSENT), Delete("b", b)])
        assert [await store.get(key) is not None for key in ("a", "b", "new")] == [True, False, True]


async def test_a_check_guards_what_is_changed_beside_it(stores: Stores) -> None:
    async with stores.opened() as store:
        guard = await put(store, "guard", b"1")
        await store.transact([Check("guard", guard), Check("nothing", ABSENT), Put("k", b"1", ABSENT)])
        unchanged = await store.get("guard")
        assert unchanged is not None
        assert unchanged.version == guard
        await put(store, "guard", b"2")
        with pytest.raises(Conflict):
            await store.transact([Check("guard", guard), Put("more", b"1", ABSENT)])
        with pytest.raises(Conflict):
            await store.transact([Check("k", ABSENT), Put("more", b"1", ABSENT)])
        assert await store.get("more") is None


async def test_a_transaction_that_only_looks_changes_nothing_and_is_no_news(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        version = await put(store, "k", b"1")
        await store.watch("", watched)
        for ops in (
            [Check("k", version), Check("nothing", ABSENT)],
            [Check("k", version)],
            [Delete("nothing", ABSENT)],
        ):
            revision = await store.transact(ops)
            assert watched.revision >= revision
            assert watched.values == {"k": b"1"}
        assert not any(change.states for change in watched.changes[1:])


async def test_a_transaction_without_operations_does_nothing(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        assert await store.transact([]) <= watched.revision


@pytest.mark.parametrize(
    "ops",
    [
        [Put("k", b"1", ABSENT), Delete("k", 1)],
        [Check("k", 1), Check("k", 2)],
        [Put("k", b"1", 7, leased=True)],
        [Put("", b"1", ABSENT)],
    ],
)
async def test_operations_that_one_store_lacks_are_refused_by_all(stores: Stores, ops: list[Op]) -> None:
    async with stores.opened() as store:
        with pytest.raises(ValueError, match="key"):
            await store.transact(ops)
        assert await store.get("k") is None


async def test_repeated_operations_of_a_transaction_are_done_once(stores: Stores) -> None:
    async with stores.opened() as store:
        made = Put("k", b"1", ABSENT)
        await store.transact([Check("other", ABSENT), made, Check("other", ABSENT), made])
        found = await store.get("k")
        assert found is not None
        assert found.value == b"1"


async def test_writes_are_visible_to_the_next_connection(stores: Stores) -> None:
    async with stores.opened() as store:
        kept = await put(store, "kept", b"1")
        gone = await put(store, "gone", b"1")
        revision = await store.transact([Delete("gone", gone)])
    async with stores.opened() as store:
        found = await store.get("kept")
        assert found is not None
        assert (found.value, found.version) == (b"1", kept)
        assert await store.get("gone") is None
        assert await store.transact([Put("kept", b"2", kept)]) > revision


# -- many writers


async def test_of_many_writers_one_wins_and_the_others_know(stores: Stores) -> None:
    async with stores.opened() as store:
        version = await put(store, "k", b"start")
        writing = [store.transact([Put("k", b"%d" % number, version)]) for number in range(20)]
        outcomes = await asyncio.gather(*writing, return_exceptions=True)
        winners = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(winners) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
        found = await store.get("k")
        assert found is not None
        assert found.value == b"%d" % winners[0]


async def test_writers_that_look_again_lose_nothing(stores: Stores) -> None:
    async def count(store: Store, times: int) -> list[int]:
        return [await count_up(store, "count") for _ in range(times)]

    async with stores.opened() as store:
        counted = await asyncio.gather(*(count(store, 5) for _ in range(6)))
        assert sorted(itertools.chain(*counted)) == list(range(1, 31))


async def test_writers_of_several_connections_lose_nothing(remote: Stores) -> None:
    async def count() -> list[int]:
        async with remote.opened() as store:
            watched = Watched()
            await store.watch("", watched)
            counted = []
            for _ in range(15):
                counted.append(await count_up(store, "count"))
                assert int(watched.values["count"]) >= counted[-1], "the writer has received its own change"
            return counted

    counted = await asyncio.gather(*(count() for _ in range(4)))
    assert sorted(itertools.chain(*counted)) == list(range(1, 61))


async def test_a_store_that_is_closed_is_unavailable(stores: Stores) -> None:
    async with stores.opened() as store:
        await put(store, "k", b"1")
        assert store.is_connected
    assert not store.is_connected
    with pytest.raises(StoreUnavailable):
        await store.get("k")
    with pytest.raises(StoreUnavailable):
        await store.transact([Put("x", b"1", ABSENT)])
    with pytest.raises(StoreUnavailable):
        await store.watch("", Watched())
    await store.close()


async def test_closing_the_store_fails_waiting_calls(stores: Stores) -> None:
    async with stores.opened() as store:
        waiting = [asyncio.create_task(store.transact([Put(f"k/{number}", b"1", ABSENT)])) for number in range(20)]
        waiting += [asyncio.create_task(store.get(f"k/{number}")) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [failure for failure in failures if not isinstance(failure, StoreUnavailable)] == []


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


_examples = itertools.count()


@given(transactions=OPS)
@examples(15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_store_is_what_a_plain_table_would_be(
    stores: Stores, transactions: list[list[tuple[str, str, int]]]
) -> None:
    room = f"example-{next(_examples)}/"  # the store is the same one for all examples

    async def run() -> None:
        async with stores.opened() as store:
            watched, model = Watched(), dict[str, bytes]()
            await store.watch(room, watched)
            for number, wanted in enumerate(transactions):
                ops: list[Op] = []
                for name, kind, wrong in wanted:
                    found = await store.get(room + name)
                    version = (found.version if found else ABSENT) + wrong
                    ops.append(op_of(kind, room + name, b"%d" % number, version))
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
                    assert watched.revision >= revision
                assert watched.values == model

    asyncio.run(run())
