"""Reads for a follower's Fetch: checks which broker sent it and applies the replication throttle (KIP-73)."""

from typing import Self

from penstock.broker.broker import Broker
from penstock.broker.fetch.sessions import Key
from penstock.foundation.errors import NotLeaderOrFollower
from penstock.replication.errors import UnknownLeaderEpoch
from penstock.replication.follower_fetch import serve_follower
from penstock.replication.partition import Partition
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData, ReplicaState


class FollowerReads:
    """Reads the partitions of one Fetch request that a follower sent."""

    def __init__(self, replica: ReplicaState, broker: Broker) -> None:
        self._replica = replica
        self._broker = broker
        self._throttled_bytes = 0
        self.throttled: set[Key] = set()
        """Partitions from which the follower gets no bytes until the replication throttle allows more."""

    @classmethod
    def of(cls, request: FetchRequest, broker: Broker) -> Self | None:
        """Returns a FollowerReads if a follower sent the request, or None if a consumer sent it."""
        replica = request.replica_state or ReplicaState(replica_id=request.replica_id)
        return cls(replica, broker) if replica.replica_id >= 0 else None

    def begin(self) -> None:
        """Resets the throttled partitions and bytes before the request's partitions are read again."""
        self._throttled_bytes = 0
        self.throttled = set()

    def read(
        self, partition: Partition, key: Key, wanted: FetchPartition, limit_bytes: int, *, force: bool, blocking: bool
    ) -> PartitionData:
        """Reads up to `limit_bytes` of one partition; at least one batch if `force`. If the throttle allows no
        bytes, adds `key` to `throttled`. Raises Kafka errors; unless `blocking`, ColdRead if data is only on disk."""
        now_ms = self._broker.clock.steady_ms()
        self._check_replica(partition, wanted)
        is_throttled = self._is_throttled(partition)
        if is_throttled:
            allowed_bytes = self._broker.throttle.available(now_ms) - self._throttled_bytes
            limit_bytes, force = min(limit_bytes, allowed_bytes), force and allowed_bytes > 0
            if allowed_bytes <= 0:
                self.throttled.add(key)
        data = serve_follower(partition, wanted, self._replica, limit_bytes, now_ms, force=force, blocking=blocking)
        if is_throttled:
            self._throttled_bytes += len(data.records or b"")
        return data

    def charge_throttle(self) -> None:
        """Counts the bytes of the response against the replication throttle."""
        if self._throttled_bytes:
            self._broker.throttle.take(self._throttled_bytes, self._broker.clock.steady_ms())

    def _check_replica(self, partition: Partition, wanted: FetchPartition) -> None:
        """Raises NotLeaderOrFollower or UnknownLeaderEpoch unless the follower is a replica and sent its current
        broker epoch.

        The check protects the high watermark, which fetches of followers advance. If this broker's metadata is older
        than the follower's, the follower is refused and retries, as in Kafka.
        """
        replica_id, epoch = self._replica.replica_id, self._replica.replica_epoch
        registered = self._broker.image.brokers.get(replica_id)
        if replica_id == self._broker.node_id or registered is None or registered.epoch != epoch:
            raise NotLeaderOrFollower(f"broker {replica_id} is not registered with epoch {epoch} here")
        state = self._broker.image.state(partition.tp)
        if state is None or replica_id not in state.replicas:
            reason = f"broker {replica_id} has no replica of {partition.name}"
            raise UnknownLeaderEpoch(reason) if wanted.current_leader_epoch >= 0 else NotLeaderOrFollower(reason)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the throttle applies: the topic is throttled here and the follower is not in the ISR."""
        if (partition.name.partition, self._broker.node_id) not in partition.log.settings.leader_throttled:
            return False
        state = self._broker.image.state(partition.tp)
        return state is not None and self._replica.replica_id not in state.isr
