"""ShareFetch: acknowledges messages, and acquires new messages when some are available (KIP-932)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import READ_GROUP
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
    answer_call,
    check_readable,
    error_response,
    leader_of,
    member_error_code,
    release,
    session_key,
)
from penstock.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession
from penstock.broker.sliced_answers import run_in_slices
from penstock.foundation.errors import InvalidRequest, OffsetNotAvailable, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.time_slices import SLICE_S
from penstock.log.disk import ColdRead
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT: Final = 1
"""Value of ShareAcquireMode with which max_records is a strict limit (KIP-1206)."""
NOT_READY_RETRY_S: Final = 0.1
"""Delay, in seconds, before a ShareFetch retries partitions whose delivery state was not loaded."""


@handles(ApiKey.SHARE_FETCH, READ_GROUP)
def share_fetch(request: ShareFetchRequest, call: Call, broker: Broker) -> ShareFetchResponse | None:
    try:
        key = session_key(request.group_id, request.member_id)
        session = _session(request, key, call, broker)
    except PenstockError as error:
        return error_response(ShareFetchResponse, error)
    _ShareFetch(request, key, session, call, broker).begin()
    return None


def _session(request: ShareFetchRequest, key: SessionKey, call: Call, broker: Broker) -> ShareSession:
    """Returns the member's new or resumed share session. Raises InvalidRequest or a share session error."""
    named = [
        TopicIdPartition(topic.topic_id, entry.partition_index)
        for topic in request.topics
        for entry in topic.partitions
    ]
    forgotten = [
        TopicIdPartition(topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    sizes = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(sizes):
        raise InvalidRequest("a request that renews must not fetch: max wait, bytes and records must be 0 (KIP-1222)")
    sessions, epoch = broker.share_sessions, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if _acknowledged(request):
            raise InvalidRequest("a share session cannot begin with acknowledgements")
        sessions.limit = broker.configs["group.share.max.share.sessions"]
        return sessions.open(key, call.peer, named, partial(release, broker, is_undone=False))
    if epoch == FINAL_EPOCH:
        return sessions.find(key)
    return sessions.resume(key, epoch, named, forgotten)


def _acknowledged(request: ShareFetchRequest) -> Acknowledged:
    return {
        TopicIdPartition(topic.topic_id, entry.partition_index): entry.acknowledgement_batches
        for topic in request.topics
        for entry in topic.partitions
        if entry.acknowledgement_batches
    }


@dataclass(slots=True)
class _Answer:
    """The result of a ShareFetch for one partition: errors, acquired ranges and record batches."""

    error: PenstockError | None = None
    acknowledge_error: PenstockError | None = None
    ranges: Ranges = ()
    read: Read = NOTHING_READ


class _ShareFetch:
    """One ShareFetch request: first acknowledges messages, then acquires messages."""

    def __init__(
        self, request: ShareFetchRequest, key: SessionKey, session: ShareSession, call: Call, broker: Broker
    ) -> None:
        self._request = request
        self._key = key
        self._session = session
        self._call = call
        self._broker = broker
        self._answers: dict[TopicIdPartition, _Answer] = {}
        self._remaining: list[TopicIdPartition] = []
        self._has_unready = False
        """Whether the delivery state of a requested partition led by this broker is not loaded yet."""
        self._records_left = max(0, request.max_records)
        self._bytes_left = min(max(0, request.max_bytes), broker.configs["fetch.max.bytes"])
        self._is_asking = self._is_looping = False
        self._is_finished = self._is_timed_out = False
        self._parked: list[tuple[SharePartition, ShareWaiter]] = []
        self._cancel_timer: Callable[[], None] = _noop
        self._cancel_retry: Callable[[], None] = _noop
        self._cancel_slice: Callable[[], None] = _noop

    # -- acknowledging

    def begin(self) -> None:
        self._call.on_disconnect = self._on_disconnect
        acknowledge_all(
            self._call,
            self._broker,
            self._key,
            _acknowledged(self._request),
            version=self._call.version,
            is_renew=self._request.is_renew_ack,
            then=self._on_acknowledged,
        )

    def _on_acknowledged(self, outcome: dict[TopicIdPartition, PenstockError | None]) -> None:
        for tp, error in outcome.items():
            self._answer(tp).acknowledge_error = error
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH:
            # If the connection closed meanwhile, all was released, and the member may have a new session.
            if self._broker.share_sessions.end(self._session):
                release(self._broker, self._session, is_undone=True)
            self._respond()
        elif request.is_renew_ack or self._records_left == 0:
            self._respond()
        else:
            if request.max_wait_ms > 0:
                self._cancel_timer = self._broker.timer(request.max_wait_ms / 1000, self._on_timeout)
            self._is_timed_out = request.max_wait_ms <= 0
            self._acquire_all()

    def _answer(self, tp: TopicIdPartition) -> _Answer:
        return self._answers.setdefault(tp, _Answer())

    # -- acquiring

    def _acquire_all(self) -> None:
        """Acquires messages from one partition after the other until the request's limits are reached."""
        self._remaining = self._session.rotated_partitions()[::-1]
        self._has_unready = False
        self._acquire_next()

    def _acquire_next(self) -> None:
        if self._is_looping:
            return
        self._is_looping = True
        now_s = self._broker.clock.monotonic_s
        until_s = now_s() + SLICE_S
        while self._wants_more and not self._is_finished:
            self._is_asking = True
            self._acquire(self._remaining.pop())
            if self._is_asking or now_s() >= until_s:
                break  # the reply comes later, or the time slice is over
        self._is_looping = False
        if self._is_asking or self._is_finished:
            return
        if self._wants_more:
            self._cancel_slice = self._broker.timer(0, self._acquire_next)
        else:
            self._finish_round()

    @property
    def _wants_more(self) -> bool:
        return bool(self._remaining) and self._records_left > 0 and self._bytes_left > 0

    def _acquire(self, tp: TopicIdPartition) -> None:
        key, request = self._key, self._request
        try:
            check_readable(self._call, self._broker, tp)
            found = SharePartition.find(self._broker, key.group_id, tp)
            found.initialize_group(key.group_id, self._broker.clock.now_ms())
        except ColdRead as cold:
            warm(self._broker, cold, lambda: self._acquire(tp), partial(self._fail, tp))
            return
        except OffsetNotAvailable:
            self._has_unready = True  # the high watermark of a new leader is not current yet
            self._on_partition_done()
            return
        except PenstockError as error:
            self._fail(tp, error)
            return
        self._has_unready |= not found.is_ready(key.group_id)
        is_strict = request.share_acquire_mode == RECORD_LIMIT
        receive_request = found.receive_request(
            key.group_id, key.member_id, self._records_left, self._bytes_left, is_strict
        )
        found.acquire(receive_request, partial(self._on_acquired, tp, found))

    def _on_acquired(self, tp: TopicIdPartition, found: SharePartition, reply: Ranges | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            self._fail(tp, reply)
            return
        if self._is_finished and found.delivery is not None:
            undo(found.delivery, self._key.group_id, self._key.member_id, reply)
            return
        try:
            check_readable(self._call, self._broker, tp)  # it may have waited
            read = found.read(reply)
        except ColdRead as cold:
            resume = partial(self._on_acquired, tp, found, reply)
            warm(self._broker, cold, resume, partial(self._undo_acquire, tp, found, reply))
            return
        except PenstockError as error:
            self._undo_acquire(tp, found, reply, error)
            return
        if reply:
            answer = self._answer(tp)
            answer.ranges, answer.read = reply, read
            self._records_left -= sum(one.last - one.first + 1 for one in reply)
            self._bytes_left -= sum(map(len, read.pieces))
        self._on_partition_done()

    def _undo_acquire(
        self, tp: TopicIdPartition, found: SharePartition, ranges: Ranges, error: PenstockError
    ) -> None:
        """Releases acquired messages that could not be read from the log."""
        if found.delivery is not None:
            undo(found.delivery, self._key.group_id, self._key.member_id, ranges)
        self._fail(tp, error)

    def _fail(self, tp: TopicIdPartition, error: PenstockError) -> None:
        self._answer(tp).error = error
        self._on_partition_done()

    def _on_partition_done(self) -> None:
        """Continues with the next partition; may be called from inside `_acquire_next`."""
        self._is_asking = False
        self._acquire_next()

    def _finish_round(self) -> None:
        has_news = any(answer.ranges or answer.error for answer in self._answers.values())
        if has_news or self._is_timed_out:
            self._respond()
        else:
            self._wait()

    # -- waiting

    def _wait(self) -> None:
        """Waits at all partitions at the same time; the first partition that gets messages answers the request."""
        if self._has_unready:
            self._cancel_retry = self._broker.timer(NOT_READY_RETRY_S, self._retry)
        waiters: dict[bytes, ShareWaiter] = {}
        self._cancel_slice = run_in_slices(
            self._broker, list(self._session.partitions), partial(self._wait_at, waiters=waiters)
        )

    def _wait_at(self, tp: TopicIdPartition, waiters: dict[bytes, ShareWaiter]) -> None:
        """Waits at one partition, after checking for messages that arrived since the partition was last read."""
        if self._is_finished:
            return
        key = self._key
        try:
            found = SharePartition.find(self._broker, key.group_id, tp)
        except PenstockError as error:
            self._answer(tp).error = error
            self._unpark_all()
            self._respond()
            return
        if not found.is_ready(key.group_id):
            return
        waiter = waiters.get(tp[0])
        if waiter is None:
            is_strict = self._request.share_acquire_mode == RECORD_LIMIT
            receive_request = found.receive_request(
                key.group_id, key.member_id, self._records_left, self._bytes_left, is_strict
            )
            waiter = waiters[tp[0]] = ShareWaiter(receive_request)
            waiter.take = partial(self._on_found, tp[0], waiter)
        self._parked.append((found, waiter))
        if found.delivery is not None:
            found.delivery.park(waiter)

    def _on_found(self, topic_id: bytes, waiter: ShareWaiter, ranges: Ranges) -> None:
        at = waiter.at
        found = next(found for found, _ in self._parked if found.delivery is at)
        self._unpark_all()
        self._remaining, self._is_asking = [], True
        self._on_acquired(TopicIdPartition(topic_id, found.partition.name.partition), found, ranges)

    def _retry(self) -> None:
        self._unpark_all()
        self._acquire_all()

    def _on_timeout(self) -> None:
        self._is_timed_out = True
        if not self._is_asking:
            self._unpark_all()
            self._respond()

    def _unpark_all(self) -> None:
        self._cancel_retry()
        self._cancel_slice()
        parked, self._parked = self._parked, []
        for waiter in {waiter for _, waiter in parked}:
            waiter.is_open = False  # nothing is delivered to it from now on
        run_in_slices(self._broker, parked, _unpark)

    def _on_disconnect(self) -> None:
        self._is_finished = True
        self._unpark_all()
        self._cancel_timer()
        self._cancel_slice()
        queue_partitions = self._broker.queue_partitions
        for (topic_id, number), answer in self._answers.items():
            delivery = (
                queue_partitions.find(topic_id, number) if queue_partitions is not None and answer.ranges else None
            )
            if delivery is not None:
                undo(delivery, self._key.group_id, self._key.member_id, answer.ranges)

    # -- answering

    def _respond(self) -> None:
        if self._is_finished:
            return
        self._is_finished = True
        self._cancel_timer()
        answer_call(
            self._call,
            self._broker,
            self._key.group_id,
            ShareFetchResponse,
            ShareFetchableTopicResponse,
            self._answers,
            self._partition_data,
        )

    def _partition_data(self, tp: TopicIdPartition, answer: _Answer) -> PartitionData:
        error, acknowledge_error = answer.error, answer.acknowledge_error
        return PartitionData(
            partition_index=tp.partition,
            error_code=member_error_code(error),
            error_message=error.message if error else None,
            acknowledge_error_code=member_error_code(acknowledge_error),
            acknowledge_error_message=acknowledge_error.message if acknowledge_error else None,
            current_leader=leader_of(self._broker, tp, error or acknowledge_error),
            records=answer.read.records,
            acquired_records=acquired_records(answer.ranges, answer.read.ends, self._request.batch_size),
        )


def _unpark(parked: tuple[SharePartition, ShareWaiter]) -> None:
    found, waiter = parked
    if found.delivery is not None:
        found.delivery.unpark(waiter)


def _noop() -> None:
    pass
