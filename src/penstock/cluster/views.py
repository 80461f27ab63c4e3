"""Views: read-only virtual topics, each a filter on another topic, as in the store. Pure.

Changes: cluster/view_changes.py.
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
    """A view can only be read."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view in the metadata image."""

    view_id: bytes
    """Its topic id for clients. Never reused."""
    name: str
    topic_id: bytes
    """Of its source topic."""
    of: str
    """The name of its source topic."""
    where: str
    created_ms: int = 0
    idle_ms: int = 0
    """Dropped when it was not read for this long; 0: never."""
    touched: int = 0
    """Incremented while it is read, if it can become idle."""

    @property
    def is_ad_hoc(self) -> bool:
        """Whether it was created for one reader: found by its name, but not listed among the topics."""
        return self.idle_ms > 0

    def configs(self) -> dict[str, str]:
        """Returns its settings for clients."""
        idle = {VIEW_IDLE_MS: str(self.idle_ms)} if self.idle_ms else {}
        return {VIEW_OF: self.of, VIEW_WHERE: self.where, **idle}

    def dump(self) -> bytes:
        """Returns the value of its key for the store."""
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
