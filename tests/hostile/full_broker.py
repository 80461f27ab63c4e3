"""A broker with many partitions, topics, groups, transactional ids, producer ids and queues."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.brokers import BrokerProcess
from tests.clients.raw import PRODUCE_VERSION, RawClient, batch_of, produce_request

from .raw_http import call, exchange

WIDE = "wide"
"""A topic with all the partitions, and the group that has committed offsets in each of them."""
PIPELINED = 100
QUEUES_SHARE = 5
"""There is one queue for so many of everything else: each has several logs."""
WAIT_S = 240.0


@dataclass(frozen=True)
class FullBroker:
    process: BrokerProcess
    count: int

    @property
    def topics(self) -> list[str]:
        return [f"topic-{number:05}" for number in range(self.count)]

    @property
    def groups(self) -> list[str]:
        return [f"group-{number:05}" for number in range(self.count)]

    @property
    def transactional_ids(self) -> list[str]:
        return [f"transactional-{number:05}" for number in range(self.count)]

    @property
    def queues(self) -> list[str]:
        return [f"queue-{number:05}" for number in range(self.count // QUEUES_SHARE)]

    def connect(self) -> RawClient:
        raw = RawClient(self.process.address)
        raw.socket.settimeout(WAIT_S)
        return raw

    # -- filling it

    def add_partitions(self) -> None:
        with self.connect() as raw:
            answer = raw.ask(CreateTopicsRequest(topics=[new_topic(WIDE, self.count)], timeout_ms=240_000), 7)
            assert answer.topics[0].error_code == 0, answer

    def add_topics(self) -> None:
        wanted = [new_topic(name, 1) for name in self.topics]
        with self.connect() as raw:
            answer = raw.ask(CreateTopicsRequest(topics=wanted, timeout_ms=240_000), 7)
            assert {topic.error_code for topic in answer.topics} == {0}

    def add_groups(self) -> None:
        with self.connect() as raw:
            find_coordinator(raw, WIDE, 0)
            ask_all(raw, [(commit(group, {WIDE: range(1)}), 8) for group in self.groups])

    def add_offsets(self) -> None:
        with self.connect() as raw:
            find_coordinator(raw, WIDE, 0)
            ask_all(raw, [(commit(WIDE, {WIDE: range(self.count)}), 8)])

    def add_transactional_ids(self) -> None:
        with self.connect() as raw:
            find_coordinator(raw, WIDE, 1)
            wanted = [
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
                for name in self.transactional_ids
            ]
            answers = ask_all(raw, [(request, 4) for request in wanted])
            assert {answer.error_code for answer in answers} == {0}

    def add_producer_ids(self) -> None:
        """All of them write to the first partition of `WIDE`."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        with self.connect() as raw:
            ids = [answer.producer_id for answer in ask_all(raw, [(request, 4)] * self.count)]
            batches = (batch_of([b"x"], producer_id=found, producer_epoch=0, base_sequence=0) for found in ids)
            answers = ask_all(raw, ((produce_request(WIDE, batch), PRODUCE_VERSION) for batch in batches))
            assert {answer.responses[0].partition_responses[0].error_code for answer in answers} == {0}

    def add_queues(self) -> None:
        calls = [call("CreateQueue", {"QueueName": name}) for name in self.queues]
        for start in range(0, len(calls), 20):
            batch = calls[start : start + 20]
            assert {answer.status for answer in exchange(self.process.http, b"".join(batch), len(batch))} == {200}


def new_topic(name: str, partitions: int) -> CreatableTopic:
    """A topic as CreateTopics asks for it."""
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])


def find_coordinator(raw: RawClient, key: str, kind: int) -> None:
    """Has the coordinators' internal topic created, and waits for its leader."""
    for _ in range(1000):
        if not raw.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4).coordinators[0].error_code:
            return
    raise AssertionError("there is no coordinator")


def commit(group: str, numbers: dict[str, range]) -> OffsetCommitRequest:
    """Commits offset 0 of partitions."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=number, committed_offset=0, committed_metadata="")
                for number in wanted
            ],
        )
        for name, wanted in numbers.items()
    ]
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def ask_all(raw: RawClient, requests: Iterable[tuple[Any, int]]) -> list[Any]:
    """Asks one after another, without waiting for each answer."""
    answers = []
    under_way = 0
    for request, version in requests:
        raw.send(request, version)
        under_way += 1
        if under_way == PIPELINED:
            answers.append(raw.receive())
            under_way -= 1
    return answers + [raw.receive() for _ in range(under_way)]
