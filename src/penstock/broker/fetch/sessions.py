"""Incremental fetch sessions (KIP-227): requests and responses contain only the partitions that changed. Pure."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICT_AFTER_MS: Final = 120_000
SESSION_PARTITIONS_MAX: Final = 20_000

Key = tuple[str, bytes, int]
"""Identifies a partition: topic name (empty from Fetch v13 on), topic id (zero before v13), partition index."""


class SessionNotFound(PenstockError):
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidSessionEpoch(PenstockError):
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class SessionTopicIds(PenstockError):
    """The session was opened with topic names and the request has topic ids, or the reverse."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: the last request for the partition, and the offsets last sent to the client."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class Session:
    session_id: int
    principal: str
    """The client that opened it: others cannot continue or close it."""
    by_id: bool
    """Whether requests of this session have topic ids rather than names (version 13 and later)."""
    epoch: int = 1
    used_ms: int = 0
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """The partitions to fetch for one request: those of the request, or those of its session."""

    wanted: list[tuple[Key, FetchPartition]]
    session: Session | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else NO_SESSION

    def must_include(self, key: Key, data: PartitionData) -> bool:
        """Whether the response must include this partition. Remembers `data`'s offsets as sent to the client."""
        if self.session is None:
            return True
        cached = self.session.partitions.get(key)
        if cached is None:
            return True
        is_changed = (
            not self.incremental
            or bool(data.records)
            or data.error_code != 0
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
            or data.high_watermark != cached.high_watermark
            or data.log_start_offset != cached.log_start_offset
        )
        cached.high_watermark = data.high_watermark
        cached.log_start_offset = data.log_start_offset
        if data.records:
            # Last in the next response, so that a busy partition does not starve the others.
            self.session.partitions[key] = self.session.partitions.pop(key)
        if data.error_code:
            cached.high_watermark = -1  # so that the next response includes it again
        return is_changed


class FetchSessions:
    """The fetch sessions of this broker, least recently used first."""

    def __init__(self, slots: int, first_id: int = 1) -> None:
        """`slots`: maximum number of sessions. `first_id`: id of the first session; must differ at each start, or
        clients could continue sessions of an earlier broker process."""
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._last_id = first_id - 1

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, principal: str, now_ms: int, *, by_id: bool = False) -> FetchPlan:
        """Returns the partitions to fetch for a request. `by_id`: the request has topic ids rather than names.

        Raises SessionNotFound, InvalidSessionEpoch or SessionTopicIds; the client then sends a full request.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._sessions.get(request.session_id)
            if session is not None and session.principal == principal:
                del self._sessions[request.session_id]
            wanted = _partitions_in(request)
            if request.session_epoch == FINAL_EPOCH:
                return FetchPlan(wanted=wanted)
            return FetchPlan(wanted=wanted, session=self._open(wanted, principal, now_ms, by_id))
        return self._continue(request, principal, now_ms, by_id)

    def _open(
        self, wanted: list[tuple[Key, FetchPartition]], principal: str, now_ms: int, by_id: bool
    ) -> Session | None:
        if not wanted or len(wanted) > SESSION_PARTITIONS_MAX or not self._ensure_slot(now_ms):
            return None
        self._last_id = self._last_id % (2**31 - 1) + 1
        while self._last_id in self._sessions:
            self._last_id = self._last_id % (2**31 - 1) + 1
        session = Session(self._last_id, principal, by_id, used_ms=now_ms)
        session.partitions = {key: CachedPartition(partition) for key, partition in wanted}
        self._sessions[session.session_id] = session
        return session

    def _ensure_slot(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms < EVICT_AFTER_MS:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _continue(self, request: FetchRequest, principal: str, now_ms: int, by_id: bool) -> FetchPlan:
        session = self._sessions.get(request.session_id)
        if session is None or session.principal != principal:
            raise SessionNotFound(
                f"fetch session {request.session_id} does not exist or was evicted; send a full fetch"
            )
        if request.session_epoch != session.epoch:
            raise InvalidSessionEpoch(
                f"fetch session {session.session_id} is at epoch {session.epoch}, not {request.session_epoch}"
            )
        if by_id is not session.by_id:
            kind = "ids" if session.by_id else "names"
            raise SessionTopicIds(f"fetch session {session.session_id} was opened with topic {kind}")
        session.epoch = session.epoch % (2**31 - 1) + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, number), None)
        for key, partition in _partitions_in(request):
            cached = session.partitions.get(key)
            if cached is not None:
                cached.wanted = partition
            elif len(session.partitions) < SESSION_PARTITIONS_MAX:
                session.partitions[key] = CachedPartition(partition)
            else:
                del self._sessions[session.session_id]
                raise SessionNotFound(
                    f"a fetch session has at most {SESSION_PARTITIONS_MAX} partitions; send a full fetch"
                )
        wanted = [(key, cached.wanted) for key, cached in session.partitions.items()]
        return FetchPlan(wanted=wanted, session=session, incremental=True)


def _partitions_in(request: FetchRequest) -> list[tuple[Key, FetchPartition]]:
    return [
        ((topic.topic, topic.topic_id, partition.partition), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
