"""Handlers of the group APIs, over real runtimes on real logs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ResponseGatherer
from penstock.broker.registry import APIS, load_handlers
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.errors import InvalidGroupId
from penstock.replication.runtimes import StateRuntimes
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.schema import RESPONSES, message_of
from tests.unit.groups.coordinator_harness import (
    DELAY_MS,
    Membership,
    commit_of,
    heartbeat_of,
    image_of,
    join_of,
    leave_of,
    settings_of,
    sync_of,
    topic_of,
)
from tests.unit.replication.broker_state import World, world_at

TOPIC = "__consumer_offsets"
GROUPS = ["a", "b", "c", "d", "e"]
"""Enough that they live in several partitions."""

load_handlers()


class EndlessSlice(TimeSlices):
    """A time slice that never ends, and that is never waited for."""

    def __init__(self) -> None:
        super().__init__(lambda: -1.0)

    async def resume(self) -> None:
        pass

    def release(self) -> None:
        pass


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs what need not wait for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Harness:
    """A broker as far as groups are concerned, and calls that come to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.timers: list[Callable[[], None]] = []
        self.numbers = count()
        self.groups = StateRuntimes(
            topic=TOPIC,
            make=lambda number: GroupCoordinator(
                settings=settings_of(),
                image=image_of(topic_of("orders")),
                new_member_id=lambda name: f"{name}-{next(self.numbers)}",
            ),
            partitions=world.partitions,
            clock=world.clock,
            timer=self._timer,
            threads=world.threads,
            perform=lambda effect: None,
        )
        self.broker = cast(Broker, SimpleNamespace(groups=self.groups, slices=EndlessSlice()))

    def _timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        self.timers.append(action)
        return lambda: self.timers.remove(action) if action in self.timers else None

    async def load(self) -> None:
        self.groups.apply(self.world.metadata.image)
        while self.groups.is_loading:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def call(self, key: ApiKey, request: Any, version: int | None = None) -> "Asked":
        """What a connection does with a request that it has decoded."""
        api = APIS[key]
        version = api.versions[-1] if version is None else version
        # Only what is on the wire in this version reaches the handler.
        request = decode(api.request, version, encode_bytes(request, version))
        asked = Asked(key, version)
        result = api.handler(request, asked.call, self.broker)
        if isinstance(result, Coroutine):
            result = _run(result)
        if result is not None:
            asked.call.answer(result)
        return asked

    def answer(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        return self.call(key, request, version).response

    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)
        for action in list(self.timers):
            self.timers.remove(action)
            action()


