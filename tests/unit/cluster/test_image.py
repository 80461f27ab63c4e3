"""The image: the same whether it is told at once or step by step, and never changed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import keys
from penstock.cluster.image import Broker, ClusterImage, PartitionState
from penstock.cluster.topics import plan_configure, plan_delete, plan_grow
from penstock.coordination.store import Change, Put

from .imaging import DEFAULTS, Table, table_with_brokers


def test_an_empty_cluster_has_nothing() -> None:
    image = ClusterImage()
    assert (image.cluster_id, dict(image.brokers), dict(image.topics), image.revision) == ("", {}, {}, 0)


def test_everything_that_is_written_is_in_the_image() -> None:
    table = table_with_brokers(1, 2)
    table.put(keys.CLUSTER, {"cluster_id": "the-cluster"})
    table.put(keys.broker_config(""), {"num.partitions": "3"})
    table.put(keys.broker_config("2"), {"num.partitions": "4"})
    topic_id = table.create("orders", partitions=2, configs={"retention.ms": "5"})
    image = table.image
    assert image.cluster_id == "the-cluster"
    assert image.brokers[2] == Broker(node_id=2, host="host-2", port=9092)
    assert image.broker_configs == {"": {"num.partitions": "3"}, "2": {"num.partitions": "4"}}
    topic = image.by_name["orders"]
    assert topic is image.topics[topic_id]
    assert (topic.topic_id, topic.configs) == (topic_id, {"retention.ms": "5"})
    assert list(topic.partitions) == [0, 1]
    assert topic.partitions[1].leader == 2
    assert topic.version == table.version(keys.topic(topic_id))
    assert topic.partitions[1].version == table.version(keys.partition(topic_id, 1))
    assert image.versions[keys.topic_name("orders")] == table.version(keys.topic_name("orders"))
    assert image.versions[keys.broker(1)] == table.version(keys.broker(1))
    assert image.revision == table.revision


def test_a_topic_that_is_deleted_is_gone_from_everywhere() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=3)
    table.transact(plan_delete(table.image.topics[topic_id], table.version(keys.topic_name("orders"))))
    assert dict(table.image.topics) == {}
    assert dict(table.image.by_name) == {}
    assert keys.topic_name("orders") not in table.image.versions


def test_a_topic_that_is_made_again_is_another() -> None:
    table = table_with_brokers(1)
    first = table.create("orders", partitions=3)
    table.transact(plan_delete(table.image.topics[first], table.version(keys.topic_name("orders"))))
    second = table.create("orders")
    assert list(table.image.topics) == [second]
    assert len(table.image.by_name["orders"].partitions) == 1


def test_partitions_are_in_order_however_they_come() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=12)
    snapshot = table.snapshot()
    assert list(snapshot.states) == sorted(snapshot.states), "10 comes before 2"
    image = ClusterImage().with_change(snapshot)
    assert list(image.topics[topic_id].partitions) == list(range(12))


def test_a_partitions_state_is_read_back_as_it_was_written() -> None:
    state = PartitionState(
        replicas=(1, 2, 3),
        leader=2,
        leader_epoch=7,
        isr=(2, 3),
        adding=(4,),
        removing=(1,),
        reserved_from=5,
        reserved_to=50,
        version=99,
    )
    assert PartitionState.read(keys.decode(state.dump()), 99) == state
    assert b"99" not in state.dump(), "the version is the store's"


def test_internal_topics_are_known_by_their_names() -> None:
    table = table_with_brokers(1)
    for name in ("__consumer_offsets", "__transaction_state", "__mine"):
        table.create(name)
    assert {topic.name for topic in table.image.topics.values() if topic.is_internal} == {
        "__consumer_offsets",
        "__transaction_state",
    }


def test_a_snapshot_forgets_what_it_does_not_name() -> None:
    table = table_with_brokers(1, 2)
    table.create("old")
    old = table.image
    fresh = table_with_brokers(3)
    fresh.create("new")
    image = old.with_change(fresh.snapshot())
    assert list(image.brokers) == [3]
    assert list(image.by_name) == ["new"]
    assert image == fresh.image


# -- never changed


def test_an_image_stays_as_it_was_when_the_next_one_is_made() -> None:
    table = table_with_brokers(1, 2)
    first = table.create("first", partitions=2)
    before, frozen = table.image, repr(table.image)
    table.transact(plan_configure(before.topics[first], {"retention.ms": "1"}))
    table.transact(plan_grow(table.image, table.image.topics[first], 5, None, DEFAULTS))
    table.delete(keys.broker(2))
    table.put(keys.broker_config(""), {"num.partitions": "3"})
    table.create("second")
    assert repr(before) == frozen
    assert table.image != before


def test_topics_that_a_change_does_not_touch_are_shared() -> None:
    table = table_with_brokers(1)
    ids = [table.create(f"topic-{number}", partitions=3) for number in range(5)]
    before = table.image
    table.transact(plan_configure(before.topics[ids[2]], {"retention.ms": "1"}))
    after = table.image
    for topic_id in ids:
        assert (after.topics[topic_id] is before.topics[topic_id]) is (topic_id != ids[2])
    assert after.topics[ids[2]].partitions is before.topics[ids[2]].partitions


def test_settings_that_did_not_change_are_the_same_object() -> None:
    table = table_with_brokers(1)
    table.put(keys.broker_config("1"), {"num.partitions": "3"})
    before = table.image
    table.create("orders")
    assert table.image.broker_configs is before.broker_configs
    table.put(keys.broker_config("1"), {"num.partitions": "4"})
    assert before.broker_configs == {"1": {"num.partitions": "3"}}
    assert table.image.broker_configs == {"1": {"num.partitions": "4"}}


# -- any changes at all

ACTIONS = st.lists(st.tuples(st.sampled_from(range(8)), st.integers(0, 5), st.integers(0, 100)), max_size=30)


def act(table: Table, action: int, which: int, number: int) -> Change | None:
    """One change of some kind; None if there is nothing to change in that way."""
    image = table.image
    topics = list(image.topics.values())
    topic = topics[which % len(topics)] if topics else None
    makers: list[Callable[[], Change | None]] = [
        lambda: table.put(keys.broker(which), {"host": f"h{number}", "port": number}),
        lambda: table.delete(keys.broker(which)) if which in image.brokers else None,
        lambda: table.put(keys.broker_config(str(which)), {"num.partitions": str(number + 1)}),
        lambda: table.put(keys.PRODUCER_IDS, number),
        lambda: _create(table, f"topic-{which}", number),
        lambda: (
            table.transact(plan_delete(topic, table.version(keys.topic_name(topic.name))))
            if topic is not None
            else None
        ),
        lambda: table.transact(plan_configure(topic, {"retention.ms": str(number)})) if topic is not None else None,
        lambda: _lead(table, which, number),
    ]
    return makers[action]()


def _create(table: Table, name: str, number: int) -> Change | None:
    if name in table.image.by_name or not table.image.brokers:
        return None
    before = table.snapshot()
    table.create(name, partitions=number % 4 + 1)
    states = {key: state for key, state in table.states.items() if before.states.get(key) != state}
    return Change(revision=table.revision, states=states)


def _lead(table: Table, which: int, number: int) -> Change | None:
    topics = list(table.image.topics.values())
    if not topics:
        return None
    topic = topics[which % len(topics)]
    partition = number % len(topic.partitions)
    state = replace(topic.partitions[partition], leader=which, leader_epoch=number)
    return table.transact([Put(keys.partition(topic.topic_id, partition), state.dump(), state.version)])


@given(actions=ACTIONS, together=st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_changes_one_by_one_or_together_lead_to_what_a_snapshot_shows(
    actions: list[tuple[int, int, int]], together: int
) -> None:
    table = table_with_brokers(1)
    step_by_step = coalesced = ClusterImage().with_change(table.snapshot())
    waiting: dict[str, object] = {}
    for number, action in enumerate(actions):
        change = act(table, *action)
        if change is None:
            continue
        step_by_step = step_by_step.with_change(change)
        waiting.update(change.states)
        if number % together == 0:
            coalesced = coalesced.with_change(Change(revision=change.revision, states=dict(waiting)))  # type: ignore[arg-type]
            waiting.clear()
        assert step_by_step == table.image
    if waiting:
        coalesced = coalesced.with_change(Change(revision=table.revision, states=dict(waiting)))  # type: ignore[arg-type]
    snapshot = ClusterImage().with_change(table.snapshot())
    assert step_by_step == snapshot
    assert replace(coalesced, revision=table.revision) == snapshot


@pytest.mark.parametrize("name", ["unknown-room/x", "unknown-room"])
def test_keys_of_rooms_that_are_not_known_yet_are_only_remembered_by_version(name: str) -> None:
    table = table_with_brokers(1)
    before = table.image
    table.put(name, {"anything": 1})
    assert table.image.versions[name] == table.revision
    assert table.image.topics == before.topics
