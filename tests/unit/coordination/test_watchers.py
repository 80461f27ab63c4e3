"""Which changes watchers get, and which calls wait for them."""

import asyncio

import pytest

from penstock.coordination.store import Change, StoreUnavailable, Versioned
from penstock.coordination.watchers import Watchers, in_time


def change(revision: int, *keys: str, snapshot: bool = False) -> Change:
    states = {key: Versioned(value=b"%d" % revision, version=revision) for key in keys}
    return Change(revision=revision, snapshot=snapshot, states=states)


def test_a_watcher_gets_its_own_keys_and_every_revision() -> None:
    watchers, changes = Watchers(), list[Change]()
    watchers.join("a/", changes.append).begin(change(1, snapshot=True))
    watchers.notify(change(2, "a/1", "b/1"))
    watchers.notify(change(3, "b/1"))
    assert [(each.revision, list(each.states)) for each in changes] == [(1, []), (2, ["a/1"]), (3, [])]


def test_newer_changes_before_the_snapshot_are_delivered_after_it() -> None:
    watchers, changes = Watchers(), list[Change]()
    watch = watchers.join("", changes.append)
    for revision in (3, 4, 5):
        watchers.notify(change(revision, "k"))
    assert changes == []
    watch.begin(change(4, "k", snapshot=True))
    watchers.notify(change(4, "k"))  # a stream that is behind the snapshot
    watchers.notify(change(6, "k"))
    assert [each.revision for each in changes] == [4, 5, 6]


def test_a_removed_watcher_gets_nothing() -> None:
    watchers, changes = Watchers(), list[Change]()
    watch = watchers.join("", changes.append)
    watch.begin(change(1, snapshot=True))
    watchers.leave(watch)
    watchers.notify(change(2, "k"))
    assert [each.revision for each in changes] == [1]


async def test_a_call_that_waits_for_a_revision_is_woken_by_it_or_a_later_one() -> None:
    watchers = Watchers()
    watchers.join("", lambda changes: None).begin(change(1, snapshot=True))
    watchers.mark_notified(1)
    await watchers.wait_notified(1)
    waiting = [asyncio.create_task(watchers.wait_notified(revision)) for revision in (2, 3, 4)]
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    watchers.notify(change(3, "k"))
    await waiting[0]
    assert not waiting[2].done()
    watchers.notify(change(5))
    await waiting[2]
    assert watchers.notified == 5


async def test_calls_do_not_wait_for_missing_watchers_or_those_without_a_snapshot() -> None:
    watchers = Watchers()
    await watchers.wait_notified(7)
    watchers.join("", lambda changes: None)
    await watchers.wait_notified(7)
    assert watchers.limit_to_seen(7) == 7


def test_watchers_have_seen_a_read_at_the_revision_that_they_got() -> None:
    watchers = Watchers()
    watchers.join("", lambda changes: None).begin(change(3, snapshot=True))
    watchers.mark_notified(3)
    assert watchers.limit_to_seen(7) == 3
    assert watchers.limit_to_seen(2) == 2


async def test_a_wait_that_times_out_raises_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"the store did not answer within 0\.01 s"):
        async with in_time(0.01, "the store"):
            await asyncio.Event().wait()
