"""Store writes that create a view, drop it or mark it as used; checks of topic and view names. Pure.

A view (filtered topic) has its own key, and no topic has the same name. A view is created only if its
topic exists, and is dropped with its topic. A view whose topic was deleted counts as deleted; any broker removes keys
that are left of it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.views import View
from penstock.coordination.store import ABSENT, Check, Delete, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTopic, PenstockError, TopicExists, UnknownTopicOrPartition
from penstock.foundation.ids import INTERNAL_TOPICS, check_topic_name

VIEWS_PER_TOPIC_MAX: Final = 1000


class TooManyViews(PenstockError):
    """The topic has the maximum number of views (filtered virtual topics)."""

    code = ErrorCode.POLICY_VIOLATION


def views_on(image: ClusterImage, topic_id: bytes) -> list[View]:
    return [view for view in image.views.values() if view.topic_id == topic_id]


def check_name(image: ClusterImage, name: str) -> None:
    """Raises TopicExists or InvalidTopic if a name is not available for a new topic or view."""
    check_topic_name(name)
    for view in image.views.values():
        if view.name == name:
            raise TopicExists(f"a view {name!r} of topic {view.of!r} exists; drop it, or use another name")
    if "." in name or "_" in name:
        _check_collision(name, (*image.by_name, *(view.name for view in image.views.values())))


def _check_collision(name: str, names: Iterable[str]) -> None:
    """Raises InvalidTopic if names differ only in `.` and `_`, which Kafka's metric names do not distinguish."""
    flat = name.replace(".", "_")
    for known in names:
        if known.replace(".", "_") == flat:
            raise InvalidTopic(f"topic {name!r} collides with {known!r}: they differ only in '.' and '_'")


def plan_view(image: ClusterImage, view: View) -> list[Op]:
    """Returns the writes that create a view (filtered topic). Raises UnknownTopicOrPartition, InvalidTopic
    or TooManyViews because of the topic; TopicExists or InvalidTopic because of the view's name."""
    if view.name in image.by_name:
        raise TopicExists(f"topic {view.name!r} exists already")
    check_name(image, view.name)
    if view.name in INTERNAL_TOPICS:
        raise InvalidTopic(f"{view.name!r} is the name of an internal topic; use another name for the view")
    known = image.shown_by_name.get(view.of)
    if known is None:
        raise UnknownTopicOrPartition(f"there is no topic {view.of!r}; create it before its view")
    if known.view is not None:
        raise InvalidTopic(f"{view.of!r} is a view itself; create a view of {known.view.of!r} with both conditions")
    if known.is_internal:
        raise InvalidTopic(f"topic {view.of!r} is internal and cannot have views")
    if len(views_on(image, known.topic_id)) >= VIEWS_PER_TOPIC_MAX:
        raise TooManyViews(f"topic {view.of!r} has {VIEWS_PER_TOPIC_MAX} views, which is the limit; drop some first")
    made = replace(view, topic_id=known.topic_id)
    return [
        Check(keys.topic(known.topic_id), known.version),
        Put(keys.topic_name(view.name), keys.encode(keys.view(view.view_id)), ABSENT),
        Put(keys.view(view.view_id), made.dump(), ABSENT),
    ]


def plan_drop(image: ClusterImage, view_id: bytes) -> list[Op]:
    """Returns the writes that drop a view (filtered virtual topic); empty if the view does not exist."""
    view = image.views.get(view_id)
    if view is None:
        return []
    name, key = keys.topic_name(view.name), keys.view(view_id)
    return [Delete(name, image.version(name)), Delete(key, image.version(key))]


def plan_touch(image: ClusterImage, view_id: bytes) -> list[Op]:
    """Returns the write that tells other brokers that a view (filtered topic) is in use: they must not drop it."""
    view = image.views.get(view_id)
    if view is None:
        return []
    key = keys.view(view_id)
    return [Put(key, replace(view, touched=view.touched + 1).dump(), image.version(key))]
