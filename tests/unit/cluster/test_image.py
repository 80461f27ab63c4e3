"""The image: the same whether it is built at once or step by step, and immutable."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import keys
from penstock.cluster.image import NO_BROKER, NO_EPOCH, Broker, ClusterImage, Controller, PartitionState, Topic
from penstock.cluster.matching_topics import MatchingTopics
from penstock.cluster.registration import plan_drained, plan_take_control
from penstock.cluster.topic_changes import plan_configure, plan_delete
from penstock.coordination.store import Change, Conflict, Op, Put, Versioned
from penstock.foundation.address import Address
from penstock.foundation.ids import TopicIdPartition
from tests.examples import examples
from tests.unit.cluster.topic_plans import plan_grow

from .images import DEFAULTS, Table, table_with_brokers


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
    assert image.brokers[2] == Broker(node_id=2, host="host-2", port=9092, epoch=2)
    assert image.broker_configs == {"": {"num.partitions": "3"}, "2": {"num.partitions": "4"}}
    topic = image.by_name["orders"]
    assert topic is image.topics[topic_id]
    assert (topic.topic_id, topic.configs) == (topic_id, {"retention.ms": "5"})
    assert list(topic.partitions) == [0, 1]
    assert {state.leader for state in topic.partitions.values()} == {1, 2}
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
        leader_broker_epoch=11,
        reserved_from=5,
        reserved_to=50,
        version=99,
    )
    assert PartitionState.read(keys.decode(state.dump()), 99) == state
    assert b"99" not in state.dump(), "the version is the store's"


def test_a_registration_is_read_back_as_it_was_written() -> None:
    broker = Broker(
        node_id=2,
        host="h",
        port=9092,
        rack="r",
        http="h:1",
        host_id="machine",
        epoch=5,
        folder="f",
        leaving=True,
        lost={TopicIdPartition(b"\7" * 16, 3): 9},
    )
    assert Broker.read(2, keys.decode(broker.dump())) == broker


def test_a_registration_from_before_there_were_clusters_is_read_too() -> None:
    found = Broker.read(1, {"host": "h", "port": 1, "http": "h:2", "incarnation": "x"})
    assert (found.epoch, found.folder, found.failure_domain) == (NO_EPOCH, "", ("", "broker-1"))


def test_the_controller_and_what_operators_say_is_in_the_image() -> None:
    table = table_with_brokers(1, 2)
    table.transact(plan_take_control(table.image, 2, table.image.brokers[2].epoch))
    table.transact(plan_drained(table.image, 1, drained=True))
    table.put(keys.folder(1), "the-folder")
    image = table.image
    assert image.controller == Controller(node_id=2, broker_epoch=2, epoch=1)
    assert (image.controller_id, image.controller_epoch) == (2, 1)
    assert (image.drained, image.folders) == ({1}, {1: "the-folder"})
    table.transact(plan_drained(image, 1, drained=False))
    table.delete(keys.CONTROLLER)
    assert (table.image.drained, table.image.controller, table.image.controller_epoch) == (frozenset(), None, 1)
    assert table.image.controller_id == NO_BROKER


# -- topics that are seen in parts


def applied(image: ClusterImage, table: Table, *names: str) -> ClusterImage:
    """The image after a change of these keys alone."""
    return image.with_change(Change(revision=table.revision, states={name: table.states.get(name) for name in names}))


def test_a_topic_is_shown_when_all_of_its_partitions_are_there() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=3)
    parts = [keys.partition(topic_id, number) for number in range(3)]
    image = applied(ClusterImage(), table, keys.topic(topic_id), parts[2], parts[0])
    assert not image.topics
    assert not image.by_name
    image = applied(image, table, parts[1])
    assert image.topics == table.image.topics
    assert image.by_name == table.image.by_name
    assert not image.incomplete


def test_partitions_that_come_before_their_topic_are_kept() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=2)
    image = applied(ClusterImage(), table, keys.partition(topic_id, 1))
    image = applied(image, table, keys.partition(topic_id, 0))
    assert list(image.incomplete[topic_id].partitions) == [0, 1]
    image = applied(image, table, keys.topic(topic_id))
    assert image.topics == table.image.topics
    assert not image.incomplete


def test_new_partitions_are_shown_when_the_topic_counts_them() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=2)
    before = table.image
    table.transact(plan_grow(before, before.topics[topic_id], 4, None, DEFAULTS))
    image = applied(before, table, keys.partition(topic_id, 3))
    assert list(image.topics[topic_id].partitions) == [0, 1]
    assert list(image.incomplete[topic_id].partitions) == [3]
    # The topic's own key may come before the last of them, too.
    image = applied(image, table, keys.topic(topic_id))
    assert list(image.topics[topic_id].partitions) == [0, 1]
    image = applied(image, table, keys.partition(topic_id, 2))
    assert image.topics == table.image.topics
    assert not image.incomplete


def test_a_topic_stays_until_its_own_key_is_gone() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=3)
    before = table.image
    gone = [keys.partition(topic_id, 1), keys.topic_name("orders")]
    states: dict[str, Versioned | None] = dict.fromkeys(gone)
    image = before.with_change(Change(revision=table.revision + 1, states=states))
    assert image.topics == before.topics
    whole = table.snapshot()
    parts = {key: state for key, state in whole.states.items() if key not in gone}
    image = before.with_change(replace(whole, states=parts))
    assert image.topics == before.topics, "nor is it gone if a snapshot shows it in part"
    image = image.with_change(Change(revision=table.revision + 2, states={keys.topic(topic_id): None}))
    assert not image.topics
    assert not image.by_name
    assert list(image.incomplete[topic_id].partitions) == [0, 2], "and what is missing is not waited for"


def test_leftovers_of_a_topic_are_pending_removal() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=2)
    table.delete(keys.topic(topic_id))
    assert not table.image.topics
    assert list(table.image.incomplete[topic_id].partitions) == [0, 1]
    for number in range(2):
        table.delete(keys.partition(topic_id, number))
    assert not table.image.incomplete


def test_a_name_is_the_new_topics_though_the_old_one_is_seen_a_moment_longer() -> None:
    table = table_with_brokers(1)
    old = table.create("orders")
    before = table.image
    table.transact(plan_delete(before.topics[old], table.version(keys.topic_name("orders"))))
    new = table.create("orders", partitions=2)
    image = applied(before, table, keys.topic(new), keys.partition(new, 0), keys.partition(new, 1))
    assert image.by_name["orders"].topic_id == new
    image = applied(image, table, keys.topic(old), keys.partition(old, 0), keys.topic_name("orders"))
    assert (image.topics, image.by_name) == (table.image.topics, table.image.by_name)


def test_a_topic_from_before_partitions_were_counted_has_those_that_are_there() -> None:
    table = table_with_brokers(1)
    topic_id = table.create("orders", partitions=3)
    table.put(keys.topic(topic_id), {"name": "orders", "configs": {}})
    assert list(table.image.topics[topic_id].partitions) == [0, 1, 2]
    table.transact(plan_configure(table.image.topics[topic_id], {"retention.ms": "1"}))
    assert table.image.topics[topic_id].count == 3


# -- leaders and replicas


def test_an_image_has_leaders_and_replicas() -> None:
    table = table_with_brokers(1, 2, 3)
    topic_id = table.create("orders", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    first, second, third = (TopicIdPartition(topic_id, number) for number in range(3))
    assert [place for place, _ in table.image.led_by(2)] == [second]
    assert [place for place, _ in table.image.held_by(1)] == [first, third]
    assert not list(table.image.under_replicated())
    table.set(first, isr=(1,))
    table.set(second, replicas=(2, 3, 1), adding=(1,))
    assert [place for place, _ in table.image.under_replicated()] == [first]
    assert not list(table.image.offline())
    table.unregister(3)
    assert [place for place, _ in table.image.offline()] == [third]


def test_a_broker_may_stop_when_no_partition_needs_it_that_another_could_lead() -> None:
    table = table_with_brokers(1, 2)
    topic_id = table.create("orders", assignments={0: [1, 2], 1: [1, 2]})
    assert not table.image.may_stop(1)
    assert not table.image.may_stop(2), "the leader waits for it"
    table.set(TopicIdPartition(topic_id, 0), isr=(1,))
    table.set(TopicIdPartition(topic_id, 1), isr=(1,))
    assert table.image.may_stop(1), "no other broker could lead instead"
    assert table.image.may_stop(2)


def test_brokers_that_are_leaving_join_no_isr() -> None:
    table = table_with_brokers(1)
    table.register(2, leaving=True)
    assert table.image.eligible() == {1: 1}


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


@given(order=st.permutations(range(8)), count=st.integers(1, 3))
@examples(150, deadline=None)
def test_a_transaction_that_is_seen_in_parts_is_seen_whole_in_the_end(order: list[int], count: int) -> None:
    """Creating, growing and deleting a topic, with changes in any order, as with ZooKeeper."""
    table = table_with_brokers(1)
    image = table.image
    topic_id = table.create("orders", partitions=3)
    sizes = {0, 3}
    for grows in (False, True, False):
        if grows:
            topic = table.image.topics[topic_id]
            change = table.transact(plan_grow(table.image, topic, 3 + count, None, DEFAULTS))
            sizes = {3, 3 + count}
        elif topic_id in image.topics:
            change = table.transact(
                plan_delete(table.image.topics[topic_id], table.version(keys.topic_name("orders")))
            )
            sizes = {3 + count, 0}
        else:
            change = Change(revision=table.revision, states=dict(table.states))
        states = list(change.states.items())
        for position in sorted(range(len(states)), key=lambda position: order[position % 8]):
            image = image.with_change(Change(revision=table.revision, states=dict([states[position]])))
            assert len(image.topics[topic_id].partitions if topic_id in image.topics else ()) in sizes
        assert image == table.image


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


def test_tables_that_a_change_does_not_touch_are_the_same_objects() -> None:
    table = table_with_brokers(1, 2)
    topic_id = table.create("orders", partitions=3)
    before = table.image
    table.set(TopicIdPartition(topic_id, 1), leader_epoch=5)
    after = table.image
    assert after.brokers is before.brokers
    assert after.versions is before.versions
    assert after.topics[topic_id].partitions[0] is before.topics[topic_id].partitions[0]
    table.put(keys.PRODUCER_IDS, 1)
    assert table.image.topics is after.topics


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

ACTIONS = st.lists(st.tuples(st.sampled_from(range(10)), st.integers(0, 5), st.integers(0, 100)), max_size=30)


def act(table: Table, action: int, which: int, number: int) -> Change | None:
    """One change of some kind; None if there is nothing to change in that way."""
    image = table.image
    topics = list(image.topics.values())
    topic = topics[which % len(topics)] if topics else None
    makers: list[Callable[[], Change | None]] = [
        lambda: table.put(keys.broker(which), {"host": f"h{number}", "port": number}),
        lambda: table.delete(keys.broker(which)) if which in image.brokers else None,
        lambda: _grow(table, topic, number) if topic is not None else None,
        lambda: table.transact(_deletion(table, topic)[:2]) if topic is not None else None,
        lambda: table.put(keys.broker_config(str(which)), {"num.partitions": str(number + 1)}),
        lambda: table.put(keys.PRODUCER_IDS, number),
        lambda: _create(table, f"topic-{which}", number),
        lambda: table.transact(_deletion(table, topic)) if topic is not None else None,
        lambda: table.transact(plan_configure(topic, {"retention.ms": str(number)})) if topic is not None else None,
        lambda: _lead(table, which, number),
    ]
    return makers[action]()


def _deletion(table: Table, topic: Topic) -> list[Op]:
    return plan_delete(topic, table.version(keys.topic_name(topic.name)))


def _create(table: Table, name: str, number: int) -> Change | None:
    if name in table.image.by_name or not table.image.brokers:
        return None
    before = table.snapshot()
    table.create(name, partitions=number % 4 + 1)
    states = {key: state for key, state in table.states.items() if before.states.get(key) != state}
    return Change(revision=table.revision, states=states)


def _grow(table: Table, topic: Topic, number: int) -> Change | None:
    if not table.image.brokers:
        return None
    count = len(topic.partitions) + number % 3 + 1
    ops = plan_grow(table.image, topic, count, [[min(table.image.brokers)]] * (number % 3 + 1), DEFAULTS)
    try:  # the addition may have been interrupted before it counted
        return table.transact(ops if number % 2 else ops[1:])
    except Conflict:  # or another one was faster
        return None


def _lead(table: Table, which: int, number: int) -> Change | None:
    topics = list(table.image.topics.values())
    if not topics:
        return None
    topic = topics[which % len(topics)]
    partition = number % len(topic.partitions)
    state = replace(topic.partitions[partition], leader=which, leader_epoch=number)
    return table.transact([Put(keys.partition(topic.topic_id, partition), state.dump(), state.version)])


@given(actions=ACTIONS, together=st.integers(1, 5))
@examples(100, deadline=None)
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


def different(before: ClusterImage, after: ClusterImage) -> set[bytes]:
    return {
        topic_id
        for topic_id in {*before.topics, *after.topics}
        if before.topics.get(topic_id) is not after.topics.get(topic_id)
    }


@given(actions=ACTIONS, every=st.integers(1, 3))
@examples(100, deadline=None)
def test_topics_that_have_changed_are_known_without_a_look_at_the_others(
    actions: list[tuple[int, int, int]], every: int
) -> None:
    def is_odd(topic: Topic) -> bool:
        return len(topic.partitions) % 2 == 1

    table = table_with_brokers(1)
    image = ClusterImage().with_change(table.snapshot())
    odd, seen = MatchingTopics(is_odd), ClusterImage()
    for number, action in enumerate(actions):
        change = act(table, *action)
        if change is None:
            continue
        before, image = image, image.with_change(change)
        assert different(before, image) <= set(image.changed_topics(before.topics))
        if number % every == 0:
            assert different(seen, image) <= set(image.changed_topics(seen.topics))
            seen = image
            assert {topic.topic_id: topic for topic in odd.follow(image)} == {
                topic_id: topic for topic_id, topic in image.topics.items() if is_odd(topic)
            }


def test_a_topic_that_changes_among_many_is_the_only_one_that_is_named() -> None:
    table = table_with_brokers(1)
    changed, *_ = [table.create(f"topic-{number}") for number in range(50)]
    before = table.image
    table.transact(plan_configure(before.topics[changed], {"retention.ms": "5"}))
    assert list(table.image.changed_topics(before.topics)) == [changed]
    assert list(table.image.changed_topics(table.image.topics)) == []
    table.put(keys.broker_config(""), {"num.partitions": "3"})
    assert list(table.image.changed_topics(before.topics)) == [changed]
    assert len(list(table.image.changed_topics(ClusterImage().topics))) == 50


@pytest.mark.parametrize("name", ["unknown-room/x", "unknown-room"])
def test_keys_of_rooms_that_are_not_known_yet_are_only_remembered_by_version(name: str) -> None:
    table = table_with_brokers(1)
    before = table.image
    table.put(name, {"anything": 1})
    assert table.image.versions[name] == table.revision
    assert table.image.topics == before.topics


def test_groups_of_any_name_have_settings() -> None:
    table = table_with_brokers(1)
    names = ("billing", "a/b", "ä %", "..", "%2F")
    for name in names:
        table.put(keys.group_config(name), {"share.auto.offset.reset": "earliest"})
        assert keys.group_config(name).count("/") == 1
    assert table.image.group_configs == {name: {"share.auto.offset.reset": "earliest"} for name in names}
    table.delete(keys.group_config("a/b"))
    assert set(table.image.group_configs) == {"billing", "ä %", "..", "%2F"}


def test_a_broker_has_an_address_on_each_listener_and_an_older_one_the_same_on_all() -> None:
    addresses = {"INSIDE": Address(host="10.0.0.7", port=1), "OUTSIDE": Address(host="queue.example.org", port=2)}
    broker = Broker(node_id=1, host="10.0.0.7", port=1, endpoints=addresses)
    stored = json.loads(broker.dump())
    assert Broker.read(1, stored) == broker
    assert [broker.endpoint(name) for name in (*addresses, "OTHER")] == [*addresses.values(), None]
    del stored["endpoints"]
    older = Broker.read(1, stored)
    assert older.endpoint("OUTSIDE") == older.endpoint("OTHER") == addresses["INSIDE"]
