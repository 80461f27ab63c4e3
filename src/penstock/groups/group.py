"""Protocol classes for the group coordinator and groups of every kind: `CoordinatorView` and `Group`."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import Decision, StateRecord
from penstock.groups.offsets.committed import Offsets
from penstock.groups.settings import GroupSettings

BECAME_CLASSIC: Final = "became-classic"
BECAME_CONSUMER: Final = "became-consumer"
"""Kinds of timers: BECAME_CLASSIC and BECAME_CONSUMER, due at once after a downgrade or upgrade of a group with
members. Once the migration is persisted, they restart the session timeout of every member."""

logger = logging.getLogger(__name__)


def log_expired(group_id: str, member_id: str, timeout: str) -> None:
    """Logs that a member was removed because its timeout has passed; its consumer has to rejoin."""
    logger.info("group_member_expired group_id=%r member_id=%r timeout=%s", group_id, member_id, timeout)


class Group(Protocol):
    """Protocol class for a group of any kind: classic, consumer, share or streams."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def state_name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether members may read the topic; if so, its committed offsets must not expire."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises an error if the member may not fetch the group's committed offsets."""

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Handles a due timer of the group; `member_id` is empty if the timer is not for a member."""

    def loaded(self, now_ms: int) -> None:
        """Restarts the session timeout of every member after all records were replayed."""

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record of the group that was persisted or is replayed."""

    def tombstones(self) -> tuple[StateRecord, ...]:
        """Returns the tombstones that remove the group."""


class CoordinatorView(Protocol):
    """Protocol class for the part of the group coordinator that request handlers read."""

    settings: GroupSettings
    image: ClusterImage

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by group id."""

    @property
    def offsets(self) -> Offsets: ...
