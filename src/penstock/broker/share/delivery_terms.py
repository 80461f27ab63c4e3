"""On which terms a share group gets messages of a topic: a queue's own, or those of the group's settings. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.configs import Configs
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.queue_changes import find_queue
from penstock.cluster.queues import Queue
from penstock.foundation.errors import InvalidRequest
from penstock.groups.group_configs import EARLIEST, ShareGroupConfig
from penstock.queues.settings import DeadLetter, DeliverySettings

KEPT_MAX: Final = 10_000


class Terms(NamedTuple):
    """How one share group is served from the partitions of one topic."""

    lock_ms: int
    """How long a message is with whoever has acquired it."""
    delay_ms: int
    settings: DeliverySettings
    is_stable: bool
    """Whether messages of open transactions wait until these are decided."""
    may_renew: bool
    begins: str
    """Where a group begins that has never been here: see `share.auto.offset.reset`."""
    is_plain: bool = True
    """Whether messages are due at once, whatever they say: only queues know of delays."""


def terms_of(
    group_id: str,
    topic: Topic,
    image: ClusterImage,
    configs: Configs,
    settings_of: Callable[[Queue], DeliverySettings],
) -> Terms:
    """`settings_of`: how a queue delivers. Raises InvalidRequest for a FIFO queue."""
    own = share_config(group_id, image, configs)
    queue = find_queue(image, group_id)
    if queue is not None and queue.topic_id == topic.topic_id:
        return _of_queue(queue, own, settings_of(queue))
    dead_letters = image.by_name.get(own.dead_letter_topic)
    dead_letter = None
    if dead_letters is not None and dead_letters is not topic and not dead_letters.is_internal:
        dead_letter = DeadLetter(dead_letters.topic_id, len(dead_letters.partitions))
    return Terms(
        lock_ms=own.record_lock_duration_ms,
        delay_ms=0,
        settings=DeliverySettings(
            max_deliveries=own.delivery_count_limit,
            in_flight_max=own.partition_max_record_locks,
            dead_letter=dead_letter,
        ),
        is_stable=own.is_stable,
        may_renew=own.may_renew,
        begins=own.auto_offset_reset,
    )


class TermsTable:
    """The terms of all groups that fetch from this broker, as the image has them.

    They are asked for with every request and every partition, and seldom change.
    """

    def __init__(
        self,
        *,
        image: Callable[[], ClusterImage],
        configs: Configs,
        settings_of: Callable[[Queue], DeliverySettings],
    ) -> None:
        self._image = image
        self._configs = configs
        self._settings_of = settings_of
        self._known: dict[tuple[str, bytes], Terms] = {}
        self._locks: dict[str, int] = {}
        self._known_for: ClusterImage | None = None

    def of(self, group_id: str, topic: Topic) -> Terms:
        """Raises InvalidRequest for a FIFO queue."""
        image, key = self._look(), (group_id, topic.topic_id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = terms_of(group_id, topic, image, self._configs, self._settings_of)
        return known

    def lock_ms(self, group_id: str) -> int:
        """How long messages are with whoever acquires them, as members of a group are told."""
        image = self._look()
        known = self._locks.get(group_id)
        if known is None:
            known = lock_ms_of(share_config(group_id, image, self._configs), find_queue(image, group_id))
            self._locks[group_id] = known
        return known

    def _look(self) -> ClusterImage:
        image = self._image()
        if image is not self._known_for or len(self._known) >= KEPT_MAX or len(self._locks) >= KEPT_MAX:
            self._known_for = image
            self._known.clear()
            self._locks.clear()
        return image


def share_config(group_id: str, image: ClusterImage, configs: Configs) -> ShareGroupConfig:
    return ShareGroupConfig.of(image.group_configs.get(group_id, {}), configs.__getitem__)


def lock_ms_of(own: ShareGroupConfig, queue: Queue | None) -> int:
    """A queue's visibility timeout, if there is a queue. One of nothing would give every message to all at once."""
    visibility_ms = queue.settings.visibility_timeout_s * 1000 if queue is not None else 0
    return visibility_ms or own.record_lock_duration_ms


def _of_queue(queue: Queue, own: ShareGroupConfig, settings: DeliverySettings) -> Terms:
    """A queue is the share group of its name: whoever works it off does so on its terms."""
    if queue.settings.is_fifo:
        raise InvalidRequest(
            f"{queue.name!r} is a FIFO queue, which share consumers cannot work off; receive from it by SQS"
        )
    return Terms(
        lock_ms=lock_ms_of(own, queue),
        delay_ms=queue.settings.delay_s * 1000,
        settings=settings,
        is_stable=True,
        may_renew=True,
        begins=EARLIEST,
        is_plain=False,
    )
