"""One seeded run of a consumer group (heartbeat_group_run.py), with static members and subscriptions that change.

The invariant of one owner is OneOwnerPerPartition.
"""

from collections import Counter
from typing import Any, ClassVar

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import AWAY
from tests.simulation.consumer_client import Consumer
from tests.simulation.group_machines import ConsumerMachine, settings_of
from tests.simulation.heartbeat_client import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.simulation.heartbeat_group_run import PARTITIONS_MAX, HeartbeatGroupRun

TOPICS = ("orders", "orders-eu", "orders-us", "bills", "clicks")
REGEXES = ("orders.*", "orders-..", "bills|clicks", ".*s", "nothing")
RECOVERED = ("epoch", "metadata_hash", "target_epoch", "members", "by_instance", "targets", "owners", "regexes")


class ConsumerGroupRun(HeartbeatGroupRun):
    one_owner = "OneOwnerPerPartition"
    recovered = RECOVERED
    actions: ClassVar = {
        "nothing": 60,
        "kill": 2,
        "leave": 2,
        "return": 8,
        "resubscribe": 2,
        "hang": 1,
        "change_topics": 3,
        "restart": 1.5,
        "cut": 1,
        "heal": 4,
    }

    def _new_topics(self) -> dict[str, int]:
        return {name: self.rng.randint(1, 4) for name in self.rng.sample(TOPICS, 3)}

    def _new_machine(self) -> ConsumerMachine:
        return ConsumerMachine(
            self._image(),
            settings_of(
                group_consumer_session_timeout_ms=SESSION_MS,
                group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
                group_consumer_assignors=self.rng.choice(("uniform", "range", "uniform,range")),
            ),
        )

    def _new_clients(self) -> list[Any]:
        return [self._new_consumer(f"c{number}") for number in range(self.rng.randint(3, 8))]

    def _new_consumer(self, place: str, instance_id: str | None = None) -> Consumer:
        if instance_id is None and self.rng.random() < 0.5:
            # Seldom two have the same instance id, by a mistake in their configuration.
            instance_id = f"instance-{place}" if self.rng.random() < 0.9 else "instance-c0"
        version = 0 if instance_id is None and self.rng.random() < 0.2 else 1
        self.counts["started"] += 1
        consumer = Consumer(
            **self._client_fields(place),
            member_id="" if version == 0 else f"{place}-{self.counts['started']}",
            instance_id=instance_id,
            version=version,
        )
        self._subscribe(consumer)
        return consumer

    def _subscribe(self, consumer: Consumer) -> None:
        by_regex = consumer.version >= 1 and self.rng.random() < 0.4
        consumer.regex = self.rng.choice(REGEXES) if by_regex else ""
        count = self.rng.randint(0 if by_regex else 1, 3)
        consumer.names = frozenset(self.rng.sample(TOPICS, count))

    # -- actions

    def _leave(self) -> None:
        consumer = self._running()
        if consumer is not None:
            comes_back = consumer.instance_id is not None and self.rng.random() < 0.7
            consumer.leave(AWAY if comes_back else -1)
            self.counts["away" if comes_back else "leaves"] += 1

    def _successor(self, old: Consumer) -> Consumer:
        """A new process or, seldom, the same one, which had only unsubscribed."""
        if self.rng.random() < 0.2:
            old.is_running = True
            old.rejoin(self.clock.now_ms())
            self._subscribe(old)
            return old
        return self._new_consumer(old.place, old.instance_id)

    def _resubscribe(self) -> None:
        consumer = self._running()
        if consumer is not None:
            self._subscribe(consumer)
            self.counts["resubscribed"] += 1

    def _change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        if name not in self.sizes:
            self.sizes[name] = self.rng.randint(1, 4)
            self.counts["topics_created"] += 1
        elif self.rng.random() < 0.5:
            self.sizes[name] = min(PARTITIONS_MAX, self.sizes[name] + self.rng.randint(1, 3))
            self.counts["topics_grown"] += 1
        else:
            del self.sizes[name]
            self.incarnations[name] += 1
            self.counts["topics_deleted"] += 1
        self._publish()

    # -- invariants

    def _check(self) -> None:
        super()._check()
        check_assigned_once(self.machine.group.state)

    def _check_progress(self) -> None:
        self._stop_duplicates()
        self._pass(2 * (SESSION_MS + REBALANCE_MS) + 20 * HEARTBEAT_MS)
        self._await_rebalance()
        self._check_stable()
        self.sizes["orders"] = self.sizes.get("orders", 0) + 1
        self._publish_unpersisted()
        self._pass(20 * HEARTBEAT_MS)
        self._check_stable()

    def _stop_duplicates(self) -> None:
        """Stops all but one of the consumers that have the same instance id."""
        by_instance = self.machine.group.state.by_instance
        for consumer in self.clients:
            rivals = [one for one in self.clients if one.is_running and one.instance_id == consumer.instance_id]
            if consumer.instance_id is not None and len(rivals) > 1:
                holder = next((one for one in rivals if one.member_id == by_instance.get(one.instance_id)), rivals[0])
                for rival in rivals:
                    if rival is not holder:
                        rival.stop()

    def _check_stable(self) -> dict[str, Any]:
        running = super()._check_stable()
        state = self.machine.group.state
        subscribed = {
            name
            for member in state.members.values()
            for name in (*member.topic_names, *state.regexes.get(member.topic_regex, ()))
        }
        wanted = {
            TopicIdPartition(topic.topic_id, number)
            for topic in self.machine.image.topics.values()
            if topic.name in subscribed
            for number in topic.partitions
        }
        owned = {partition for consumer in running.values() for partition in consumer.owned}
        assert owned == wanted, "not every subscribed partition has an owner"
        return running


def check_assigned_once(state: Any) -> None:
    """Raises AssertionError if a consumer group has assigned a partition to two members."""
    held: dict[TopicIdPartition, str] = {}
    for member in state.members.values():
        for partition in (*member.assigned, *member.revoking):
            assert partition not in held, (
                f"OneOwnerPerPartition: {held[partition]} and {member.member_id} hold {partition}"
            )
            held[partition] = member.member_id
    assert held == state.owners
    targets = Counter(partition for target in state.targets.values() for partition in target)
    assert all(count == 1 for count in targets.values()), "OneOwnerPerPartition: a target has a partition twice"
