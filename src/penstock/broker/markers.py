"""Writing the ends of transactions to every partition that they wrote to, until all have them."""

import logging
from collections.abc import Callable
from typing import Final

from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import InvalidProducerEpoch, PenstockError, TransactionCoordinatorFenced
from penstock.foundation.ids import TopicPartition
from penstock.replication.partitions import Partitions
from penstock.replication.runtimes import StateRuntimes
from penstock.transactions.commands import WriteMarkers

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5


class Markers:
    """Performs what the transaction coordinators ask for."""

    def __init__(self, *, partitions: Partitions, clock: Clock, timer: Timer, knows: Callable[[str], bool]) -> None:
        self._partitions = partitions
        self._clock = clock
        self._timer = timer
        self._knows = knows
        self.transactions: StateRuntimes | None = None

    def write(self, effect: WriteMarkers) -> None:
        _Writing(effect, self._partitions, self._clock, self._timer, self._knows, self._done).go_on()

    def _done(self, effect: WriteMarkers) -> None:
        assert self.transactions is not None
        self.transactions.submit(effect.transactional_id, effect.written(), _ignore)


class _Writing:
    """One transaction's markers."""

    def __init__(
        self,
        effect: WriteMarkers,
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        knows: Callable[[str], bool],
        done: Callable[[WriteMarkers], None],
    ) -> None:
        self._effect = effect
        self._partitions = partitions
        self._clock = clock
        self._timer = timer
        self._knows = knows
        self._done = done
        self._missing = set(effect.partitions)
        self._uncommitted = 0
        self._is_done = False

    def go_on(self) -> None:
        """Write what is missing. What cannot be written now is tried again later."""
        for place in sorted(self._missing):
            self._try(place)
        if self._missing:
            self._timer(RETRY_S, self.go_on)
        self._finish_if_done()

    def _try(self, place: TopicPartition) -> None:
        effect = self._effect
        partition = self._partitions.find(*place)
        if partition is None:
            if not self._knows(place.topic):
                self._missing.discard(place)  # the topic was deleted: nobody will read what is not there
            return
        try:
            written = partition.write_marker(
                effect.producer,
                effect.committed,
                effect.coordinator_epoch,
                self._clock.now_ms(),
                effect.transaction_version,
            )
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            # Someone newer has ended it already.
            logger.warning("marker_refused partition=%s reason=%r", place, str(error))
            self._missing.discard(place)
            return
        except PenstockError as error:
            logger.warning("marker_not_written partition=%s reason=%r", place, str(error))
            return
        self._missing.discard(place)
        self._uncommitted += 1
        end = written.last_offset + 1
        partition.when_committed(end, lambda: self._on_committed(place, partition.high_watermark >= end))

    def _on_committed(self, place: TopicPartition, is_committed: bool) -> None:
        self._uncommitted -= 1
        if not is_committed:  # the partition is not led from here any more, or has no disk
            if not self._missing:
                self._timer(RETRY_S, self.go_on)
            self._missing.add(place)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if not self._missing and not self._uncommitted and not self._is_done:
            self._is_done = True
            self._done(self._effect)


def _ignore(value: object) -> None:
    """A coordinator that has moved on asks again by itself."""
