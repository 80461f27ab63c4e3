"""The changes that create, grow, configure or delete a topic, and Kafka's errors."""

from collections.abc import Callable

import pytest

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_changes import (
    RESERVED_OFFSETS,
    Defaults,
    NewTopic,
    plan_configure,
    plan_delete,
    plan_reserve,
)
from penstock.coordination.store import Conflict, Delete, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from tests.unit.cluster.topic_plans import plan_create, plan_grow

from .images import DEFAULTS, Table, table_with_brokers

TOPIC_ID = b"\7" * 16


def code_of(plan: Callable[[], list[Op]]) -> ErrorCode:
    with pytest.raises(PenstockError) as refused:
        plan()
    assert refused.value.message
    return refused.value.code


def planned(image: ClusterImage, name: str = "orders", defaults: Defaults = DEFAULTS, **wanted: object) -> list[Op]:
    return plan_create(image, NewTopic(name=name, **wanted), TOPIC_ID, defaults)  # type: ignore[arg-type]


@pytest.fixture
def table() -> Table:
    return table_with_brokers(1, 2, 3)


# -- creating


def test_a_topic_is_made_in_one_transaction_with_its_name_reserved(table: Table) -> None:
    ops = planned(table.image, partitions=2, configs={"retention.ms": "5"})
    assert [type(op) for op in ops] == [Put] * 4
    assert {op.version for op in ops} == {0}
    assert [op.key for op in ops] == [
        keys.topic_name("orders"),
        keys.topic(TOPIC_ID),
        keys.partition(TOPIC_ID, 0),
        keys.partition(TOPIC_ID, 1),
    ]
    table.transact(ops)
    topic = table.image.by_name["orders"]
    assert topic.configs == {"retention.ms": "5"}
    first = topic.partitions[0]
    assert (first.replicas, first.isr, first.leader, first.leader_epoch) == ((1,), (1,), 1, 0)


def test_unset_values_are_the_brokers_defaults(table: Table) -> None:
    table.transact(planned(table.image, defaults=Defaults(partitions=4, replication_factor=2, partitions_max=10)))
    partitions = table.image.by_name["orders"].partitions
    assert len(partitions) == 4
    assert all(len(state.replicas) == 2 for state in partitions.values())


def test_two_topics_of_one_name_cannot_be_made_at_once(table: Table) -> None:
    first = planned(table.image)
    second = plan_create(table.image, NewTopic(name="orders"), b"\10" * 16, DEFAULTS)
    table.transact(first)
    with pytest.raises(Conflict):
        table.transact(second)


