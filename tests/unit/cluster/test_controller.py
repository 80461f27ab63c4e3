"""The controller: decisions from one image to the next, until nothing is left to do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import keys
from penstock.cluster.controller import Controller, ControllerDecision, ControllerSettings
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.cluster.reassignment import plan_cancel, plan_reassign
from penstock.cluster.registration import plan_leaving, plan_take_control
from penstock.cluster.topic_changes import OPERATIONS_MAX, Defaults, NewTopic, next_create, plan_delete
from penstock.coordination.store import Check, Conflict, Put
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from tests.examples import examples

from .images import Table, table_with_brokers

MANY = Defaults(partitions=1, replication_factor=1, partitions_max=10_000)


class Driver:
    """A controller that works on a table, at a time that the test sets."""

    def __init__(self, table: Table, settings: ControllerSettings | None = None) -> None:
        self.table = table
        self.now_ms = 0
        self.settings = settings or ControllerSettings()
        self.take_over()

    def take_over(self) -> None:
        """Another broker becomes the controller."""
        table = self.table
        if keys.CONTROLLER in table.states:
            table.delete(keys.CONTROLLER)
        table.put(keys.CONTROLLER_EPOCH, table.image.controller_epoch + 1)
        self.controller = Controller(
            epoch_version=table.version(keys.CONTROLLER_EPOCH),
            is_unclean=lambda topic: topic.configs.get("unclean.leader.election.enable") == "true",
            settings=lambda: self.settings,
        )

    def decide(self) -> ControllerDecision:
        return self.controller.decide(self.table.image, self.now_ms)

    def work_off(self) -> list[ControllerDecision]:
        """Carry out what it wants until it wants nothing."""
        done: list[ControllerDecision] = []
        while (orders := self.decide()).ops:
            assert len(orders.ops) <= OPERATIONS_MAX
            self.table.transact(orders.ops)
            done.append(orders)
            assert len(done) < 1000, "it never ends"
        return done


def large(table: Table, name: str, count: int, replicas: list[int], **configs: str) -> bytes:
    """A topic of any size, all of its partitions on the same brokers."""
    topic_id = name.encode().rjust(16, b"-")
    wanted = NewTopic(name=name, assignments=dict.fromkeys(range(count), replicas), configs=configs)
    is_last = False
    while not is_last:
        step = next_create(table.image, wanted, topic_id, MANY, "test")
        table.transact(step.ops)
        is_last = step.is_last
    return topic_id


@pytest.fixture
def table() -> Table:
    return table_with_brokers(1, 2, 3)


def test_a_cluster_that_is_well_needs_nothing(table: Table) -> None:
    table.create("orders", partitions=5, replication_factor=3)
    driver = Driver(table)
    assert driver.decide() == ControllerDecision()


def test_partitions_of_a_broker_that_is_gone_get_other_leaders(table: Table) -> None:
    topic_id = table.create("orders", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    driver = Driver(table)
    table.unregister(1)
    (orders,) = driver.work_off()
    assert orders.ops[0] == Check(keys.CONTROLLER_EPOCH, table.version(keys.CONTROLLER_EPOCH))
    states = [table.state(TopicIdPartition(topic_id, number)) for number in range(3)]
    assert [state.leader for state in states] == [2, 2, 3]
    assert [state.isr for state in states] == [(2,), (2, 3), (3,)]
    assert [state.leader_epoch for state in states] == [1, 0, 0]


def test_a_controller_whose_epoch_is_over_changes_nothing(table: Table) -> None:
    table.create("orders", partitions=3, replication_factor=2)
    driver = Driver(table)
    table.unregister(1)
    orders = driver.decide()
    paused = driver.controller
    driver.take_over()
    with pytest.raises(Conflict):
        table.transact(orders.ops)
    with pytest.raises(Conflict):
        table.transact(paused.decide(table.image, 0).ops)
    assert driver.work_off()


def test_a_new_controller_finds_all_pending_work(table: Table) -> None:
    large(table, "orders", 250, [1, 2])
    driver = Driver(table)
    table.unregister(1)
    table.transact(driver.decide().ops)
    driver.take_over()
    driver.work_off()
    assert not list(table.image.offline())


def test_a_big_event_is_worked_off_in_several_transactions_and_leaders_come_first(table: Table) -> None:
    led = large(table, "led", 250, [1, 2])
    followed = large(table, "followed", 250, [2, 1])
    driver = Driver(table)
    table.unregister(1)
    done = driver.work_off()
    assert [len(orders.ops) for orders in done] == [100, 100, 100, 100, 100, 6]
    order = [changed.tp.topic_id for orders in done for changed in orders.changes]
    assert order == [led] * 250 + [followed] * 250


def test_concurrent_changes_are_decided_again(table: Table) -> None:
    topic_id = table.create("orders", assignments={0: [1, 2, 3]})
    place = TopicIdPartition(topic_id, 0)
    driver = Driver(table)
    table.unregister(1)
    orders = driver.decide()
    table.set(place, isr=(1, 3))  # the old leader was faster
    with pytest.raises(Conflict):
        table.transact(orders.ops)
    driver.work_off()
    assert (table.state(place).leader, table.state(place).isr) == (3, (3,))


def test_a_broker_that_registers_again_leads_in_new_epochs(table: Table) -> None:
    topic_id = large(table, "orders", 3, [1])
    driver = Driver(table)
    broker = table.register(1)
    driver.work_off()
    for number in range(3):
        state = table.state(TopicIdPartition(topic_id, number))
        assert (state.leader, state.leader_epoch, state.leader_broker_epoch) == (1, 1, broker.epoch)


def test_unclean_elections_are_held_when_the_topic_begins_to_allow_them(table: Table) -> None:
    topic_id = table.create("orders", assignments={0: [1, 2]})
    place = TopicIdPartition(topic_id, 0)
    driver = Driver(table)
    table.set(place, isr=(1,))
    table.unregister(1)
    (orders,) = driver.work_off()
    assert orders.changes[0].goes_offline
    assert table.state(place).leader == NO_LEADER
    topic = table.image.topics[topic_id]
    table.put(
        keys.topic(topic_id),
        {"name": topic.name, "configs": {"unclean.leader.election.enable": "true"}, "partitions": 1},
    )
    (orders,) = driver.work_off()
    assert orders.changes[0].is_unclean
    assert (table.state(place).leader, table.state(place).isr) == (2, (2,))


def test_a_topic_that_was_deleted_meanwhile_is_forgotten(table: Table) -> None:
    table.create("orders", partitions=3, replication_factor=2)
    driver = Driver(table)
    table.unregister(1)
    assert driver.decide().ops
    topic = table.image.by_name["orders"]
    table.transact(plan_delete(topic, table.version(keys.topic_name("orders"))))
    assert driver.decide() == ControllerDecision()


# -- controlled shutdown


def test_a_broker_that_leaves_may_stop_when_the_controller_is_done(table: Table) -> None:
    led = large(table, "led", 120, [1, 2])
    large(table, "followed", 30, [3, 1])
    alone = large(table, "alone", 5, [1])
    driver = Driver(table)
    table.transact(plan_leaving(table.image, 1, table.image.brokers[1].epoch))
    assert not table.image.may_stop(1)
    done = driver.work_off()
    assert table.image.may_stop(1)
    assert {changed.tp.topic_id for changed in done[0].changes} == {led}, "what it leads comes first"
    assert {place.topic_id for place, _ in table.image.led_by(1)} == {alone}, "no other broker can"


# -- preferred leaders


def settings_of(seconds: int, *, enabled: bool = True) -> ControllerSettings:
    return ControllerSettings(rebalances_leaders=enabled, rebalances_after_ms=seconds * 1000)


def imbalanced(table: Table, driver: Driver, count: int = 3) -> bytes:
    """Broker 1 was away and has come back; broker 2 leads what it should lead."""
    topic_id = large(table, "orders", count, [1, 2])
    table.unregister(1)
    driver.work_off()
    table.register(1)
    return topic_id


def test_preferred_leaders_lead_again_when_they_have_been_in_sync_for_a_while(table: Table) -> None:
    driver = Driver(table, settings_of(60))
    topic_id = imbalanced(table, driver)
    assert driver.decide() == ControllerDecision(), "it is not in sync yet"
    driver.now_ms = 5000
    for number in range(3):
        table.set(TopicIdPartition(topic_id, number), isr=(2, 1))
    assert driver.decide() == ControllerDecision(wake_at_ms=65_000)
    driver.now_ms = 64_999
    assert driver.decide() == ControllerDecision(wake_at_ms=65_000)
    driver.now_ms = 65_000
    driver.work_off()
    for number in range(3):
        state = table.state(TopicIdPartition(topic_id, number))
        assert (state.leader, state.leader_epoch, state.isr) == (1, 2, (2, 1))
        assert state.leader_broker_epoch == table.image.brokers[1].epoch


def test_a_preferred_leader_that_falls_behind_waits_from_the_beginning(table: Table) -> None:
    driver = Driver(table, settings_of(60))
    place = TopicIdPartition(imbalanced(table, driver, 1), 0)
    table.set(place, isr=(2, 1))
    assert driver.decide().wake_at_ms == 60_000
    driver.now_ms = 30_000
    table.set(place, isr=(2,))
    assert driver.decide() == ControllerDecision()
    table.set(place, isr=(2, 1))
    assert driver.decide() == ControllerDecision(wake_at_ms=90_000)


def test_preferred_leaders_are_left_alone_if_that_is_switched_off(table: Table) -> None:
    driver = Driver(table, settings_of(60, enabled=False))
    place = TopicIdPartition(imbalanced(table, driver, 1), 0)
    table.set(place, isr=(2, 1))
    assert driver.decide() == ControllerDecision()
    driver.now_ms = 60_000
    assert driver.decide() == ControllerDecision()
    driver.settings = settings_of(60)
    driver.work_off()
    assert table.state(place).leader == 1


def test_many_preferred_leaders_are_moved_in_several_transactions(table: Table) -> None:
    driver = Driver(table, settings_of(60))
    topic_id = imbalanced(table, driver, 250)
    for number in range(250):
        table.set(TopicIdPartition(topic_id, number), isr=(2, 1))
    driver.decide()
    driver.now_ms = 60_000
    assert [len(orders.changes) for orders in driver.work_off()] == [99, 99, 52]


# -- what is left of topics


def test_leftovers_of_a_large_deleted_topic_are_removed(table: Table) -> None:
    before = set(table.states)
    topic_id = large(table, "orders", 300, [1])
    driver = Driver(table)
    topic = table.image.topics[topic_id]
    ops = plan_delete(topic, table.version(keys.topic_name("orders")))
    assert len(ops) <= OPERATIONS_MAX
    table.transact(ops)
    assert not table.image.topics
    driver.work_off()
    assert set(table.states) - {keys.CONTROLLER_EPOCH} == before
    assert not table.image.incomplete


def test_a_topic_left_half_created_is_removed_and_one_still_being_created_is_not(table: Table) -> None:
    wanted = NewTopic(name="orders", partitions=300)
    topic_id = b"\7" * 16
    table.transact(next_create(table.image, wanted, topic_id, MANY, "me").ops)
    driver = Driver(table)
    assert driver.decide() == ControllerDecision(), "a broker is still creating the topic"
    table.delete(keys.unfinished(topic_id))  # its session is over
    orders = driver.decide()
    table.transact([Put(keys.unfinished(topic_id), keys.encode("other"), 0)])
    with pytest.raises(Conflict):
        table.transact(orders.ops)
    table.delete(keys.unfinished(topic_id))
    driver.work_off()
    assert not table.image.incomplete


def test_partitions_of_a_topic_whose_number_of_partitions_is_not_stored_are_not_removed(table: Table) -> None:
    """Early versions did not store the number. A gap is no reason to delete what exists."""
    topic_id = table.create("orders", partitions=3)
    stored = keys.decode(table.image.topics[topic_id].dump())
    del stored["partitions"]
    table.put(keys.topic(topic_id), stored)
    table.delete(keys.partition(topic_id, 1))
    assert table.image.incomplete
    before = set(table.states)
    Driver(table).work_off()
    assert before <= set(table.states)


def test_partitions_that_a_topic_never_counted_are_removed_and_the_others_stay(table: Table) -> None:
    topic_id = table.create("orders", partitions=2)
    driver = Driver(table)
    for number in (2, 3):
        table.put(keys.partition(topic_id, number), keys.decode(table.state(TopicIdPartition(topic_id, 0)).dump()))
    assert list(table.image.incomplete[topic_id].partitions) == [2, 3]
    driver.work_off()
    assert not table.image.incomplete
    assert list(table.image.topics[topic_id].partitions) == [0, 1]


# -- a whole life

EVENTS = st.lists(
    st.tuples(st.sampled_from(range(9)), st.integers(1, 5), st.integers(0, 40)), min_size=5, max_size=50
)


class Life:
    """A cluster to which things happen. Every state that a partition ever had is checked against the one before."""

    def __init__(self) -> None:
        self.table = table_with_brokers(1, 2, 3, 4, 5)
        self.driver = Driver(self.table, settings_of(10))
        self.leaders: dict[tuple[TopicIdPartition, int], tuple[int, int]] = {}
        self.states: dict[TopicIdPartition, PartitionState] = {}
        for number in range(3):
            self.table.create(f"topic-{number}", partitions=3, replication_factor=number + 1)
        self.check()

    def happen(self, event: int, node: int, number: int) -> None:
        table = self.table
        places = [place for place, _ in table.image.find_partitions()]
        place = places[number % len(places)]
        match event:
            case 0:
                table.unregister(node)
            case 1:
                table.register(node)
            case 2 if node in table.image.brokers:
                table.transact(plan_leaving(table.image, node, table.image.brokers[node].epoch))
            case 3:
                self.change_isr(place, node)
            case 4:
                self.attempt(lambda: plan_reassign(table.image, place, sorted({node, node % 5 + 1, number % 5 + 1})))
            case 5:
                self.attempt(lambda: plan_cancel(table.image, place))
            case 6:
                self.driver.take_over()
            case 7:
                self.driver.now_ms += number * 1000
            case _:
                orders = self.driver.decide()
                if orders.ops:
                    table.transact(orders.ops)
        self.check()

    def change_isr(self, place: TopicIdPartition, node: int) -> None:
        """Changes the ISR as a leader does: adds replicas that have caught up, and removes others."""
        state = self.table.state(place)
        if state.leader not in self.table.image.brokers or node == state.leader or node not in state.replicas:
            return
        without = tuple(member for member in state.isr if member != node)
        if without != state.isr:
            self.table.set(place, isr=without)
        elif node in self.table.image.eligible():
            self.table.set(place, isr=(*state.isr, node))

    def work_off(self) -> None:
        while (orders := self.driver.decide()).ops:
            self.table.transact(orders.ops)
            self.check()

    def attempt(self, plan: object) -> None:
        try:
            ops = plan()  # type: ignore[operator]
        except PenstockError:
            return
        if ops:
            self.table.transact(ops)

    def check(self) -> None:
        for place, state in self.table.image.find_partitions():
            before = self.states.get(place)
            if before is not None and before.version != state.version:
                assert state.leader_epoch >= before.leader_epoch
                if state.leader not in (before.leader, NO_LEADER):
                    assert state.leader in before.isr, "only an in-sync replica is elected"
                    assert state.leader_epoch > before.leader_epoch
            assert state.isr
            assert set(state.isr) <= set(state.replicas)
            assert state.leader == NO_LEADER or state.leader in state.isr
            leader = (state.leader, state.leader_broker_epoch)
            assert self.leaders.setdefault((place, state.leader_epoch), leader) == leader, "one leader an epoch"
            self.states[place] = state


@given(events=EVENTS)
@examples(200, deadline=None)
def test_partitions_have_one_leader_per_epoch_and_recover(
    events: list[tuple[int, int, int]],
) -> None:
    life = Life()
    for event in events:
        life.happen(*event)
    life.work_off()
    brokers = life.table.image.brokers
    for _, state in life.table.image.find_partitions():
        able = [node for node in state.isr if node in brokers and not brokers[node].leaving]
        if able:
            assert state.leader in able
    for node in range(1, 6):
        life.table.register(node)
    life.work_off()
    assert not list(life.table.image.offline())
    for _ in range(4):
        for place, state in life.table.image.find_partitions():
            missing = [node for node in state.replicas if node not in state.isr]
            if missing:
                life.table.set(place, isr=(*state.isr, *missing))
                life.check()
        life.driver.now_ms += 20_000
        life.work_off()
    for _, state in life.table.image.find_partitions():
        assert (state.leader, state.is_reassigned) == (state.replicas[0], False)


def test_a_look_at_an_image_that_has_not_changed_costs_nothing(table: Table) -> None:
    large(table, "orders", 200, [1, 2])
    driver = Driver(table)
    driver.decide()
    looked: list[str] = []
    driver.controller._is_unclean = lambda topic: bool(looked.append(topic.name))
    driver.decide()
    table.put(keys.PRODUCER_IDS, 5)
    driver.decide()
    assert looked == []
    table.put(keys.broker(2), keys.decode(replace(table.image.brokers[2], leaving=True).dump()))
    driver.decide()
    assert looked == ["orders"]


def test_the_controller_is_taken_by_one_broker_alone(table: Table) -> None:
    plans = [plan_take_control(table.image, node, table.image.brokers[node].epoch) for node in (1, 2)]
    table.transact(plans[0])
    with pytest.raises(Conflict):
        table.transact(plans[1])
    assert table.image.controller_id == 1
    table.delete(keys.CONTROLLER)
    table.transact(plan_leaving(table.image, 3, table.image.brokers[3].epoch))
    assert plan_take_control(table.image, 3, table.image.brokers[3].epoch) == [], "it is about to go"
    table.transact(plan_take_control(table.image, 1, table.image.brokers[1].epoch))
    assert table.image.controller_epoch == 2
    assert plan_take_control(table.image, 2, table.image.brokers[2].epoch) == []
