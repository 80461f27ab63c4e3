"""Writes transaction markers to all partitions of an ended transaction; retries until every leader has them."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.broker.peers import AskPeer
from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtimes import StateRuntimes
from penstock.transactions.commands import WriteMarkers
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
_ENDED: Final = frozenset(
    (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
)
"""Error codes after which a marker is not retried: it is written, or a newer producer or coordinator epoch exists."""


class MarkerWriter:
    """Writes the transaction markers that transaction coordinators request (WriteMarkers)."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        image: Callable[[], ClusterImage],
        ask: AskPeer,
    ) -> None:
        self.node_id = node_id
        self.partitions = partitions
        self.clock = clock
        self.timer = timer
        self.image = image
        self.ask = ask
        self.transactions: StateRuntimes | None = None

    def write(self, effect: WriteMarkers) -> None:
        _MarkerWrite(effect, self).write_missing()

    def is_coordinator_here(self, effect: WriteMarkers) -> bool:
        """Whether this broker still coordinates the transaction; if not, the new coordinator writes the markers."""
        assert self.transactions is not None
        return self.transactions.is_here(effect.transactional_id)

    def report_written(self, effect: WriteMarkers) -> None:
        assert self.transactions is not None
        self.transactions.submit(effect.transactional_id, effect.written(), _ignore)


class _MarkerWrite:
    """The writing of one transaction's markers to all its partitions."""

    def __init__(self, effect: WriteMarkers, owner: MarkerWriter) -> None:
        self._effect = effect
        self._owner = owner
        self._missing = set(effect.partitions)
        """Partitions that still need the marker and for which no write is in progress."""
        self._in_progress = 0
        self._is_retry_scheduled = False
        self._is_done = False
        self._reported: dict[TopicPartition, int] = {}
        """The last error code logged for each partition: a retry that fails with the same code is not logged."""

    def write_missing(self) -> None:
        """Writes the missing markers to partitions on this and other brokers; schedules a retry of failed writes."""
        if not self._owner.is_coordinator_here(self._effect):
            return
        self._is_retry_scheduled = True  # results that arrive at once must not schedule a retry
        image, elsewhere = self._owner.image(), dict[int, list[TopicPartition]]()
        for tp in sorted(self._missing):
            partition = self._owner.partitions.find(*tp)
            topic = image.by_name.get(tp.topic)
            if partition is not None:
                self._write(tp, partition)
            elif topic is None or tp.partition not in topic.partitions:
                self._missing.discard(tp)  # the topic was deleted: no marker is needed
            elif (leader := topic.partitions[tp.partition].leader) in image.brokers:
                elsewhere.setdefault(leader, []).append(tp)
        for node, tps in elsewhere.items():
            if node != self._owner.node_id:
                self._send(node, tps)
        self._is_retry_scheduled = False
        self._finish_or_retry()

    def _finish_or_retry(self) -> None:
        if self._missing and not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            self._owner.timer(RETRY_S, self.write_missing)
        if not self._missing and not self._in_progress and not self._is_done:
            self._is_done = True
            self._owner.report_written(self._effect)

    # -- partitions led here

    def _write(self, tp: TopicPartition, partition: Partition) -> None:
        effect = self._effect
        try:
            written = partition.write_marker(
                effect.producer,
                effect.committed,
                effect.coordinator_epoch,
                self._owner.clock.now_ms(),
                effect.transaction_version,
            )
        except PenstockError as error:
            self._on_result(tp, error.code)
            return
        self._missing.discard(tp)
        self._in_progress += 1
        end = written.last_offset + 1
        partition.when_committed(end, lambda: self._on_committed(tp, partition.has_committed(end)))

    def _on_committed(self, tp: TopicPartition, is_committed: bool) -> None:
        self._in_progress -= 1
        if not is_committed:  # no longer the leader, or the log is offline
            self._missing.add(tp)
        self._finish_or_retry()

    def _on_result(self, tp: TopicPartition, code: ErrorCode | int) -> None:
        """Handles the error code of a marker write to one partition."""
        if code and self._reported.get(tp) != code:
            self._reported[tp] = code
            outcome = "given_up" if code in _ENDED else "retried"
            logger.warning("marker_not_written partition=%s code=%s outcome=%s", tp, ErrorCode(code).name, outcome)
        if code in _ENDED:
            self._missing.discard(tp)

    # -- partitions led by other brokers

    def _send(self, node: int, tps: Sequence[TopicPartition]) -> None:
        effect = self._effect
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=effect.producer.producer_id,
                    producer_epoch=effect.producer.epoch,
                    transaction_result=effect.committed,
                    topics=_by_topic(tps),
                    coordinator_epoch=effect.coordinator_epoch,
                    transaction_version=effect.transaction_version,
                )
            ]
        )
        self._missing.difference_update(tps)
        self._in_progress += 1
        self._owner.ask(node, request, lambda answer: self._on_answer(tps, answer))

    def _on_answer(self, tps: Sequence[TopicPartition], answer: Any) -> None:
        self._in_progress -= 1
        self._missing.update(tps)
        if isinstance(answer, WriteTxnMarkersResponse):
            for marker in answer.markers:
                for topic in marker.topics:
                    for one in topic.partitions:
                        self._on_result(TopicPartition(topic.name, one.partition_index), one.error_code)
        self._finish_or_retry()


def _by_topic(tps: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    found: dict[str, list[int]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp.partition)
    return [WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in found.items()]


def _ignore(value: object) -> None:
    """Ignores the coordinator's reply: if the coordinator has moved, the new coordinator writes the markers again."""
