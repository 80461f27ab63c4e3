"""Rules for internal topics, which hold for all sources of changes."""

import pytest

from penstock.cluster.image import Topic
from penstock.cluster.internal_topics import check_configs, find_faults
from penstock.cluster.queue_changes import topic_for
from penstock.cluster.queues import NameTaken
from penstock.cluster.topic_changes import NewTopic, check_may_share, plan_configure, plan_growth
from penstock.foundation.errors import InvalidConfig, InvalidTopic
from penstock.foundation.ids import INTERNAL_TOPICS
from tests.unit.cluster.topic_plans import plan_create

from .images import DEFAULTS, table_with_brokers

RIGHT = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
both = pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))


def test_a_topic_as_brokers_create_it_has_no_faults() -> None:
    assert find_faults(RIGHT) == []
    assert find_faults({**RIGHT, "delayed.messages": "false", "delivery.delay.ms": "0", "storage": "disk"}) == []


@pytest.mark.parametrize(
    ("configs", "settings"),
    [
        ({}, ["cleanup.policy"]),
        ({"cleanup.policy": "delete"}, ["cleanup.policy"]),
        ({"cleanup.policy": "delete,compact"}, ["cleanup.policy"]),
        ({**RIGHT, "retention.ms": "-1"}, ["retention.ms"]),
        ({**RIGHT, "retention.bytes": "1"}, ["retention.bytes"]),
        ({**RIGHT, "max.message.bytes": "1000"}, ["max.message.bytes"]),
        ({**RIGHT, "delayed.messages": "true"}, ["delayed.messages"]),
        ({"storage": "memory"}, ["cleanup.policy", "storage"]),
    ],
)
def test_settings_that_lose_state_are_faults(configs: dict[str, str], settings: list[str]) -> None:
    assert [fault.setting for fault in find_faults(configs)] == settings


@both
def test_a_fault_may_be_repaired_or_stay_and_no_other_may_come(name: str) -> None:
    wrong = {"retention.ms": "1000"}
    check_configs(name, wrong, RIGHT)
    check_configs(name, wrong, {**wrong, "segment.bytes": "1048576"})
    for after in ({"retention.ms": "2000"}, {**wrong, "cleanup.policy": "delete"}, {**RIGHT, "storage": "memory"}):
        with pytest.raises(InvalidConfig, match="fixed"):
            check_configs(name, wrong, after)
    check_configs("orders", RIGHT, wrong)


@both
def test_nothing_but_a_broker_creates_them(name: str) -> None:
    table = table_with_brokers(1)
    for wanted in (
        NewTopic(name=name),
        NewTopic(name=name, configs={"cleanup.policy": "delete"}),
        NewTopic(name=name, configs=RIGHT, is_queue=True),
        NewTopic(name=name, configs=RIGHT, companion=b"c" * 16),
    ):
        with pytest.raises(InvalidTopic):
            plan_create(table.image, wanted, b"t" * 16, DEFAULTS)
    with pytest.raises(NameTaken):
        topic_for(table.image, name)
    assert plan_create(table.image, NewTopic(name=name, configs=RIGHT), b"t" * 16, DEFAULTS)


@both
def test_neither_queues_nor_share_groups_work_them_off(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_may_share(Topic(topic_id=b"t" * 16, name=name))


@both
def test_a_queue_cannot_change_their_settings_either(name: str) -> None:
    topic = Topic(topic_id=b"t" * 16, name=name, configs=RIGHT)
    with pytest.raises(InvalidConfig):
        plan_configure(topic, {**RIGHT, "cleanup.policy": "delete"})


def test_new_partitions_begin_with_the_epoch_of_the_others() -> None:
    """A coordinator whose epoch went back could end no transaction of a producer that it took over."""
    for name, expected in ((sorted(INTERNAL_TOPICS)[0], 7), ("orders", 0)):
        table = table_with_brokers(1)
        table.create(name, configs=RIGHT)
        topic = table.image.by_name[name]
        state = topic.partitions[0]
        old = Topic(
            topic_id=topic.topic_id,
            name=name,
            configs=RIGHT,
            partitions={0: type(state)(replicas=(1,), leader=1, leader_epoch=7, isr=(1,))},
        )
        made = plan_growth(table.image, old, 3, None, DEFAULTS).next_states(table.image, (1, 2), {})
        assert {number: added.leader_epoch for number, added in made.items()} == {1: expected, 2: expected}
