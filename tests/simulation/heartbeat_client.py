"""The client of a group whose protocol is one heartbeat: consumer groups (KIP-848) and streams groups (KIP-1071).

It sends only what has changed, and everything after it may have missed a response. It revokes before it takes over
what is new, acknowledges both with the next heartbeat, and drops everything when it is fenced.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from tests.simulation.group_simulation import GroupClient

HEARTBEAT_MS = 1000
SESSION_MS = 10_000
REBALANCE_MS = 6000

Owned = TypeVar("Owned")
"""What members own: partitions or tasks."""


class Pending(NamedTuple):
    """The heartbeat that waits for a response."""

    number: int
    sent_ms: int
    reported: Any


@dataclass(kw_only=True, eq=False)
class HeartbeatClient(GroupClient, Generic[Owned]):
    fenced_by: ClassVar[tuple[ErrorCode, ...]] = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
    """The errors after which it joins again."""

    place: str
    """Its end of the network."""
    version: int = 0
    request_timeout_ms: int
    """After which it sends the next heartbeat. The one before may arrive all the same."""
    epoch: int = 0
    is_running: bool = True
    owned: dict[Owned, int] = field(default_factory=dict)
    """What it believes to own, and the newest epoch in which that was assigned to it."""
    assigned: frozenset[Owned] = frozenset()
    """The last assignment that it has received."""
    reported: Any = None
    """What the broker knows of it for certain; None if the next heartbeat has to be a full one."""
    pending: Pending | None = None
    last_answered_ms: int = 0
    """When the last answered heartbeat was sent: the broker's session timeout starts then or later."""
    next_ms: int = 0
    revoke_at_ms: int | None = None
    must_acknowledge: bool = False

    def tick(self, now_ms: int) -> None:
        if not self.is_running:
            return
        if self.epoch > 0 and now_ms >= self.last_answered_ms + SESSION_MS:
            self.rejoin(now_ms)
        if self.pending is not None and now_ms >= self.pending.sent_ms + self.request_timeout_ms:
            self.reconnect()
        self._reconcile(now_ms)
        if self.pending is None and (self.must_acknowledge or now_ms >= self.next_ms):
            self._heartbeat(now_ms)

    def _reconcile(self, now_ms: int) -> None:
        """Revokes, then takes over what is new, then acknowledges."""
        if self.epoch <= 0 or set(self.owned) == self.assigned:
            self.revoke_at_ms = None
            return
        if not self.owned.keys() <= self.assigned:
            if self.revoke_at_ms is None:
                self.revoke_at_ms = now_ms + self.rng.choice((0, 0, 200, 2000))
            if self.is_stuck or now_ms < self.revoke_at_ms:
                return
        self.revoke_at_ms = None
        self.owned = {each: self.owned.get(each, self.epoch) for each in self.assigned}
        self.must_acknowledge = True

    def _heartbeat(self, now_ms: int) -> None:
        is_full = self.epoch == 0 or self.reported is None
        number = self.post(self._request(is_full), self.version)
        self.pending = Pending(number, now_ms, self._report())
        self.must_acknowledge = False
        self.next_ms = now_ms + HEARTBEAT_MS

    def _report(self) -> Any:
        """What a full heartbeat says about this member."""
        raise NotImplementedError

    def _request(self, is_full: bool) -> Any:
        raise NotImplementedError

    def _leave_request(self, epoch: int) -> Any:
        raise NotImplementedError

    def _assignment(self, response: Any) -> frozenset[Owned] | None:
        """The assignment in a response, if there is one."""
        raise NotImplementedError

    def receive(self, number: int, response: Any, now_ms: int) -> None:
        if not self.is_running or self.pending is None or self.pending.number != number:
            return
        pending, self.pending = self.pending, None
        if isinstance(response, PenstockError):
            self._on_error(response, now_ms)
            return
        self.reported, self.last_answered_ms = pending.reported, pending.sent_ms
        self.member_id, self.epoch = response.member_id or self.member_id, response.member_epoch
        assignment = self._assignment(response)
        if assignment is not None:
            self.assigned = assignment
            self.must_acknowledge = True
        for each in self.owned:
            if each in self.assigned:
                self.owned[each] = self.epoch
        self._reconcile(now_ms)

    def _on_error(self, error: PenstockError, now_ms: int) -> None:
        self.reported = None
        assert error.code in self.fenced_by, f"{self.place} receives {error!r}"
        self.rejoin(now_ms)

    def rejoin(self, now_ms: int) -> None:
        self._drop()
        self.epoch, self.next_ms = 0, now_ms

    def reconnect(self) -> None:
        self.pending = self.reported = None

    def stop(self) -> None:
        self._drop()
        self.is_running = False

    def leave(self, epoch: int = -1) -> None:
        """Drops everything and leaves the group. Does not wait for the response."""
        is_member = self.epoch > 0
        self.stop()
        if is_member:
            self.post(self._leave_request(epoch), self.version)

    def _drop(self) -> None:
        """Owns nothing, and forgets the heartbeat in flight."""
        self.reconnect()
        self.owned, self.assigned, self.revoke_at_ms, self.must_acknowledge = {}, frozenset(), None, False
