"""Members of a classic group, the protocols that each supports, and the choice of a common protocol."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.groups.records import MemberMetadata
from penstock.wire.messages.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""Name and opaque metadata of each protocol that a member supports, in order of preference."""


def protocols_of(offered: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Returns the protocols of a JoinGroup request; if a name occurs several times, only its first entry."""
    first: dict[str, bytes] = {}
    for protocol in offered:
        first.setdefault(protocol.name, protocol.metadata)
    return tuple(first.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    """The group.instance.id of a static member (KIP-345); None for a dynamic member."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    """The member's last persisted assignment, as opaque bytes."""
    is_new: bool = False
    """Whether the member's first JoinGroup has not been answered yet; until then no session timeout applies."""

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol; empty if the member does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_record(cls, record: MemberMetadata, protocols: Protocols) -> "Member":
        timeout_ms = record.rebalance_timeout
        return cls(
            member_id=record.member_id,
            instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            # Before JoinGroup had a rebalance timeout, the session timeout was both.
            rebalance_timeout_ms=record.session_timeout if timeout_ms < 0 else timeout_ms,
            session_timeout_ms=record.session_timeout,
            protocols=protocols,
            assignment=record.assignment,
        )


class Roster:
    """The members of one group in the order in which they joined."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._by_id: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        """Member ids of static members, by their group.instance.id."""
        self._supporters: Counter[str] = Counter()
        for member in members:
            self.put(member)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    @property
    def ids(self) -> list[str]:
        return list(self._by_id)

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def put(self, member: Member) -> None:
        """Adds or updates a member."""
        self._count(self._by_id.get(member.member_id), -1)
        self._count(member, +1)
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        self._count(member, -1)
        if member is not None and member.instance_id is not None:
            del self.by_instance[member.instance_id]
        return member

    def replace(self, old_id: str, member: Member) -> None:
        """Replaces a static member with `member`, which has the same group.instance.id and another member id."""
        self.remove(old_id)
        self.put(member)

    def _count(self, member: Member | None, change: int) -> None:
        for name, _ in member.protocols if member else ():
            self._supporters[name] += change
            if not self._supporters[name]:
                del self._supporters[name]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, which is how long a rebalance waits for them."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether at least one of the protocols `names` is supported by all members."""
        return any(self._supporters[name] == len(self) for name in names)

    def choose_protocol(self) -> str:
        """Returns the protocol that most members prefer among the protocols that all members support.

        There always is such a protocol: a member that does not support any of the shared protocols cannot join.
        """
        shared = {name for name, count in self._supporters.items() if count == len(self)}
        votes = Counter(next(name for name, _ in member.protocols if name in shared) for member in self)
        return votes.most_common(1)[0][0]
