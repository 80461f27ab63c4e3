"""A store's contents as a plain table, and images built from it."""

from collections.abc import Iterable
from dataclasses import replace

from penstock.cluster import keys
from penstock.cluster.image import Broker, ClusterImage, PartitionState
from penstock.cluster.topic_changes import Defaults, NewTopic
from penstock.coordination.store import ABSENT, Change, Check, Conflict, Delete, Op, Put, Versioned
from penstock.foundation.ids import INTERNAL_TOPICS, TopicIdPartition
from tests.unit.cluster.topic_plans import plan_create

DEFAULTS = Defaults(partitions=1, replication_factor=1, partitions_max=100)


class Table:
    """Applies operations as a store does, and tells each change."""

    def __init__(self) -> None:
        self.states: dict[str, Versioned] = {}
        self.revision = 0
        self.image = ClusterImage()

    def transact(self, ops: Iterable[Op]) -> Change:
        ops = list(ops)
        for op in ops:
            found = self.states.get(op.key)
            if (found.version if found else ABSENT) != op.version:
                raise Conflict(op.key)
        self.revision += 1
        changed: dict[str, Versioned | None] = {}
        for op in ops:
            match op:
                case Put():
                    changed[op.key] = self.states[op.key] = Versioned(value=op.value, version=self.revision)
                case Delete():
                    del self.states[op.key]
                    changed[op.key] = None
                case Check():
                    pass
        change = Change(revision=self.revision, states=changed)
        self.image = self.image.with_change(change)
        return change

    def snapshot(self) -> Change:
        return Change(revision=self.revision, snapshot=True, states=dict(sorted(self.states.items())))

    def put(self, key: str, value: object) -> Change:
        return self.transact([Put(key, keys.encode(value), self.version(key))])

    def delete(self, key: str) -> Change:
        return self.transact([Delete(key, self.version(key))])

    def version(self, key: str) -> int:
        found = self.states.get(key)
        return found.version if found else ABSENT

    def create(self, name: str, **wanted: object) -> bytes:
        """Make a topic; its id."""
        topic_id = (self.revision + 1).to_bytes(16, "big")
        if name in INTERNAL_TOPICS:
            wanted.setdefault("configs", {"cleanup.policy": "compact"})
        self.transact(plan_create(self.image, NewTopic(name=name, **wanted), topic_id, DEFAULTS))  # type: ignore[arg-type]
        return topic_id

    def register(self, node_id: int, **about: object) -> Broker:
        """Registers a broker with a new broker epoch."""
        self.unregister(node_id)
        epoch = self.revision + 1
        broker = Broker(node_id=node_id, host=f"host-{node_id}", port=9092, epoch=epoch, **about)  # type: ignore[arg-type]
        self.transact(
            [
                Put(keys.broker(node_id), broker.dump(), ABSENT, leased=True),
                Put(keys.incarnation(epoch), keys.encode(node_id), ABSENT, leased=True),
            ]
        )
        return broker

    def unregister(self, node_id: int) -> None:
        """Its session is over."""
        known = self.image.brokers.get(node_id)
        if known is not None:
            gone = [keys.broker(node_id), keys.incarnation(known.epoch)]
            self.transact(Delete(key, self.version(key)) for key in gone)

    def state(self, place: TopicIdPartition) -> PartitionState:
        found = self.image.state(place)
        assert found is not None
        return found

    def set(self, place: TopicIdPartition, **changes: object) -> PartitionState:
        """Change a partition's state by hand."""
        state = replace(self.state(place), **changes)  # type: ignore[arg-type]
        self.transact([Put(keys.partition(*place), state.dump(), state.version)])
        return self.state(place)


def table_with_brokers(*node_ids: int) -> Table:
    table = Table()
    for node_id in node_ids:
        table.register(node_id)
    return table
