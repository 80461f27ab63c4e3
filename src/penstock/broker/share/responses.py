"""What ShareFetch and ShareAcknowledge have in common: who asks, what was acknowledged, and who leads (KIP-932)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.share.partition import SharePartition, check_acknowledged
from penstock.broker.share.sessions import Place, SessionKey, ShareSession
from penstock.broker.sliced_answers import in_turns
from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.groups.errors import InvalidGroupId
from penstock.wire.messages.share_acknowledge import AcknowledgementBatch as AcknowledgeBatch
from penstock.wire.messages.share_fetch import AcknowledgementBatch as FetchBatch

MEMBER_ID_CHARS_MAX: Final = 36
"""Members name themselves, by a UUID (KIP-1082)."""
NO_EPOCH: Final = -1
_KNOWN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUEST,
    )
)
"""What members expect to be told about a partition; by anything else they are taken aback."""
_LOOK_AGAIN: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)

Acknowledged = Mapping[Place, Sequence[FetchBatch | AcknowledgeBatch]]


def key_of(group_id: str | None, member_id: str | None) -> SessionKey:
    """Whose session is meant. Raises InvalidGroupId or InvalidRequest."""
    if not group_id:
        raise InvalidGroupId("a share group needs an id; it is empty")
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise InvalidRequest(f"a member's id has 1 to {MEMBER_ID_CHARS_MAX} characters; this one: {member_id!r}")
    return SessionKey(group_id, member_id)


def acknowledge_all(
    broker: Broker,
    key: SessionKey,
    acknowledged: Acknowledged,
    *,
    version: int,
    is_renew: bool,
    then: Callable[[dict[Place, PenstockError | None]], None],
) -> None:
    """Acknowledge at all partitions; what went wrong at each, when all have said."""
    outcome: dict[Place, PenstockError | None] = {}
    missing = len(acknowledged)
    if not missing:
        then(outcome)
        return

    def take(place: Place, error: PenstockError | None) -> None:
        nonlocal missing
        outcome[place] = error
        missing -= 1
        if not missing:
            then(outcome)

    def acknowledge(place: Place) -> None:
        batches = acknowledged[place]
        try:
            check_acknowledged(batches, version=version, is_renew=is_renew)
            found = SharePartition.find(broker, key.group_id, place)
        except PenstockError as error:
            take(place, error)
        else:
            found.acknowledge(key.group_id, key.member_id, batches, partial(take, place))

    in_turns(broker, list(acknowledged), acknowledge)


def release(broker: Broker, session: ShareSession, *, is_undone: bool) -> None:
    """A session is over: what its member has in hand goes to others.

    What a member gives back when it closes it has not begun with. One that is suddenly gone may have died of it: such
    a delivery counts, so that a message that kills whoever gets it goes to the dead letters in the end.
    """
    key = session.key

    def give_back(place: Place) -> None:
        try:
            found = SharePartition.find(broker, key.group_id, place)
        except PenstockError:
            return  # another broker has it: the deadlines pass there
        found.give_back(key.group_id, key.member_id, is_undone=is_undone)

    in_turns(broker, list(session.partitions), give_back)


def code_of(error: PenstockError | None) -> ErrorCode:
    """How an error is said to a member: where delivery state is being taken over, it looks for the leader again."""
    if error is None:
        return ErrorCode.NONE
    if error.code in _LOOK_AGAIN:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code if error.code in _KNOWN else ErrorCode.UNKNOWN_SERVER_ERROR


def leader_of(broker: Broker, place: Place, error: PenstockError | None) -> tuple[int, int]:
    """Who leads a partition, and since which epoch, where whoever asked had better ask there."""
    topic_id, number = place
    topic = broker.image.topics.get(topic_id)
    state = topic.partitions.get(number) if topic is not None else None
    if code_of(error) != ErrorCode.NOT_LEADER_OR_FOLLOWER or state is None:
        return NO_LEADER, NO_EPOCH
    return state.leader, state.leader_epoch


def endpoints(broker: Broker, leaders: Iterable[int]) -> list[tuple[int, str, int, str | None]]:
    """Node, host, port and rack of leaders that were named."""
    known = broker.image.brokers
    found = [known[node] for node in sorted(set(leaders)) if node in known]
    return [(each.node_id, each.host, each.port, each.rack or None) for each in found]
