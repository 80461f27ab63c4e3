"""A coordination service in memory: linearizable, with sessions that expire without heartbeats."""

from collections.abc import Sequence
from typing import Final

from penstock.coordination.store import ABSENT, Change, Check, Conflict, Delete, Op, Put, Versioned

SESSION_MS: Final = 2000


class SimStore:
    """All keys, and what has changed since any revision."""

    def __init__(self) -> None:
        self.revision = 0
        self._entries: dict[str, Versioned] = {}
        self._changed: dict[str, int] = {}
        """The revision of each key's last change, also of those that are gone."""
        self._leases: dict[str, int] = {}
        self._sessions: dict[int, int] = {}
        """When each session was last heard of."""
        self._last_session = 0

    def open_session(self, now_ms: int) -> int:
        self._last_session += 1
        self._sessions[self._last_session] = now_ms
        return self._last_session

    def hear(self, session: int, now_ms: int) -> bool:
        """Whether the session still is."""
        if session in self._sessions:
            self._sessions[session] = now_ms
            return True
        return False

    def expire(self, now_ms: int) -> int:
        """End the sessions that were silent for too long; how many there were."""
        gone = [session for session, heard_ms in self._sessions.items() if now_ms - heard_ms > SESSION_MS]
        for session in gone:
            self.end(session)
        return len(gone)

    def end(self, session: int) -> None:
        self._sessions.pop(session, None)
        leased = [key for key, holder in self._leases.items() if holder == session]
        if leased:
            self.revision += 1
            for key in leased:
                self._remove(key)

    def transact(self, ops: Sequence[Op], session: int) -> int:
        for op in ops:
            found = self._entries.get(op.key)
            if (found.version if found else ABSENT) != op.version:
                raise Conflict(op.key)
        if any(not isinstance(op, Check) for op in ops):
            self.revision += 1
        for op in ops:
            match op:
                case Put():
                    if op.leased:
                        assert session in self._sessions, "a session that is over holds nothing"
                        self._leases[op.key] = session
                    self._entries[op.key] = Versioned(value=op.value, version=self.revision)
                    self._changed[op.key] = self.revision
                case Delete():
                    self._remove(op.key)
        return self.revision

    def _remove(self, key: str) -> None:
        self._entries.pop(key, None)
        self._leases.pop(key, None)
        self._changed[key] = self.revision

    def get(self, key: str) -> Versioned | None:
        return self._entries.get(key)

    def changes_since(self, revision: int) -> Change:
        if revision == 0:
            return Change(revision=self.revision, snapshot=True, states=dict(self._entries))
        states = {key: self._entries.get(key) for key, changed in self._changed.items() if changed > revision}
        return Change(revision=self.revision, states=states)
