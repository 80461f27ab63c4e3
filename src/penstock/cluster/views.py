"""Views (read-only virtual topics, each a filter on another topic), and their encoding in the store. Pure.

Store writes that change views: cluster/view_changes.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster import keys
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import uuid_text
from penstock.foundation.view_names import VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE


class NotAllowedOnView(PenstockError):
    """The request would change a view (filtered virtual topic), which can only be read."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    view_id: bytes
    """The id of the view, which clients see as a topic id. Never reused."""
    name: str
    topic_id: bytes
    """The id of the source topic."""
    of: str
    """The name of the source topic."""
    where: str
    created_ms: int = 0
    idle_ms: int = 0
    """Time without reads, in milliseconds, after which the view is dropped; 0 means never."""
    touched: int = 0
    """Counter that brokers increment while the view is read, so that none drops it as idle; 0 if `idle_ms` is 0."""

    @property
    def is_ad_hoc(self) -> bool:
        """Whether the view was created for a single reader: it is found by name, but not listed among the topics."""
        return self.idle_ms > 0

    def configs(self) -> dict[str, str]:
        """Returns the settings of the view as clients see them."""
        idle = {VIEW_IDLE_MS: str(self.idle_ms)} if self.idle_ms else {}
        return {VIEW_OF: self.of, VIEW_WHERE: self.where, **idle}

    def dump(self) -> bytes:
        """Returns the value of the view's key for the store."""
        value = {
            "name": self.name,
            "topic": uuid_text(self.topic_id),
            "of": self.of,
            "where": self.where,
            "created": self.created_ms,
        }
        if self.idle_ms:
            value |= {"idle": self.idle_ms, "touched": self.touched}
        return keys.encode(value)

    @classmethod
    def read(cls, view_id: bytes, value: Mapping[str, Any]) -> "View":
        return cls(
            view_id=view_id,
            name=value["name"],
            topic_id=keys.topic_id_of(value["topic"]),
            of=value["of"],
            where=value["where"],
            created_ms=value["created"],
            idle_ms=value.get("idle", 0),
            touched=value.get("touched", 0),
        )
