"""Views: read-only virtual topics, each another topic seen through a filter. Pure.

A view is a key of its own, beside the name that it shares with topics: so no topic can have the name of a view, and
no view that of a topic. It goes with its topic. One whose topic is gone is none, whatever is left of it, and is
removed by whichever broker sees it. Every write is on the condition of the topic, whose key is never made again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.cluster import keys
from penstock.coordination.store import ABSENT, Check, Delete, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTopic, PenstockError, TopicExists, UnknownTopicOrPartition
from penstock.foundation.ids import INTERNAL_TOPICS, check_topic_name, uuid_text
from penstock.foundation.view_names import VIEW_IDLE_MS, VIEW_OF, VIEW_WHERE

if TYPE_CHECKING:
    from penstock.cluster.image import ClusterImage

VIEWS_PER_TOPIC_MAX: Final = 1000


class NotAllowedOnView(PenstockError):
    """A view is read, and nothing else."""

    code = ErrorCode.POLICY_VIOLATION


class TooManyViews(PenstockError):
    """A topic can have only so many views."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view as the cluster knows it."""

    view_id: bytes
    """What clients take for a topic's id. Never given again."""
    name: str
    topic_id: bytes
    """Of the topic that it is a view of."""
    of: str
    """That topic's name."""
    where: str
    created_ms: int = 0
    idle_ms: int = 0
    """Dropped when nobody has read it for so long; 0: never."""
    touched: int = 0
    """Counted up while somebody reads it, if it can become idle."""

    @property
    def is_ad_hoc(self) -> bool:
        """Made for one reader: it is found by its name, and not listed among the topics."""
        return self.idle_ms > 0

    def configs(self) -> dict[str, str]:
        """As clients see it."""
        idle = {VIEW_IDLE_MS: str(self.idle_ms)} if self.idle_ms else {}
        return {VIEW_OF: self.of, VIEW_WHERE: self.where, **idle}

    def dump(self) -> bytes:
        """Its key, as the store holds it."""
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


def views_on(image: "ClusterImage", topic_id: bytes) -> list[View]:
    """All views of a topic."""
    return [view for view in image.views.values() if view.topic_id == topic_id]


def check_name(image: "ClusterImage", name: str) -> None:
    """Whether a topic or a view may get a name that no topic has. Raises TopicExists, InvalidTopic."""
    check_topic_name(name)
    for view in image.views.values():
        if view.name == name:
            raise TopicExists(f"there is a view {name!r} of topic {view.of!r}; drop it, or take another name")
    if "." in name or "_" in name:
        _check_collision(name, (*image.by_name, *(view.name for view in image.views.values())))


def _check_collision(name: str, names: Iterable[str]) -> None:
    """Kafka's metrics write `.` as `_`, so it refuses two names that differ in nothing else."""
    flat = name.replace(".", "_")
    for known in names:
        if known.replace(".", "_") == flat:
            raise InvalidTopic(f"topic {name!r} collides with {known!r}: they differ only in '.' and '_'")


def plan_view(image: "ClusterImage", view: View) -> list[Op]:
    """The writes that make a view of the topic that `view.of` names. Raises what Kafka would answer."""
    if view.name in image.by_name:
        raise TopicExists(f"topic {view.name!r} exists already")
    check_name(image, view.name)
    if view.name in INTERNAL_TOPICS:
        raise InvalidTopic(f"{view.name!r} is the name of an internal topic; give the view another name")
    known = image.shown_by_name.get(view.of)
    if known is None:
        raise UnknownTopicOrPartition(f"there is no topic {view.of!r} to make a view of; create it first")
    if known.view is not None:
        raise InvalidTopic(f"{view.of!r} is a view itself: make a view of {known.view.of!r}, with both conditions")
    if known.is_internal:
        raise InvalidTopic(f"topic {view.of!r} is the cluster's own, and has no views")
    if len(views_on(image, known.topic_id)) >= VIEWS_PER_TOPIC_MAX:
        raise TooManyViews(f"topic {view.of!r} has {VIEWS_PER_TOPIC_MAX} views; drop some that nobody needs")
    made = replace(view, topic_id=known.topic_id)
    return [
        Check(keys.topic(known.topic_id), known.version),
        Put(keys.topic_name(view.name), keys.encode(keys.view(view.view_id)), ABSENT),
        Put(keys.view(view.view_id), made.dump(), ABSENT),
    ]


def plan_drop(image: "ClusterImage", view_id: bytes) -> list[Op]:
    """The writes that leave nothing of a view; none if it is gone."""
    view = image.views.get(view_id)
    if view is None:
        return []
    name, key = keys.topic_name(view.name), keys.view(view_id)
    return [Delete(name, image.version(name)), Delete(key, image.version(key))]


def plan_touch(image: "ClusterImage", view_id: bytes) -> list[Op]:
    """The write by which others learn that somebody reads a view."""
    view = image.views.get(view_id)
    if view is None:
        return []
    key = keys.view(view_id)
    return [Put(key, replace(view, touched=view.touched + 1).dump(), image.version(key))]
