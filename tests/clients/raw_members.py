"""Group members and producers by raw frames: they also send what no library would."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.foundation.codes import ErrorCode
from penstock.wire.codec import encode_bytes
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .raw import PRODUCE_VERSION, RawClient, batch_of
from .waiting import wait_until

GROUP: Final = 0
TRANSACTION: Final = 1
JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
COMMIT_VERSION: Final = 9
EPOCH_MOVES: Final = 5
"""EndTxn and TxnOffsetCommit from this version on are of KIP-890: the epoch moves with every transaction."""


def find_coordinator(raw: RawClient, key: str, kind: int = GROUP) -> None:
    """Returns when the coordinator of a group or a transactional id is there and has read back what it knows."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    wait_until(lambda: raw.ask(request, 6).coordinators[0].error_code == ErrorCode.NONE, f"the coordinator of {key}")
    everything = (
        ListGroupsRequest() if kind == GROUP else ListTransactionsRequest(state_filters=(), producer_id_filters=())
    )
    version = 5 if kind == GROUP else 1
    wait_until(lambda: raw.ask(everything, version).error_code == ErrorCode.NONE, "all is read back")


# -- groups


def join_request(
    group: str,
    topic: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
    protocol_type: str = "consumer",
    protocols: Sequence[str] = ("range",),
) -> JoinGroupRequest:
    subscription = ConsumerProtocolSubscription(topics=(topic,), user_data=None)
    metadata = bytes(2) + encode_bytes(subscription, 0)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
    )


def assignment_of(topic: str, partitions: Sequence[int]) -> bytes:
    given = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=topic, partitions=list(partitions))], user_data=None
    )
    return bytes(2) + encode_bytes(given, 0)


class RawMember:
    """A member of a classic group, on a connection of its own."""

    def __init__(self, address: tuple[str, int], group: str, topic: str, **options: Any) -> None:
        self.raw = RawClient(address)
        self.group = group
        self.topic = topic
        self.options = options
        self.member_id = ""
        self.generation = -1
        self.leads = False

    def __enter__(self) -> "RawMember":
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()

    @property
    def instance_id(self) -> str | None:
        return self.options.get("instance_id")

    def get_id(self) -> None:
        """The first of two JoinGroups: a member id is given out (KIP-394)."""
        answer = self.raw.ask(join_request(self.group, self.topic, **self.options), JOIN_VERSION)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
        self.member_id = answer.member_id

    def ask_to_join(self) -> None:
        if not self.member_id and self.instance_id is None:
            self.get_id()
        self.raw.send(join_request(self.group, self.topic, self.member_id, **self.options), JOIN_VERSION)

    def joined(self) -> JoinGroupResponse:
        """The answer to `ask_to_join`; it is remembered if it is good."""
        answer: JoinGroupResponse = self.raw.receive()
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id
        return answer

    def join(self) -> ErrorCode:
        self.ask_to_join()
        return ErrorCode(self.joined().error_code)

    def ask_to_sync(self, given: Mapping[str, bytes], **other: Any) -> None:
        request = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in given.items()
            ],
            **other,
        }
        self.raw.send(SyncGroupRequest(**request), SYNC_VERSION)

    def sync(self, given: Mapping[str, bytes] | None = None, **other: Any) -> ErrorCode:
        """Say what everyone gets, and hear it. Without `given`, all of one partition goes to itself."""
        self.ask_to_sync({self.member_id: assignment_of(self.topic, [0])} if given is None else given, **other)
        return ErrorCode(self.raw.receive().error_code)

    def heartbeat(self, **other: Any) -> ErrorCode:
        request = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            **other,
        }
        return ErrorCode(self.raw.ask(HeartbeatRequest(**request), 4).error_code)

    def commit(
        self,
        offset: int = 1,
        metadata: str | None = "",
        topic: str | None = None,
        version: int = COMMIT_VERSION,
        **other: Any,
    ) -> ErrorCode:
        entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
        request = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [OffsetCommitRequestTopic(name=topic or self.topic, partitions=[entry])],
            **other,
        }
        return ErrorCode(self.raw.ask(OffsetCommitRequest(**request), version).topics[0].partitions[0].error_code)

    def leave(self, **other: Any) -> ErrorCode:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance_id, **other}
        answer = self.raw.ask(LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(**identity)]), 5)
        return ErrorCode(answer.error_code or answer.members[0].error_code)


# -- transactions


class RawProducer:
    """A transactional producer. `version` is that of EndTxn: before 5, partitions are added by hand."""

    def __init__(self, raw: RawClient, transactional_id: str, *, version: int = 4, timeout_ms: int = 600_000) -> None:
        self.raw = raw
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, **other: Any) -> ErrorCode:
        find_coordinator(self.raw, self.transactional_id, TRANSACTION)
        request = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
            **other,
        }
        answer: InitProducerIdResponse = self.raw.ask(InitProducerIdRequest(**request), 5)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def add(self, topic: str, *partitions: int) -> dict[int, ErrorCode]:
        return self.add_topics({topic: partitions})[topic]

    def add_topics(self, topics: Mapping[str, Sequence[int]]) -> dict[str, dict[int, ErrorCode]]:
        answer = self.raw.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=list(numbers)) for name, numbers in topics.items()
                ],
            ),
            3,
        )
        return {
            topic.name: {
                one.partition_index: ErrorCode(one.partition_error_code) for one in topic.results_by_partition
            }
            for topic in answer.results_by_topic_v3_and_below
        }

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        batch = batch_of(
            values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self.raw.ask(request, 12 if self.version >= EPOCH_MOVES else PRODUCE_VERSION)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code == ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return code

    def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode(self.raw.ask(request, 4).error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, *, metadata: str = "", version: int | None = None, **member: Any
    ) -> ErrorCode:
        entry = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[entry])],
            **member,
        )
        answer = self.raw.ask(request, version or (5 if self.version >= EPOCH_MOVES else 4))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer: EndTxnResponse = self.raw.ask(request, self.version)
        if answer.error_code == ErrorCode.NONE and self.version >= EPOCH_MOVES:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def commit(self) -> ErrorCode:
        return self.end(True)

    def abort(self) -> ErrorCode:
        return self.end(False)
