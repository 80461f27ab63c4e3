"""Subscription and assignment of the classic consumer protocol, which the coordinator parses (KIP-848).

The coordinator uses these schemas to describe groups, and for classic members of consumer groups. The encoded form
starts with a two-byte version, as in the records of internal topics (see state.py).
"""

from penstock.wire.schema import Array, Bytes, Int32, String, field, record, struct


@struct
class AssignedTopic:
    topic: String
    partitions: Array[Int32]


@record(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    topics: Array[String]
    user_data: Bytes | None
    owned_partitions: Array[AssignedTopic] = field("1+", default=())
    generation_id: Int32 = field("2+", default=-1)
    rack_id: String | None = field("3+", default=None)


@record(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    assigned_partitions: Array[AssignedTopic]
    user_data: Bytes | None
