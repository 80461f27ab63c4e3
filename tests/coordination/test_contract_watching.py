"""The contract of every store's watchers."""

import asyncio
import logging
import random

import pytest

from penstock.coordination.store import ABSENT, Change, Check, Conflict, Delete, Op, Put

from .stores import Stores, Watched, put


async def test_a_watcher_gets_the_current_state_and_then_changes(stores: Stores) -> None:
    async with stores.opened() as store:
        first = await put(store, "a", b"1")
        await put(store, "b", b"1")
        watched = Watched()
        await store.watch("", watched)
        assert [change.snapshot for change in watched.changes] == [True]
        assert watched.values == {"a": b"1", "b": b"1"}
        await store.transact([Put("c", b"1", ABSENT)])
        assert watched.values == {"a": b"1", "b": b"1", "c": b"1"}
        revision = await store.transact([Delete("a", first)])
        assert watched.values == {"b": b"1", "c": b"1"}
        assert watched.revision >= revision
        assert watched.states["c"] == await store.get("c")
        assert watched.snapshots == 1


async def test_a_writer_has_received_its_own_change_when_its_write_returns(stores: Stores) -> None:
    async with stores.opened() as store:
        everything, others = Watched(), Watched()
        await store.watch("", everything)
        await store.watch("elsewhere/", others)

        async def write_and_look(number: int) -> None:
            revision = await store.transact([Put(f"k/{number}", b"%d" % number, ABSENT)])
            assert everything.values[f"k/{number}"] == b"%d" % number
            assert everything.revision >= revision

        for start in range(0, 60, 20):
            await asyncio.gather(*(write_and_look(number) for number in range(start, start + 20)))
        assert others.values == {}


async def test_a_watcher_sees_one_prefix(stores: Stores) -> None:
    async with stores.opened() as store:
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
        assert watched.values == {"topics/1": b"new", "topics/2": b"old", "topics/3": b"new"}
        assert len(everything.values) == 6
        assert min(watched.revision, everything.revision) >= revision


async def test_a_transaction_is_delivered_as_one_change(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        await store.transact([Put(f"k/{number}", b"1", ABSENT) for number in range(20)])
        (change,) = [each for each in watched.changes if "k/0" in each.states]
        assert len(change.states) == 20


async def test_a_conflict_is_not_delivered_to_watchers(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        with pytest.raises(Conflict):
            await store.transact([Put("a", b"1", ABSENT), Check("b", 7)])
        await store.transact([Put("c", b"1", ABSENT)])
        assert watched.values == {"c": b"1"}
        assert "a" not in {key for change in watched.changes for key in change.states}


async def test_revisions_only_grow(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        revisions = [await store.transact([Put(f"k/{number}", b"1", ABSENT)]) for number in range(10)]
        assert revisions == sorted(set(revisions))
        revisions = [change.revision for change in watched.changes]
        assert revisions == sorted(revisions)


async def test_nothing_is_missed_between_the_snapshot_and_the_first_change(stores: Stores) -> None:
    async with stores.opened() as store:
        for round_ in range(5):
            watched, other = Watched(), Watched()
            writing = [store.transact([Put(f"{round_}/{number}", b"1", ABSENT)]) for number in range(10)]
            await asyncio.gather(store.watch("", watched), *writing, store.watch(f"{round_}/", other))
            await watched.until(lambda w=watched, r=round_: len(w.values) == 10 * (r + 1), "all keys are seen")
            await other.until(lambda w=other: len(w.values) == 10, "all keys of this round are seen")


async def test_a_change_is_delivered_even_if_its_writer_did_not_wait(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        for number in range(40):
            writing = asyncio.create_task(store.transact([Put(f"k/{number}", b"1", ABSENT)]))
            for _ in range(number % 8):
                await store.get("k")  # meanwhile it gets on, or not
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        await store.transact([Put("later", b"1", ABSENT)])
        # A request that was cancelled on its way may be carried out after one that was sent later.
        for number in range(40):
            key = f"k/{number}"
            found = await store.get(key)
            if found is not None:
                await watched.until(lambda key=key: key in watched.states, f"{key} is seen")


async def test_a_watcher_that_fails_keeps_nothing_from_the_others(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(change: Change) -> None:
        raise RuntimeError("this watcher has a bug")

    async with stores.opened() as store:
        watched = Watched()
        with caplog.at_level(logging.CRITICAL):
            await store.watch("", fails)
            await store.watch("", watched)
            await store.transact([Put("k", b"1", ABSENT)])
            await store.transact([Put("l", b"1", ABSENT)])
        assert watched.values == {"k": b"1", "l": b"1"}


async def test_writes_of_one_connection_are_delivered_to_watchers_of_another(remote: Stores) -> None:
    async with remote.opened() as one, remote.opened() as other:
        watched = Watched()
        await other.watch("", watched)
        version = await put(one, "a", b"1")
        await watched.shows({"a": b"1"})
        await one.transact([Put("a", b"2", version), Put("b", b"1", ABSENT)])
        await watched.shows({"a": b"2", "b": b"1"})
        assert watched.states["a"] == await one.get("a")


async def test_many_changes_in_a_row_end_in_the_true_state_in_every_watcher(
    remote: Stores, rng: random.Random
) -> None:
    """Writers of one connection, watchers of two; some watchers come late. States of a key never go back."""
    orders: dict[str, list[int]] = {}

    def in_order(change: Change) -> None:
        for key, state in change.states.items():
            if state is not None:
                orders.setdefault(key, []).append(int(state.value))

    async with remote.opened() as one, remote.opened() as other:
        watched = [Watched()]
        await other.watch("", watched[0])
        await other.watch("", in_order)
        truth: dict[str, bytes] = {}
        for number in range(1, 150):
            key = f"k/{rng.randrange(12)}"
            found = await one.get(key)
            version = found.version if found else ABSENT
            op: Op = Put(key, b"%d" % number, version)
            if found and rng.random() < 0.25:
                op = Delete(key, version)
            await one.transact([op])
            truth = {k: v for k, v in truth.items() if k != key} | ({key: op.value} if isinstance(op, Put) else {})
            if number in (50, 100):
                late = Watched()
                await (one if number == 50 else other).watch("", late)
                watched.append(late)
        for each in watched:
            await each.shows(truth)
            assert each.snapshots == 1
        for seen in orders.values():
            assert seen == sorted(seen)


async def test_two_thousand_keys_are_written_seen_and_read_at_once(stores: Stores) -> None:
    async with stores.opened() as store:
        watched = Watched()
        await store.watch("", watched)
        for start in range(0, 2000, 100):
            await store.transact([Put(f"k/{number}", b"%d" % number, ABSENT) for number in range(start, start + 100)])
        assert len(watched.values) == 2000
        late = Watched()
        await store.watch("", late)
        assert late.states == watched.states
        assert late.values == {f"k/{number}": b"%d" % number for number in range(2000)}


async def test_large_values_come_as_they_are(stores: Stores, rng: random.Random) -> None:
    values = {f"k/{number}": rng.randbytes(100_000) for number in range(30)}
    async with stores.opened() as store:
        watched, late = Watched(), Watched()
        await store.watch("", watched)
        for key, value in values.items():
            await store.transact([Put(key, value, ABSENT)])
        assert watched.values == values
        await store.watch("", late)
        assert late.values == values