class Asked:
    """A call, and the response that it got, read back from its bytes."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.key, self.version = key, version
        self.answers = 0
        self.call = Call(key, version, 7, "client", 0.0, 0, "10.0.0.1:5", self._on_answer)

    def _on_answer(self, call: Call) -> None:
        self.answers += 1

    @property
    def response(self) -> Any:
        assert self.answers == 1
        cls = RESPONSES[self.key]
        has_tags = self.version >= message_of(cls).flexible_from
        frame = b"".join(self.call.parts or ())
        return decode(cls, self.version, frame, 9 if has_tags else 8)


@asynccontextmanager
async def harness_at(folder: Path, partitions: int = 3) -> AsyncIterator[Harness]:
    async with world_at(folder) as world:
        if partitions:
            await world.create(TOPIC, partitions)
        harness = Harness(world)
        await harness.load()
        yield harness
        harness.groups.close()


async def test_a_member_joins_syncs_beats_commits_and_leaves(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        joined = harness.call(ApiKey.JOIN_GROUP, join_of(), 3)
        assert joined.answers == 0
        harness.wait(DELAY_MS)
        membership = Membership(joined.response.member_id, joined.response.generation_id, True)
        assert membership.member_id.startswith("client-")
        assert (
            harness.answer(ApiKey.SYNC_GROUP, sync_of(membership, {membership.member_id: b"all"})).assignment
            == b"all"
        )
        assert harness.answer(ApiKey.HEARTBEAT, heartbeat_of(membership)).error_code == ErrorCode.NONE
        committed = harness.answer(ApiKey.OFFSET_COMMIT, commit_of({0: 5}, membership), 9)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        (described,) = harness.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["readers"])).groups
        assert described.members[0].client_host == "10.0.0.1"
        left = harness.answer(ApiKey.LEAVE_GROUP, leave_of(membership.member_id))
        assert [member.error_code for member in left.members] == [ErrorCode.NONE]


async def test_groups_are_asked_for_where_they_live_and_answered_together(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        assert len({harness.groups.partition_of(name) for name in GROUPS}) > 1
        for number, name in enumerate(GROUPS):
            harness.answer(ApiKey.OFFSET_COMMIT, commit_of({0: number}, group_id=name), 9)
        wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        fetched = harness.answer(
            ApiKey.OFFSET_FETCH,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=wanted) for name in GROUPS]),
            9,
        )
        assert [group.group_id for group in fetched.groups] == GROUPS
        assert [group.topics[0].partitions[0].committed_offset for group in fetched.groups] == [0, 1, 2, 3, 4]
        described = harness.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=GROUPS))
        assert [(group.group_id, group.group_state) for group in described.groups] == [
            (name, "Empty") for name in GROUPS
        ]
        listed = harness.answer(ApiKey.LIST_GROUPS, ListGroupsRequest())
        assert {group.group_id for group in listed.groups} == set(GROUPS)
        deleted = harness.answer(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[*GROUPS, "a", "x"]))
        assert [(result.group_id, result.error_code) for result in deleted.results] == [
            *((name, ErrorCode.NONE) for name in GROUPS),
            ("x", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert list(harness.answer(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups) == []


async def test_requests_for_no_groups_are_answered_with_none(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        assert list(harness.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=())).groups) == []
        assert list(harness.answer(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=())).results) == []
        assert list(harness.answer(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=())).groups) == []


def _refusals(harness: Harness, version_of: Callable[[ApiKey], int]) -> dict[ApiKey, int]:
    """What every API says when there is no coordinator."""
    membership = Membership("m", 1, False)
    requests: dict[ApiKey, Any] = {
        ApiKey.JOIN_GROUP: join_of(),
        ApiKey.SYNC_GROUP: sync_of(membership),
        ApiKey.HEARTBEAT: heartbeat_of(membership),
        ApiKey.LEAVE_GROUP: leave_of("m"),
        ApiKey.OFFSET_DELETE: OffsetDeleteRequest(group_id="readers", topics=()),
    }
    codes = {key: harness.answer(key, request, version_of(key)).error_code for key, request in requests.items()}
    commit = harness.answer(ApiKey.OFFSET_COMMIT, commit_of({0: 1}), version_of(ApiKey.OFFSET_COMMIT))
    codes[ApiKey.OFFSET_COMMIT] = commit.topics[0].partitions[0].error_code
    describe = DescribeGroupsRequest(groups=["readers"])
    codes[ApiKey.DESCRIBE_GROUPS] = harness.answer(ApiKey.DESCRIBE_GROUPS, describe).groups[0].error_code
    delete = DeleteGroupsRequest(groups_names=["readers"])
    codes[ApiKey.DELETE_GROUPS] = harness.answer(ApiKey.DELETE_GROUPS, delete).results[0].error_code
    return codes


@pytest.mark.parametrize("newest", [True, False])
async def test_without_a_coordinator_every_api_returns_its_own_error(tmp_path: Path, newest: bool) -> None:
    async with harness_at(tmp_path, partitions=0) as harness:
        codes = _refusals(harness, lambda key: APIS[key].versions[-1 if newest else 0])
        assert set(codes.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_offsets_are_not_fetched_from_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    """Old consumers know NOT_COORDINATOR only."""
    async with harness_at(tmp_path, partitions=0) as harness:
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        request = OffsetFetchRequest(group_id="readers", topics=topics)
        oldest = harness.answer(ApiKey.OFFSET_FETCH, request, 1)
        assert [(entry.committed_offset, entry.error_code) for entry in oldest.topics[0].partitions] == [
            (-1, ErrorCode.NOT_COORDINATOR)
        ] * 2
        assert harness.answer(ApiKey.OFFSET_FETCH, request, 7).error_code == ErrorCode.NOT_COORDINATOR
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in "ab"]
        newest = harness.answer(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups))
        assert [(group.group_id, group.error_code) for group in newest.groups] == [
            ("a", ErrorCode.NOT_COORDINATOR),
            ("b", ErrorCode.NOT_COORDINATOR),
        ]


async def test_while_groups_are_read_back_a_heartbeat_is_fine_and_a_list_is_not(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.groups.close()
        harness.groups.apply(harness.world.metadata.image)
        assert harness.answer(ApiKey.HEARTBEAT, heartbeat_of(Membership("m", 1, False))).error_code == ErrorCode.NONE
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert harness.answer(ApiKey.LIST_GROUPS, ListGroupsRequest()).error_code == loading
        assert harness.answer(ApiKey.JOIN_GROUP, join_of()).error_code == loading
        assert harness.answer(ApiKey.SYNC_GROUP, sync_of(Membership("m", 1, False))).error_code == loading


async def test_waiting_members_get_an_error_when_the_coordinator_resigns(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        joined = harness.call(ApiKey.JOIN_GROUP, join_of(), 3)
        harness.groups.close()
        assert joined.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_committed_offsets_are_loaded_by_the_next_coordinator(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.answer(ApiKey.OFFSET_COMMIT, commit_of({0: 5}), 9)
        harness.groups.close()
        await harness.load()
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        answer = harness.answer(ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="readers", topics=topics), 5)
        assert answer.topics[0].partitions[0].committed_offset == 5


def _gathered(count: int) -> tuple[ResponseGatherer, list[list[Any]]]:
    merged: list[list[Any]] = []

    def merge(parts: list[Any]) -> None:
        merged.append(parts)

    call = Call(ApiKey.LIST_GROUPS, 5, 1, None, 0.0, 0, "h:1", lambda call: None)
    return ResponseGatherer(call, count, merge), merged


def test_parts_are_merged_in_the_order_of_the_questions_when_the_last_is_there() -> None:
    gatherer, merged = _gathered(3)
    takers = [gatherer.receiver(number, _code) for number in range(3)]
    takers[2]("third")
    takers[0]("first")
    assert merged == []
    takers[1](InvalidGroupId("no"))
    assert merged == [["first", ErrorCode.INVALID_GROUP_ID, "third"]]


def test_no_questions_are_answered_at_once() -> None:
    _, merged = _gathered(0)
    assert merged == [[]]


def _code(error: PenstockError) -> ErrorCode:
    return error.code
