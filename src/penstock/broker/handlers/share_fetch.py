"""ShareFetch: acknowledge what is done, and acquire what others do not have, now or when there is some (KIP-932)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.partition import Ranges
from penstock.broker.registry import handles
from penstock.broker.share.partition import (
    NOTHING_READ,
    Read,
    SharePartition,
    ShareWaiter,
    acquired_records,
    undo,
    warm,
)
from penstock.broker.share.responses import (
    Acknowledged,
    acknowledge_all,
    code_of,
    endpoints,
    key_of,
    leader_of,
    release,
)
from penstock.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, SessionKey, ShareSession
from penstock.broker.sliced_answers import INLINE_ELEMENTS, in_turns, paced
from penstock.foundation.errors import InvalidRequest, OffsetNotAvailable, PenstockError
from penstock.foundation.steps import Steps, run_steps
from penstock.foundation.time_slices import SLICE_S
from penstock.log.disk import ColdRead
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT: Final = 1
"""The acquire mode in which no more records come than were asked for (KIP-1206)."""
LOOK_S: Final = 0.1
"""How soon a partition is looked at again that is being taken over."""


@handles(ApiKey.SHARE_FETCH)
def share_fetch(request: ShareFetchRequest, call: Call, broker: Broker) -> ShareFetchResponse | None:
    try:
        key = key_of(request.group_id, request.member_id)
        session = _session(request, key, call, broker)
    except PenstockError as error:
        return _refused(error)
    _Fetching(request, key, session, call, broker).begin()
    return None


def _session(request: ShareFetchRequest, key: SessionKey, call: Call, broker: Broker) -> ShareSession:
    """Raises InvalidRequest, and whatever stands against going on with a session."""
    named = [(topic.topic_id, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    forgotten = [(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions]
    sizes = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(sizes):
        raise InvalidRequest("whoever renews fetches nothing: max wait, bytes and records have to be 0 (KIP-1222)")
    sessions, epoch = broker.share_sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if _acknowledged(request):
            raise InvalidRequest("a share session cannot begin with acknowledgements")
        sessions.limit = broker.configs["group.share.max.share.sessions"]
        return sessions.open(key, call.peer, named, partial(release, broker, is_undone=False))
    if epoch == FINAL_EPOCH:
        return sessions.find(key)
    return sessions.go_on(key, epoch, named, forgotten)


def _acknowledged(request: ShareFetchRequest) -> Acknowledged:
    return {
        (topic.topic_id, entry.partition_index): entry.acknowledgement_batches
        for topic in request.topics
        for entry in topic.partitions
        if entry.acknowledgement_batches
    }


def _refused(error: PenstockError) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


@dataclass(slots=True)
class _Answer:
    """What is said about one partition."""

    error: PenstockError | None = None
    acknowledge_error: PenstockError | None = None
    ranges: Ranges = ()
    read: Read = NOTHING_READ


class _Fetching:
    """One request: first what it acknowledges, then what it wants."""

    def __init__(
        self, request: ShareFetchRequest, key: SessionKey, session: ShareSession, call: Call, broker: Broker
    ) -> None:
        self._request = request
        self._key = key
        self._session = session
        self._call = call
        self._broker = broker
        self._answers: dict[Place, _Answer] = {}
        self._left: list[Place] = []
        self._unready = False
        """Whether a partition is led here, and not ready yet."""
        self._records_left = max(0, request.max_records)
        self._bytes_left = min(max(0, request.max_bytes), broker.configs["fetch.max.bytes"])
        self._is_asking = self._is_looping = False
        self._is_over = self._is_late = False
        self._parked: list[tuple[SharePartition, ShareWaiter]] = []
        self._stop_timer: Callable[[], None] = _nothing
        self._stop_look: Callable[[], None] = _nothing
        self._stop_turn: Callable[[], None] = _nothing

    # -- acknowledging

    def begin(self) -> None:
        self._call.on_gone = self._gone
        acknowledge_all(
            self._broker,
            self._key,
            _acknowledged(self._request),
            version=self._call.version,
            is_renew=self._request.is_renew_ack,
            then=self._on_acknowledged,
        )

    def _on_acknowledged(self, outcome: dict[Place, PenstockError | None]) -> None:
        for place, error in outcome.items():
            self._answer(place).acknowledge_error = error
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH:
            # If its connection broke meanwhile, all was released then, and the member may have begun anew.
            if self._broker.share_sessions.end(self._session):
                release(self._broker, self._session, is_undone=True)
            self._respond()
        elif request.is_renew_ack or self._records_left == 0:
            self._respond()
        else:
            if request.max_wait_ms > 0:
                self._stop_timer = self._broker.timer(request.max_wait_ms / 1000, self._time_is_up)
            self._is_late = request.max_wait_ms <= 0
            self._look()

    def _answer(self, place: Place) -> _Answer:
        return self._answers.setdefault(place, _Answer())

    # -- acquiring

    def _look(self) -> None:
        """Ask one partition after the other, until there is enough."""
        self._left = self._session.in_turn()[::-1]
        self._unready = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_looping:
            return
        self._is_looping = True
        now_s = self._broker.clock.monotonic_s
        until_s = now_s() + SLICE_S
        while self._wants_more and not self._is_over:
            self._is_asking = True
            self._ask(self._left.pop())
            if self._is_asking or now_s() >= until_s:
                break  # it will be told later, or others have their turn
        self._is_looping = False
        if self._is_asking or self._is_over:
            return
        if self._wants_more:
            self._stop_turn = self._broker.timer(0, self._go_on)
        else:
            self._end_look()

    @property
    def _wants_more(self) -> bool:
        return bool(self._left) and self._records_left > 0 and self._bytes_left > 0

    def _ask(self, place: Place) -> None:
        key, request = self._key, self._request
        try:
            found = SharePartition.find(self._broker, key.group_id, place)
            found.begin(key.group_id, self._broker.clock.now_ms())
        except ColdRead as cold:
            warm(self._broker, cold, lambda: self._ask(place), partial(self._refuse, place))
            return
        except OffsetNotAvailable:
            self._unready = True  # a new leader is still counting
            self._go_on_later()
            return
        except PenstockError as error:
            self._refuse(place, error)
            return
        self._unready |= not found.is_ready(key.group_id)
        is_strict = request.share_acquire_mode == RECORD_LIMIT
        receive_request = found.receive_request(
            key.group_id, key.member_id, self._records_left, self._bytes_left, is_strict
        )
        found.acquire(receive_request, partial(self._on_acquired, place, found))

    def _on_acquired(self, place: Place, found: SharePartition, reply: Ranges | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            self._refuse(place, reply)
            return
        if self._is_over and found.delivery is not None:
            undo(found.delivery, self._key.group_id, self._key.member_id, reply)
            return
        try:
            read = found.read(reply)
        except ColdRead as cold:
            go_on = partial(self._on_acquired, place, found, reply)
            warm(self._broker, cold, go_on, partial(self._give_up, place, found, reply))
            return
        except PenstockError as error:
            self._give_up(place, found, reply, error)
            return
        if reply:
            answer = self._answer(place)
            answer.ranges, answer.read = reply, read
            self._records_left -= sum(one.last - one.first + 1 for one in reply)
            self._bytes_left -= sum(map(len, read.pieces))
        self._go_on_later()

    def _give_up(self, place: Place, found: SharePartition, ranges: Ranges, error: PenstockError) -> None:
        """What was acquired cannot be read."""
        if found.delivery is not None:
            undo(found.delivery, self._key.group_id, self._key.member_id, ranges)
        self._refuse(place, error)

    def _refuse(self, place: Place, error: PenstockError) -> None:
        self._answer(place).error = error
        self._go_on_later()

    def _go_on_later(self) -> None:
        """What was asked for is there: at once, within the loop, or later."""
        self._is_asking = False
        self._go_on()

    def _end_look(self) -> None:
        has_news = any(answer.ranges or answer.error for answer in self._answers.values())
        if has_news or self._is_late:
            self._respond()
        else:
            self._wait()

    # -- waiting

    def _wait(self) -> None:
        """At all partitions at once: the first that has something gives it."""
        if self._unready:
            self._stop_look = self._broker.timer(LOOK_S, self._look_again)
        waiters: dict[bytes, ShareWaiter] = {}
        self._stop_turn = in_turns(
            self._broker, list(self._session.partitions), partial(self._wait_at, waiters=waiters)
        )

    def _wait_at(self, place: Place, waiters: dict[bytes, ShareWaiter]) -> None:
        """Wait at one partition, which looks whether something came since it was asked."""
        if self._is_over:
            return
        key = self._key
        try:
            found = SharePartition.find(self._broker, key.group_id, place)
        except PenstockError as error:
            self._answer(place).error = error
            self._stop_waiting()
            self._respond()
            return
        if not found.is_ready(key.group_id):
            return
        waiter = waiters.get(place[0])
        if waiter is None:
            is_strict = self._request.share_acquire_mode == RECORD_LIMIT
            receive_request = found.receive_request(
                key.group_id, key.member_id, self._records_left, self._bytes_left, is_strict
            )
            waiter = waiters[place[0]] = ShareWaiter(receive_request)
            waiter.take = partial(self._on_found, place[0], waiter)
        self._parked.append((found, waiter))
        if found.delivery is not None:
            found.delivery.park(waiter)

    def _on_found(self, topic_id: bytes, waiter: ShareWaiter, ranges: Ranges) -> None:
        at = waiter.at
        found = next(found for found, _ in self._parked if found.delivery is at)
        self._stop_waiting()
        self._left, self._is_asking = [], True
        self._on_acquired((topic_id, found.partition.name.partition), found, ranges)

    def _look_again(self) -> None:
        self._stop_waiting()
        self._look()

    def _time_is_up(self) -> None:
        self._is_late = True
        if not self._is_asking:
            self._stop_waiting()
            self._respond()

    def _stop_waiting(self) -> None:
        self._stop_look()
        self._stop_turn()
        parked, self._parked = self._parked, []
        for waiter in {waiter for _, waiter in parked}:
            waiter.is_open = False  # nothing is given to it from now on
        in_turns(self._broker, parked, _leave)

    def _gone(self) -> None:
        self._is_over = True
        self._stop_waiting()
        self._stop_timer()
        self._stop_turn()
        queue_partitions = self._broker.queue_partitions
        for (topic_id, number), answer in self._answers.items():
            delivery = (
                queue_partitions.find(topic_id, number) if queue_partitions is not None and answer.ranges else None
            )
            if delivery is not None:
                undo(delivery, self._key.group_id, self._key.member_id, answer.ranges)

    # -- answering

    def _respond(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._stop_timer()
        if len(self._answers) <= INLINE_ELEMENTS:
            self._call.answer(run_steps(self._response()))
        else:
            self._broker.run(self._broker.slices.run(self._response()), self._call.answer)

    def _response(self) -> Steps[ShareFetchResponse]:
        topics: dict[bytes, list[PartitionData]] = {}
        leaders = []
        for known in paced(self._answers.items()):
            if known is None:
                yield
                continue
            place, answer = known
            leader, epoch = leader_of(self._broker, place, answer.error or answer.acknowledge_error)
            leaders.append(leader)
            topics.setdefault(place[0], []).append(self._partition(place[1], answer, leader, epoch))
        return ShareFetchResponse(
            throttle_time_ms=0,
            error_code=0,
            acquisition_lock_timeout_ms=self._broker.share_terms.lock_ms(self._key.group_id),
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[
                NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack in endpoints(self._broker, leaders)
            ],
        )

    def _partition(self, number: int, answer: _Answer, leader: int, epoch: int) -> PartitionData:
        error, refused = answer.error, answer.acknowledge_error
        return PartitionData(
            partition_index=number,
            error_code=code_of(error),
            error_message=error.message if error else None,
            acknowledge_error_code=code_of(refused),
            acknowledge_error_message=refused.message if refused else None,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            records=answer.read.records,
            acquired_records=acquired_records(answer.ranges, answer.read.ends, self._request.batch_size),
        )


def _leave(parked: tuple[SharePartition, ShareWaiter]) -> None:
    found, waiter = parked
    if found.delivery is not None:
        found.delivery.unpark(waiter)


def _nothing() -> None:
    """There is nothing to stop."""
