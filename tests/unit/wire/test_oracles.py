"""Random messages between our codec and two codecs of other projects, both ways."""

from random import Random
from typing import Any, Final

import pytest

from penstock.wire.codec import decode, encode_bytes
from penstock.wire.schema import message_of

from .catalogue import MESSAGES, VERSIONED, label
from .oracles import ORACLES, Oracle
from .values import random_instance

SEED: Final = 20_260_115
"""Any will do; a failure prints it with the version and the number of the example."""
EXAMPLES: Final = 6
NOT_IN_KAFKA_PYTHON: Final = {
    "ConsumerGroupDescribe": (0, 1),
    "ConsumerGroupHeartbeat": (0, 1),
    "ShareGroupHeartbeat": (1,),
    "ShareGroupDescribe": (1,),
    "ShareFetch": (1, 2),
    "ShareAcknowledge": (1, 2),
    "DescribeShareGroupOffsets": (0, 1),
    "AlterShareGroupOffsets": (0,),
    "DeleteShareGroupOffsets": (0,),
    "CreateDelegationToken": (1, 2, 3),
    "RenewDelegationToken": (1, 2),
    "ExpireDelegationToken": (1, 2),
    "DescribeDelegationToken": (1, 2, 3),
    "UnregisterBroker": (0,),
    "GetTelemetrySubscriptions": (0,),
    "PushTelemetry": (0,),
}
OF_KAFKA_4_4: Final = {
    "ApiVersions": (5,),
    "DeleteGroups": (3,),
    "StreamsGroupDescribe": (0, 1),
    "StreamsGroupHeartbeat": (0, 1),
    "TxnOffsetCommit": (6,),
}
IN_KIO: Final = {("StreamsGroupDescribe", 0), ("StreamsGroupHeartbeat", 0)}
KNOWN_GAPS: Final = [
    f"{oracle}: {api}{kind} v{version}"
    for oracle, table in (
        ("kafka-python", NOT_IN_KAFKA_PYTHON | OF_KAFKA_4_4),
        (
            "kio",
            {
                api: tuple(version for version in versions if (api, version) not in IN_KIO)
                for api, versions in OF_KAFKA_4_4.items()
            },
        ),
    )
    for api, versions in table.items()
    for kind in ("Request", "Response")
    for version in versions
]
"""Versions that one of them does not know; the other, and the golden files, must do there."""
OUR_OWN: Final = [
    f"{oracle}: {api}{kind} v0"
    for oracle in ("kio", "kafka-python")
    for api in (
        "CommitSet",
        "DelayedMessages",
        "RestoreState",
        "QueueClaim",
        "QueuePeek",
        "QueueControl",
        "QueueDeliver",
        "QueueReceive",
        "QueueSend",
        "RegistryCall",
        "KnownSchemaIds",
        "CreateAccessKey",
        "AlterAccessKeys",
        "DescribeAccessKeys",
        "QueueAcknowledge",
        "ShareState",
    )
    for kind in ("Request", "Response")
]
"""What is no part of Kafka, and known to neither: its golden bytes are of our plain encoder, and were read by eye."""


def examples(cls: type, version: int) -> list[tuple[str, Any]]:
    seeds = [f"{SEED} {cls.__name__} {version} {number}" for number in range(EXAMPLES)]
    return [(seed, random_instance(cls, version, Random(seed))) for seed in seeds]


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
@pytest.mark.parametrize("cls", MESSAGES, ids=label)
def test_other_codecs_and_ours_read_each_other(cls: type, oracle: Oracle) -> None:
    known = [version for version in message_of(cls).versions if oracle.has(cls, version)]
    if not known:
        pytest.skip(f"{oracle.name} does not know {cls.__name__}")
    for version in known:
        for seed, message in examples(cls, version):
            theirs = oracle.encode(message, version)
            ours = encode_bytes(message, version)
            assert decode(cls, version, theirs) == message, f"seed={seed!r}"
            assert oracle.decode(cls, version, ours) == message, f"seed={seed!r}"
            assert ours == theirs, f"seed={seed!r}"


def test_the_oracles_know_every_message_of_kafka_in_every_version() -> None:
    unknown = [
        f"{oracle.name}: {cls.__name__} v{version}"
        for oracle in ORACLES
        for cls, version in VERSIONED
        if not oracle.has(cls, version)
    ]
    assert sorted(unknown) == sorted(KNOWN_GAPS + OUR_OWN)
