"""Delivery settings of a share group for a topic: from the queue with the group's name, else from the group. Pure."""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.configs import Configs
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.queue_changes import find_queue
from penstock.cluster.queues import Queue
from penstock.foundation.errors import InvalidRequest
from penstock.groups.group_configs import EARLIEST, ShareGroupConfig
from penstock.queues.settings import DeadLetter, DeliverySettings

CACHED_MAX: Final = 10_000


class DeliveryTerms(NamedTuple):
    """The settings by which one topic's messages are delivered to one share group."""

    lock_ms: int
    """Acquisition lock duration, in ms: how long a message stays with the member that has acquired it."""
    delay_ms: int
    settings: DeliverySettings
    is_stable: bool
    """Whether messages of open transactions are held back until commit or abort (read_committed)."""
    may_renew: bool
    offset_reset: str
    """Where a new share group starts to read: its value of `share.auto.offset.reset`."""
    is_plain: bool = True
    """Whether delays in message headers are ignored; true unless the group is a queue."""


def terms_of(
    group_id: str,
    topic: Topic,
    image: ClusterImage,
    configs: Configs,
    settings_of: Callable[[Queue], DeliverySettings],
) -> DeliveryTerms:
    """Returns a share group's delivery settings for a topic. `settings_of` returns the settings of a queue. Raises
    InvalidRequest for a FIFO queue."""
    own = share_config(group_id, image, configs)
    queue = find_queue(image, group_id)
    if queue is not None and queue.topic_id == topic.topic_id:
        return _of_queue(queue, own, settings_of(queue))
    dead_letters = image.by_name.get(own.dead_letter_topic)
    dead_letter = None
    if dead_letters is not None and dead_letters is not topic and not dead_letters.is_internal:
        dead_letter = DeadLetter(dead_letters.topic_id, len(dead_letters.partitions))
    return DeliveryTerms(
        lock_ms=own.record_lock_duration_ms,
        delay_ms=0,
        settings=DeliverySettings(
            max_deliveries=own.delivery_count_limit,
            in_flight_max=own.partition_max_record_locks,
            dead_letter=dead_letter,
        ),
        is_stable=own.is_stable,
        may_renew=own.may_renew,
        offset_reset=own.auto_offset_reset,
    )


class DeliveryTermsTable:
    """A cache of delivery settings by share group and topic, valid for one metadata image.

    The settings are needed for every partition of every request, and seldom change.
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
        self._terms: dict[tuple[str, bytes], DeliveryTerms] = {}
        self._lock_ms: dict[str, int] = {}
        self._image_cached: ClusterImage | None = None

    def of(self, group_id: str, topic: Topic) -> DeliveryTerms:
        """Returns a share group's delivery settings for a topic. Raises InvalidRequest for a FIFO queue."""
        image, key = self._refresh(), (group_id, topic.topic_id)
        known = self._terms.get(key)
        if known is None:
            known = self._terms[key] = terms_of(group_id, topic, image, self._configs, self._settings_of)
        return known

    def lock_ms(self, group_id: str) -> int:
        """Returns the acquisition lock duration, in ms, that is sent to members of a share group."""
        image = self._refresh()
        known = self._lock_ms.get(group_id)
        if known is None:
            known = lock_ms_of(share_config(group_id, image, self._configs), find_queue(image, group_id))
            self._lock_ms[group_id] = known
        return known

    def _refresh(self) -> ClusterImage:
        image = self._image()
        if image is not self._image_cached or len(self._terms) >= CACHED_MAX or len(self._lock_ms) >= CACHED_MAX:
            self._image_cached = image
            self._terms.clear()
            self._lock_ms.clear()
        return image


def share_config(group_id: str, image: ClusterImage, configs: Configs) -> ShareGroupConfig:
    return ShareGroupConfig.of(image.group_configs.get(group_id, {}), configs.__getitem__)


def lock_ms_of(own: ShareGroupConfig, queue: Queue | None) -> int:
    """Returns the acquisition lock duration, in ms: the queue's visibility timeout, or the share group's setting
    if there is no queue or its timeout is 0."""
    visibility_ms = queue.settings.visibility_timeout_s * 1000 if queue is not None else 0
    return visibility_ms or own.record_lock_duration_ms


def _of_queue(queue: Queue, own: ShareGroupConfig, settings: DeliverySettings) -> DeliveryTerms:
    """Returns the delivery settings with which share consumers read a queue: its `settings`, and the lock duration
    of `own`, the group's config, if the queue's visibility timeout is 0. Raises InvalidRequest (FIFO queue)."""
    if queue.settings.is_fifo:
        raise InvalidRequest(
            f"{queue.name!r} is a FIFO queue, which share consumers cannot read; receive from it with the SQS API"
        )
    return DeliveryTerms(
        lock_ms=lock_ms_of(own, queue),
        delay_ms=queue.settings.delay_s * 1000,
        settings=settings,
        is_stable=True,
        may_renew=True,
        offset_reset=EARLIEST,
        is_plain=False,
    )