REFUSED: list[tuple[dict[str, object], ErrorCode]] = [
    ({"name": "not/allowed"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ({"name": "there.is"}, ErrorCode.TOPIC_ALREADY_EXISTS),
    ({"name": "there_is"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
    ({"partitions": 101}, ErrorCode.INVALID_PARTITIONS),
    ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ({"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ({"assignments": {0: [1]}, "partitions": 1}, ErrorCode.INVALID_REQUEST),
    ({"assignments": {0: [1]}, "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
    ({"assignments": {1: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {0: [1], 2: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {-1: [1], 0: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {0: []}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {0: [1, 1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {0: [9]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {0: [1], 1: [1, 2]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ({"assignments": {number: [1] for number in range(101)}}, ErrorCode.INVALID_PARTITIONS),
]


@pytest.mark.parametrize(("wanted", "code"), REFUSED)
def test_a_topic_that_cannot_be_is_refused_as_kafka_does(
    table: Table, wanted: dict[str, object], code: ErrorCode
) -> None:
    table.create("there.is")
    assert code_of(lambda: planned(table.image, **wanted)) is code  # type: ignore[arg-type]


def test_names_that_differ_in_more_than_dots_and_underscores_do_not_collide(table: Table) -> None:
    table.create("a.b_c")
    assert code_of(lambda: planned(table.image, "a_b.c")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    for name in ("a.b.cc", "a-b_c", "abc"):
        table.create(name)
    assert len(table.image.topics) == 4


def test_an_assignment_is_taken_as_it_is(table: Table) -> None:
    table.transact(planned(table.image, assignments={1: [3, 1], 0: [2, 3]}))
    partitions = table.image.by_name["orders"].partitions
    assert [state.replicas for state in partitions.values()] == [(2, 3), (3, 1)]
    assert [state.leader for state in partitions.values()] == [2, 3]


def test_a_cluster_without_brokers_takes_no_topic() -> None:
    assert code_of(lambda: planned(ClusterImage())) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_in_memory_reserves_its_offsets(table: Table) -> None:
    table.create("memory", configs={"storage": "memory"})
    table.create("disk")
    assert table.image.by_name["memory"].partitions[0].reserved_to == RESERVED_OFFSETS
    assert table.image.by_name["disk"].partitions[0].reserved_to == 0


# -- growing


def grown(table: Table, count: int, assignments: list[list[int]] | None = None) -> list[Op]:
    return plan_grow(table.image, table.image.by_name["orders"], count, assignments, DEFAULTS)


def test_a_topic_gets_more_partitions_and_keeps_those_it_has(table: Table) -> None:
    table.create("orders", partitions=2, replication_factor=2)
    before = table.image.by_name["orders"].partitions
    ops = grown(table, 5)
    assert ops[0].key == keys.topic(table.image.by_name["orders"].topic_id)
    table.transact(ops)
    partitions = table.image.by_name["orders"].partitions
    assert list(partitions) == [0, 1, 2, 3, 4]
    assert [partitions[number] for number in (0, 1)] == [before[0], before[1]]
    assert all(len(state.replicas) == 2 for state in partitions.values())


def test_new_partitions_get_the_given_replicas(table: Table) -> None:
    table.create("orders", assignments={0: [1]})
    table.transact(grown(table, 3, [[3], [2]]))
    assert [state.replicas for state in table.image.by_name["orders"].partitions.values()] == [(1,), (3,), (2,)]


GROWTHS: list[tuple[int, list[list[int]] | None, ErrorCode]] = [
    (2, None, ErrorCode.INVALID_PARTITIONS),
    (1, None, ErrorCode.INVALID_PARTITIONS),
    (0, None, ErrorCode.INVALID_PARTITIONS),
    (-1, None, ErrorCode.INVALID_PARTITIONS),
    (101, None, ErrorCode.INVALID_PARTITIONS),
    (4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [[1, 2], [2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.parametrize(("count", "assignments", "code"), GROWTHS)
def test_a_topic_that_cannot_grow_so_is_refused_as_kafka_does(
    table: Table, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    table.create("orders", partitions=2, replication_factor=2)
    assert code_of(lambda: grown(table, count, assignments)) is code


def test_of_two_partition_additions_one_fails(table: Table) -> None:
    table.create("orders")
    first, second = grown(table, 3), grown(table, 5)
    table.transact(first)
    with pytest.raises(Conflict):
        table.transact(second)


def test_a_topic_that_was_deleted_does_not_grow(table: Table) -> None:
    table.create("orders")
    ops = grown(table, 3)
    deleted(table)
    with pytest.raises(Conflict):
        table.transact(ops)


def test_new_partitions_in_memory_reserve_their_offsets_too(table: Table) -> None:
    table.create("orders", configs={"storage": "memory"})
    table.transact(grown(table, 2))
    assert table.image.by_name["orders"].partitions[1].reserved_to == RESERVED_OFFSETS


# -- settings, deleting


def deleted(table: Table) -> None:
    topic = table.image.by_name["orders"]
    table.transact(plan_delete(topic, table.image.versions[keys.topic_name("orders")]))


def test_a_topic_has_the_settings_it_is_given_and_no_others(table: Table) -> None:
    table.create("orders", configs={"retention.ms": "1", "segment.ms": "2"})
    (op,) = plan_configure(table.image.by_name["orders"], {"retention.ms": "3"})
    table.transact([op])
    assert table.image.by_name["orders"].configs == {"retention.ms": "3"}
    with pytest.raises(Conflict):
        table.transact([op])


def test_a_topic_is_deleted_with_all_that_belongs_to_it(table: Table) -> None:
    before = set(table.states)
    table.create("orders", partitions=3)
    topic = table.image.by_name["orders"]
    ops = plan_delete(topic, table.image.versions[keys.topic_name("orders")])
    assert [type(op) for op in ops] == [Delete] * 5
    table.transact(ops)
    assert set(table.states) == before
    assert not table.image.by_name


def test_a_topic_that_has_changed_meanwhile_is_not_deleted(table: Table) -> None:
    table.create("orders")
    topic, name_version = table.image.by_name["orders"], table.image.versions[keys.topic_name("orders")]
    table.transact(plan_configure(topic, {"retention.ms": "3"}))
    with pytest.raises(Conflict):
        table.transact(plan_delete(topic, name_version))


# -- what a broker does when it starts, and goes on


def test_more_offsets_are_reserved_once(table: Table) -> None:
    topic_id = table.create("orders", configs={"storage": "memory"})
    ops = plan_reserve(table.image, topic_id, 0, beyond=RESERVED_OFFSETS)
    table.transact(ops)
    state = table.image.by_name["orders"].partitions[0]
    assert (state.reserved_from, state.reserved_to) == (0, 2 * RESERVED_OFFSETS)
    assert plan_reserve(table.image, topic_id, 0, beyond=RESERVED_OFFSETS) == []
    assert plan_reserve(table.image, topic_id, 7, beyond=RESERVED_OFFSETS) == []
    assert plan_reserve(table.image, b"\0" * 16, 0, beyond=RESERVED_OFFSETS) == []
