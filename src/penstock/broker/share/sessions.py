"""Share sessions (KIP-932): members send only changed partitions; messages are released on disconnect. Pure.

A session belongs to the connection that it was opened on: when the connection closes, the session ends, and messages
that the member has acquired and not acknowledged become available again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.ids import TopicIdPartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSIONS_MAX: Final = 2000
SESSION_PARTITIONS_MAX: Final = 10_000
_EPOCH_MAX: Final = 2**31 - 1


class ShareSessionNotFound(PenstockError):
    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(PenstockError):
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(PenstockError):
    """The broker has reached its maximum number of share sessions."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """The share session of one share-group member with this broker."""

    key: SessionKey
    peer: str
    on_disconnect: Callable[["ShareSession"], None]
    """Called when the session's connection closes; releases the messages that the member has acquired."""
    epoch: int = 1
    """The session epoch that the member's next request must have."""
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)

    def rotated_partitions(self) -> list[TopicIdPartition]:
        """Returns the session's partitions, in each request with another partition first, so that none is starved."""
        tps = list(self.partitions)
        first = self.epoch % len(tps) if tps else 0
        return tps[first:] + tps[:first]


class ShareSessions:
    """The share sessions of all members that fetch from this broker."""

    def __init__(self) -> None:
        self.limit = SESSIONS_MAX
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_peer: dict[str, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        key: SessionKey,
        peer: str,
        tps: Iterable[TopicIdPartition],
        on_disconnect: Callable[[ShareSession], None],
    ) -> ShareSession:
        """Opens a session and closes the member's previous session. Raises ShareSessionLimitReached."""
        self.close(key)
        if len(self._sessions) >= self.limit:
            raise ShareSessionLimitReached(
                f"this broker has reached its limit of {self.limit} share sessions (group.share.max.share.sessions)"
            )
        session = ShareSession(key, peer, on_disconnect)
        session.partitions.update(dict.fromkeys(tps))
        _check_size(len(session.partitions))
        self._sessions[key] = session
        self._by_peer.setdefault(peer, {})[key] = None
        return session

    def resume(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[TopicIdPartition] = (),
        forgotten: Iterable[TopicIdPartition] = (),
    ) -> ShareSession:
        """Returns the session that a request continues, after adding partitions `added` and removing `forgotten`.
        Raises ShareSessionNotFound or InvalidShareSessionEpoch."""
        session = self.find(key)
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of member {key.member_id} is at epoch {session.epoch}, not {epoch}"
            )
        removed = {tp for tp in forgotten if tp in session.partitions}
        new = [tp for tp in added if tp not in session.partitions or tp in removed]
        _check_size(len(session.partitions) - len(removed) + len(new))
        session.epoch = session.epoch % _EPOCH_MAX + 1
        for tp in removed:
            del session.partitions[tp]
        session.partitions.update(dict.fromkeys(new))
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Returns a member's session. Raises ShareSessionNotFound."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(
                f"member {key.member_id} of {key.group_id!r} has no share session with this broker"
            )
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """Closes a member's session and returns it; None if the member has no session."""
        session = self._sessions.pop(key, None)
        if session is not None:
            peers = self._by_peer[session.peer]
            del peers[key]
            if not peers:
                del self._by_peer[session.peer]
        return session

    def end(self, session: ShareSession) -> bool:
        """Closes this session, if it is still the member's current session. Returns whether it was."""
        is_there = self._sessions.get(session.key) is session
        if is_there:
            self.close(session.key)
        return is_there

    def drop_all(self) -> None:
        """Drops all sessions at shutdown, without releasing messages: members keep their acquired messages and
        acknowledge them at the next leader."""
        self._sessions.clear()
        self._by_peer.clear()

    def hang_up(self, peer: str) -> None:
        """Ends all sessions of a closed connection and calls their `on_disconnect`."""
        for key in list(self._by_peer.get(peer, ())):
            session = self.close(key)
            if session is not None:
                session.on_disconnect(session)


def _check_size(partitions: int) -> None:
    if partitions > SESSION_PARTITIONS_MAX:
        raise InvalidRequest(f"a share session has at most {SESSION_PARTITIONS_MAX} partitions")
