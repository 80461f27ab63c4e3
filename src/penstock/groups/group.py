"""What a group is to its coordinator, whichever protocol its members speak."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import Decision, StateRecord
from penstock.groups.offsets.committed import Offsets
from penstock.groups.settings import GroupSettings

BECAME_CLASSIC: Final = "became-classic"
BECAME_CONSUMER: Final = "became-consumer"
"""The timers of a group that changes its kind while it has members. They are due at once: if the change was
persisted, the group is of that kind then, and its members have as much time as if all had been heard of now."""

logger = logging.getLogger(__name__)


def log_expired(group_id: str, member_id: str, timeout: str) -> None:
    """Logs that a member is removed because it missed a timeout: its consumer, if it lives, has to join again."""
    logger.info("group_member_expired group_id=%r member_id=%r timeout=%s", group_id, member_id, timeout)


class Group(Protocol):
    """One group. ClassicGroup and ConsumerGroup are such."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def state_name(self) -> str:
        """As Kafka's tools show it."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether its members may be reading a topic, so that its offsets there must stay."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises what stands against telling this member what is committed."""

    def due(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """A timer that the group has set is due."""

    def loaded(self, now_ms: int) -> None:
        """Everything was read back: its members have as much time as if all had been heard of now."""

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """A record about the group was persisted, or is read back."""

    def tombstones(self) -> tuple[StateRecord, ...]:
        """What removes the group."""


class Holder(Protocol):
    """All that one coordinator holds, for those who only look."""

    settings: GroupSettings
    image: ClusterImage

    @property
    def groups(self) -> Mapping[str, Group]:
        """By their ids."""

    @property
    def offsets(self) -> Offsets: ...
