"""What the harness asks of coordinators: are they there, and how much have they written down?"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from bench.blocking_client import TIMEOUT_S, BlockingClient, WrongAnswer
from bench.broker import KafkaBroker
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

GROUPS: Final = 0
TRANSACTIONS: Final = 1
"""What FindCoordinator looks for."""
TOPICS: Final = {GROUPS: "__consumer_offsets", TRANSACTIONS: "__transaction_state"}
NOT_YET: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Said while the internal topic is being made and read."""
RETRY_S: Final = 0.05


def make_ready(broker: KafkaBroker, kind: int) -> int:
    """Have the internal topic made, and wait until its partitions are led. How many there are."""
    topic = TOPICS[kind]
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    give_up_s = time.monotonic() + TIMEOUT_S
    with BlockingClient(broker.port) as client:
        while time.monotonic() < give_up_s:
            client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=["bench"]), 4)
            (found,) = client.call(wanted, 9).topics
            with suppress(WrongAnswer):  # a leader may be known before it knows itself
                if found.partitions:
                    client.end_offsets(topic, len(found.partitions))
                    return len(found.partitions)
            time.sleep(RETRY_S)
    raise WrongAnswer(f"{broker.name}: {topic} is not there after {TIMEOUT_S:g} s")


def check_alike(kind: int, *brokers: KafkaBroker) -> str:
    """A note on the internal topic. Raises WrongAnswer where one broker has more partitions of it than another."""
    counts = {broker.name: make_ready(broker, kind) for broker in brokers}
    if len(set(counts.values())) != 1:
        raise WrongAnswer(f"{TOPICS[kind]} has not the same number of partitions everywhere: {counts}")
    return f"`{TOPICS[kind]}` has {next(iter(counts.values()))} partitions and one replica on both sides."


def records_kept(broker: KafkaBroker, kind: int) -> int:
    """Offsets that were given in the internal topic so far, in all its partitions."""
    partitions = make_ready(broker, kind)
    with BlockingClient(broker.port) as client:
        return sum(client.end_offsets(TOPICS[kind], partitions))


def ask_group(client: BlockingClient, request: Any, version: int) -> Any:
    """Ask a group's coordinator, again and again while it is not ready. Other errors are the caller's to read."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_s:
        response = client.call(request, version)
        if response.error_code not in NOT_YET:
            return response
        time.sleep(RETRY_S)
    raise WrongAnswer(f"{type(request).__name__}: error {response.error_code} for {TIMEOUT_S:g} s")


def committed_offsets(client: BlockingClient, group: str, topic: str, partitions: Sequence[int]) -> list[int]:
    """Where a group is; -1 where it has said nothing. Waits until its coordinator is ready."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
    give_up_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_s:
        (found,) = client.call(request, 8).groups
        if not found.error_code:
            rows = {row.partition_index: row for row in found.topics[0].partitions}
            return [rows[number].committed_offset for number in partitions]
        if found.error_code not in NOT_YET:
            break
        time.sleep(RETRY_S)
    raise WrongAnswer(f"the offsets of group {group} cannot be read: error {found.error_code}")


def delete_groups(client: BlockingClient, groups: Sequence[str]) -> None:
    """Those whose last member is just leaving are tried again."""
    give_up_s = time.monotonic() + TIMEOUT_S
    left = list(groups)
    while left:
        answer = client.call(DeleteGroupsRequest(groups_names=left), 2)
        failed = {row.group_id: row.error_code for row in answer.results if row.error_code}
        if set(failed.values()) - {ErrorCode.NON_EMPTY_GROUP} or (failed and time.monotonic() > give_up_s):
            raise WrongAnswer(f"groups cannot be deleted: {failed}")
        left = list(failed)
        if left:
            time.sleep(RETRY_S)
