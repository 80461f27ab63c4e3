"""Writing the ends of transactions to every partition that they wrote to, until all have them."""

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
"""After these there is nothing left to do: it is written, or someone newer has ended it already."""


class Markers:
    """Performs what the transaction coordinators ask for."""

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
        _Writing(effect, self).go_on()

    def is_wanted(self, effect: WriteMarkers) -> bool:
        """Whether the coordinator that wants it is here still: if not, the next one begins again."""
        assert self.transactions is not None
        return self.transactions.is_here(effect.transactional_id)

    def done(self, effect: WriteMarkers) -> None:
        assert self.transactions is not None
        self.transactions.submit(effect.transactional_id, effect.written(), _ignore)


class _Writing:
    """One transaction's markers."""

    def __init__(self, effect: WriteMarkers, owner: Markers) -> None:
        self._effect = effect
        self._owner = owner
        self._missing = set(effect.partitions)
        """Those that do not have it yet, and nobody is at it."""
        self._under_way = 0
        self._is_resting = False
        self._is_done = False

    def go_on(self) -> None:
        """Write what is missing, here and elsewhere. What cannot be written now is tried again later."""
        if not self._owner.is_wanted(self._effect):
            return
        self._is_resting = True  # what is done on the spot leaves the rest to us
        image, elsewhere = self._owner.image(), dict[int, list[TopicPartition]]()
        for place in sorted(self._missing):
            partition = self._owner.partitions.find(*place)
            topic = image.by_name.get(place.topic)
            if partition is not None:
                self._write(place, partition)
            elif topic is None or place.partition not in topic.partitions:
                self._missing.discard(place)  # the topic was deleted: nobody will read what is not there
            elif (leader := topic.partitions[place.partition].leader) in image.brokers:
                elsewhere.setdefault(leader, []).append(place)
        for node, places in elsewhere.items():
            if node != self._owner.node_id:
                self._send(node, places)
        self._is_resting = False
        self._settle()

    def _settle(self) -> None:
        if self._missing and not self._is_resting:
            self._is_resting = True
            self._owner.timer(RETRY_S, self.go_on)
        if not self._missing and not self._under_way and not self._is_done:
            self._is_done = True
            self._owner.done(self._effect)

    # -- here

    def _write(self, place: TopicPartition, partition: Partition) -> None:
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
            self._take(place, error.code)
            return
        self._missing.discard(place)
        self._under_way += 1
        end = written.last_offset + 1
        partition.when_committed(end, lambda: self._on_committed(place, partition.has_committed(end)))

    def _on_committed(self, place: TopicPartition, is_committed: bool) -> None:
        self._under_way -= 1
        if not is_committed:  # the partition is not led from here any more, or has no disk
            self._missing.add(place)
        self._settle()

    def _take(self, place: TopicPartition, code: ErrorCode | int) -> None:
        """What became of one partition's marker."""
        if code:
            logger.warning("marker_not_written partition=%s code=%s", place, ErrorCode(code).name)
        if code in _ENDED:
            self._missing.discard(place)

    # -- elsewhere

    def _send(self, node: int, places: Sequence[TopicPartition]) -> None:
        effect = self._effect
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=effect.producer.producer_id,
                    producer_epoch=effect.producer.epoch,
                    transaction_result=effect.committed,
                    topics=_by_topic(places),
                    coordinator_epoch=effect.coordinator_epoch,
                    transaction_version=effect.transaction_version,
                )
            ]
        )
        self._missing.difference_update(places)
        self._under_way += 1
        self._owner.ask(node, request, lambda answer: self._on_answer(places, answer))

    def _on_answer(self, places: Sequence[TopicPartition], answer: Any) -> None:
        self._under_way -= 1
        self._missing.update(places)
        if isinstance(answer, WriteTxnMarkersResponse):
            for marker in answer.markers:
                for topic in marker.topics:
                    for one in topic.partitions:
                        self._take(TopicPartition(topic.name, one.partition_index), one.error_code)
        self._settle()


def _by_topic(places: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place.partition)
    return [WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in found.items()]


def _ignore(value: object) -> None:
    """A coordinator that has moved on asks again by itself."""
