"""Base class `Group` of all kinds of groups, and `CoordinatorView`, the part of the coordinator that they use."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import Decision, StateRecord
from penstock.foundation.timers import Timers
from penstock.groups.offsets.committed import Offsets
from penstock.groups.settings import GroupSettings

SESSION: Final = "session"
"""Kind of the timer for the session timeout of a member."""
BECAME_CLASSIC: Final = "became-classic"
BECAME_CONSUMER: Final = "became-consumer"
"""Kind of the timer that restarts all members' session timeouts once the upgrade to a consumer group is persisted.
BECAME_CLASSIC is the kind of the timer that does this after the downgrade to a classic group."""
RETRY_MS: Final = 1000
"""Delay, in milliseconds, before the coordinator retries to write a record that could not be persisted."""

logger = logging.getLogger(__name__)


class Group(ABC):
    """Base class of a group of any kind: classic, consumer, share or streams."""

    def __init__(self, group_id: str, coordinator: "CoordinatorView") -> None:
        self.group_id: Final = group_id
        self._coordinator = coordinator

    @property
    def settings(self) -> GroupSettings:
        return self._coordinator.settings_of(self.group_id)

    @property
    def image(self) -> ClusterImage:
        return self._coordinator.image

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Whether members may be subscribed to the topic; if so, its committed offsets must not expire."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises an error if the member may not fetch the group's committed offsets."""

    @abstractmethod
    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Handles a due timer of the group; `member_id` is empty if the timer is not for a member."""

    @abstractmethod
    def loaded(self, now_ms: int) -> None:
        """Restarts the session timeout of every member; called when a new coordinator has replayed all records."""

    @abstractmethod
    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record of the group that was persisted or is replayed."""

    @abstractmethod
    def tombstones(self) -> tuple[StateRecord, ...]:
        """Returns the tombstones of all records of the group, which delete the group."""

    # -- timers

    def set_timer(self, kind: str, at_ms: int, member_id: str = "", *, if_absent: bool = False) -> None:
        if not (if_absent and self.has_timer(kind, member_id)):
            self._coordinator.timers.set((self.group_id, kind, member_id), at_ms)

    def cancel_timer(self, kind: str, member_id: str = "") -> None:
        self._coordinator.timers.cancel((self.group_id, kind, member_id))

    def has_timer(self, kind: str, member_id: str = "") -> bool:
        return (self.group_id, kind, member_id) in self._coordinator.timers

    def log_expired(self, member_id: str, timeout: str) -> None:
        """Logs that a member was removed because its timeout has passed; its consumer has to rejoin."""
        logger.info("group_member_expired group_id=%r member_id=%r timeout=%s", self.group_id, member_id, timeout)


G = TypeVar("G", bound=Group)


class CoordinatorView(Protocol):
    """Protocol class for the part of the group coordinator that groups and request handlers use."""

    settings: GroupSettings
    image: ClusterImage

    @property
    def timers(self) -> Timers[tuple[str, str, str]]:
        """Timers of all groups; the key of a timer is group id, kind of timer and member id."""

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by group id."""

    @property
    def offsets(self) -> Offsets: ...

    def settings_of(self, group_id: str) -> GroupSettings:
        """Returns the settings of a group: the broker's settings, overridden by the group's own configs."""

    def new_member_id(self, name: str, /) -> str:
        """Returns a unique member id that starts with `name`."""

    def new_group(self, of: type[G], group_id: str) -> G:
        """Returns a new group object. It is not in `groups` until the records of the current decision are persisted
        and applied."""
