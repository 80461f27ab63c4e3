"""The delivery settings of a share group: its own, or those of the queue of its name."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.configs import Configs
from penstock.broker.share.delivery_terms import DeliveryTerms, DeliveryTermsTable
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.queues import Queue, QueueSettings
from penstock.foundation.errors import InvalidRequest
from penstock.queues.settings import DeadLetter, DeliverySettings

STATE = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))


def _topic(name: str, count: int = 2) -> Topic:
    return Topic(topic_id=name.encode().ljust(16), name=name, partitions=dict.fromkeys(range(count), STATE))


JOBS, DEAD, OFFSETS = _topic("jobs"), _topic("dead", 3), _topic("__consumer_offsets")
OF_QUEUE = DeliverySettings(max_deliveries=9, in_flight_max=7)


class World:
    def __init__(self, **parts: Any) -> None:
        self.image = replace(
            ClusterImage(
                topics={one.topic_id: one for one in (JOBS, DEAD, OFFSETS)},
                by_name={one.name: one for one in (JOBS, DEAD, OFFSETS)},
            ),
            **parts,
        )
        self.asked = 0
        configs = Configs(static={}, node_id=1, image=lambda: self.image)
        self.table = DeliveryTermsTable(image=lambda: self.image, configs=configs, settings_of=self._settings_of)

    def _settings_of(self, queue: Queue) -> DeliverySettings:
        self.asked += 1
        return OF_QUEUE

    def terms(self, group_id: str = "g", topic: Topic = JOBS) -> DeliveryTerms:
        return self.table.of(group_id, topic)


def test_a_group_without_settings_has_those_of_kafka() -> None:
    assert World().terms() == DeliveryTerms(
        lock_ms=30_000,
        delay_ms=0,
        settings=DeliverySettings(max_deliveries=5, in_flight_max=2000),
        is_stable=False,
        may_renew=True,
        offset_reset="latest",
    )


def test_its_own_settings_and_the_brokers_count() -> None:
    own = {
        "share.record.lock.duration.ms": "20000",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.auto.offset.reset": "earliest",
    }
    world = World(group_configs={"g": own}, broker_configs={"": {"group.share.delivery.count.limit": "7"}})
    terms = world.terms()
    assert (terms.lock_ms, terms.is_stable, terms.may_renew, terms.offset_reset) == (20_000, True, False, "earliest")
    assert terms.settings.max_deliveries == 7
    assert world.terms("other").lock_ms == 30_000
    assert (world.table.lock_ms("g"), world.table.lock_ms("other")) == (20_000, 30_000)


def test_dead_letters_go_to_the_topic_that_is_named_if_it_is_there_and_another() -> None:
    def dead_letter(name: str) -> DeadLetter | None:
        world = World(group_configs={"g": {"errors.deadletterqueue.topic.name": name}})
        return world.terms().settings.dead_letter

    assert dead_letter("dead") == DeadLetter(DEAD.topic_id, 3)
    assert dead_letter("nowhere") is None
    assert dead_letter("jobs") is None, "a message that is dead would come back"
    assert dead_letter("__consumer_offsets") is None, "a group may have been configured so before it was refused"


def test_the_group_of_a_queue_has_the_queues_terms_on_its_topic_and_its_own_elsewhere() -> None:
    settings = QueueSettings(visibility_timeout_s=40, delay_s=3)
    world = World(queues={"jobs": Queue(name="jobs", topic_id=JOBS.topic_id, settings=settings)})
    assert world.terms("jobs") == DeliveryTerms(
        lock_ms=40_000,
        delay_ms=3000,
        settings=OF_QUEUE,
        is_stable=True,
        may_renew=True,
        offset_reset="earliest",
        is_plain=False,
    )
    assert world.terms("jobs", DEAD).lock_ms == 30_000
    assert world.terms("g").lock_ms == 30_000
    assert world.table.lock_ms("jobs") == 40_000


def test_a_visibility_timeout_of_nothing_is_the_groups_lock() -> None:
    settings = QueueSettings(visibility_timeout_s=0)
    world = World(queues={"jobs": Queue(name="jobs", topic_id=JOBS.topic_id, settings=settings)})
    assert world.terms("jobs").lock_ms == world.table.lock_ms("jobs") == 30_000


def test_a_fifo_queue_is_refused() -> None:
    queue = Queue(name="jobs", topic_id=JOBS.topic_id, settings=QueueSettings(is_fifo=True))
    with pytest.raises(InvalidRequest, match="FIFO queue"):
        World(queues={"jobs": queue}).terms("jobs")


def test_terms_are_worked_out_once_for_an_image() -> None:
    queue = Queue(name="jobs", topic_id=JOBS.topic_id)
    world = World(queues={"jobs": queue})
    assert world.terms("jobs") is world.terms("jobs")
    assert world.asked == 1
    world.image = replace(world.image, group_configs={"g": {"share.record.lock.duration.ms": "20000"}})
    assert world.terms("jobs").lock_ms == 30_000
    assert world.asked == 2
    assert world.terms("g").lock_ms == 20_000
