"""Share sessions (KIP-932): a member of a share group names only what changed, and what it holds goes with it. Pure.

A session belongs to the connection that it was opened on: when that is gone, so is the session, and whatever the
member had in hand and has not acknowledged is available again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest, PenstockError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSIONS_MAX: Final = 2000
SESSION_PARTITIONS_MAX: Final = 10_000
_EPOCH_MAX: Final = 2**31 - 1

Place = tuple[bytes, int]
"""Topic id and partition."""


class ShareSessionNotFound(PenstockError):
    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(PenstockError):
    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(PenstockError):
    """The broker remembers as many sessions as it may."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """One member at this broker."""

    key: SessionKey
    peer: str
    on_gone: Callable[["ShareSession"], None]
    """Called when its connection is gone: nobody will acknowledge what the member holds."""
    epoch: int = 1
    """That the next request has to name."""
    partitions: dict[Place, None] = field(default_factory=dict)

    def in_turn(self) -> list[Place]:
        """The partitions to fetch from, another one first each time, so that none is starved."""
        places = list(self.partitions)
        first = self.epoch % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessions:
    """The sessions of all members that fetch from this broker."""

    def __init__(self) -> None:
        self.limit = SESSIONS_MAX
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_peer: dict[str, dict[SessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, key: SessionKey, peer: str, places: Iterable[Place], on_gone: Callable[[ShareSession], None]
    ) -> ShareSession:
        """Begin a session, in the place of the one that the member may have. Raises ShareSessionLimitReached."""
        self.close(key)
        if len(self._sessions) >= self.limit:
            raise ShareSessionLimitReached(f"this broker has {self.limit} share sessions, which is its limit")
        session = self._sessions[key] = ShareSession(key, peer, on_gone)
        self._by_peer.setdefault(peer, {})[key] = None
        self._add(session, places)
        return session

    def go_on(
        self, key: SessionKey, epoch: int, added: Iterable[Place] = (), forgotten: Iterable[Place] = ()
    ) -> ShareSession:
        """The session that a request goes on with. Raises ShareSessionNotFound or InvalidShareSessionEpoch."""
        session = self.find(key)
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                f"the share session of member {key.member_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = session.epoch % _EPOCH_MAX + 1
        for place in forgotten:
            session.partitions.pop(place, None)
        self._add(session, added)
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Raises ShareSessionNotFound."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"member {key.member_id} of {key.group_id!r} has no share session here")
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """End a session; which it was."""
        session = self._sessions.pop(key, None)
        if session is not None:
            peers = self._by_peer[session.peer]
            del peers[key]
            if not peers:
                del self._by_peer[session.peer]
        return session

    def end(self, session: ShareSession) -> bool:
        """End this session, and no other that its member may have begun since; whether it was there still."""
        is_there = self._sessions.get(session.key) is session
        if is_there:
            self.close(session.key)
        return is_there

    def leave_all(self) -> None:
        """This broker goes, not the members: what they have stays with them, and they go on where they find it."""
        self._sessions.clear()
        self._by_peer.clear()

    def hang_up(self, peer: str) -> None:
        """A connection is gone, and all its sessions with it."""
        for key in list(self._by_peer.get(peer, ())):
            session = self.close(key)
            if session is not None:
                session.on_gone(session)

    @staticmethod
    def _add(session: ShareSession, places: Iterable[Place]) -> None:
        for place in places:
            if place not in session.partitions and len(session.partitions) >= SESSION_PARTITIONS_MAX:
                raise InvalidRequest(f"a share session has at most {SESSION_PARTITIONS_MAX} partitions")
            session.partitions[place] = None
