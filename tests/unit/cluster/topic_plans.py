"""Creates and grows small topics in one transaction."""

from collections.abc import Sequence

from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.topic_changes import Defaults, NewTopic, Step, next_create, next_grow
from penstock.coordination.store import Op


def plan_create(image: ClusterImage, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> list[Op]:
    return _only(next_create(image, wanted, topic_id, defaults))


def plan_grow(
    image: ClusterImage, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, defaults: Defaults
) -> list[Op]:
    return _only(next_grow(image, topic, count, assignments, defaults))


def _only(step: Step) -> list[Op]:
    assert not step.is_part, "the topic needs several transactions"
    return list(step.ops)
