"""Requests with many elements: cut into pieces whose joined answers are the answer to the whole."""

from random import Random
from typing import Any

import pytest

from penstock.broker.large_requests import SPLITS, JoinedResponse, Split, cut, without_duplicates
from penstock.broker.registry import APIS, load_handlers
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import REQUESTS, RESPONSES, fields_of


def _names(cls: type, path: tuple[str, ...]) -> bool:
    """Whether a path of array fields exists in a message class."""
    for name in path:
        found = [field for field in fields_of(cls) if field.name == name and field.is_array]
        if not found:
            return False
        if found[0].struct is not None:
            cls = found[0].struct
    return True


@pytest.mark.parametrize("key", SPLITS, ids=lambda key: ApiKey(key).name.lower())
def test_every_split_names_arrays_that_exist(key: ApiKey) -> None:
    load_handlers()
    assert key in APIS
    assert all(_names(REQUESTS[key], path) for path in SPLITS[key].requests)
    assert all(_names(RESPONSES[key], path) for path in SPLITS[key].responses)


def _answer(request: OffsetFetchRequest) -> OffsetFetchResponse:
    """What a handler would say that answers each partition by itself."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=number, committed_offset=number, metadata="", error_code=0
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics
                ],
                error_code=0,
            )
            for group in request.groups
        ]
    )


@pytest.mark.parametrize("seed", range(50))
def test_the_joined_answers_to_the_pieces_are_the_answer_to_the_whole(seed: int) -> None:
    rng = Random(seed)
    split = Split(
        requests=(("groups", "topics", "partition_indexes"),), responses=(("groups", "topics", "partitions"),)
    )
    piece = rng.choice([1, 2, 3, 7, 50])
    object.__setattr__(split, "inline_max", 4 * piece)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=f"g{rng.randrange(2)}",
                topics=[
                    OffsetFetchRequestTopics(
                        name=f"t{rng.randrange(2)}", partition_indexes=list(range(rng.choice([0, 1, 2, 9, 30])))
                    )
                    for _ in range(rng.randrange(5))
                ],
            )
            for _ in range(rng.randrange(1, 5))
        ]
    )
    joined, pieces = JoinedResponse(split), list(cut(request, split))
    for part, depth in pieces:
        assert sum(len(topic.partition_indexes) for group in part.groups for topic in group.topics) <= piece
        joined.add(_answer(part), depth)
    if pieces:
        assert joined.result() == _answer(request)


def test_an_answer_that_fails_as_a_whole_is_the_answer() -> None:
    joined = JoinedResponse(SPLITS[ApiKey.OFFSET_FETCH])
    joined.add(OffsetFetchResponse(groups=[]), 0)
    failed = OffsetFetchResponse(groups=[], error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    joined.add(failed, 0)
    assert joined.result() is failed


def test_pieces_ask_for_the_same_as_the_whole() -> None:
    names = [f"topic-{number}" for number in range(1000)]
    request = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
    pieces: list[Any] = [part for part, _ in cut(request, SPLITS[ApiKey.DESCRIBE_GROUPS])]
    assert [name for part in pieces for name in part.groups] == names
    assert all(part.include_authorized_operations for part in pieces)
    assert max(len(part.groups) for part in pieces) <= SPLITS[ApiKey.DESCRIBE_GROUPS].piece


def test_duplicates_are_dropped_where_the_response_may_be_large() -> None:
    described = without_duplicates(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["a", "b", "a"]))
    assert described.groups == ["a", "b"]
    some = OffsetFetchRequestGroup(group_id="a", topics=[])
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in "aba"]
    fetched = without_duplicates(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[some, *groups, some]))
    assert fetched.groups == [some, groups[0], groups[1], some]
    produced = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    assert without_duplicates(ApiKey.PRODUCE, produced) is produced


def test_topics_without_partitions_are_cut_too() -> None:
    topics = [TopicProduceData(name="", partition_data=[])] * 5000
    topics.append(TopicProduceData(name="x", partition_data=[PartitionProduceData(index=0, records=None)]))
    pieces = [part for part, _ in cut(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), SPLITS[0])]
    assert sum(len(part.topic_data) for part in pieces) == len(topics)
    assert max(len(part.topic_data) for part in pieces) <= SPLITS[0].piece
