"""What the simulation of queues keeps messages in: a partition's log, with the idempotence of the real one."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.foundation.decision import ProducerKey
from penstock.log.producers import Producers
from penstock.records.batch import BatchHeader

NO_PRODUCER = ProducerKey(-1, -1)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; a copy of it that was moved has made one more hop."""

    uid: int
    group: str
    due_ms: int = 0
    hops: int = 0
    deduplication_id: str = ""
    sent_ms: int = 0

    def moved(self) -> "Message":
        return replace(self, due_ms=0, hops=self.hops + 1, deduplication_id="")


class Entry(NamedTuple):
    message: Message
    producer: ProducerKey = NO_PRODUCER
    sequence: int = -1


def _header(producer: ProducerKey, sequence: int) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, producer.producer_id, producer.epoch, sequence, 1)


@dataclass(eq=False, slots=True)
class Log:
    """Messages in order. What is below the high watermark survives a change of leaders."""

    entries: list[Entry] = field(default_factory=list)
    high_watermark: int = 0
    start: int = 0
    producers: Producers = field(default_factory=Producers)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def append(self, message: Message) -> None:
        """By a client that does not repeat itself; committed at once, unless something before it is not."""
        self.entries.append(Entry(message))
        if self.high_watermark == len(self.entries) - 1:
            self.high_watermark += 1

    def append_copy(self, message: Message, producer: ProducerKey, sequence: int, now_ms: int) -> tuple[int, bool]:
        """Its offset, and whether it was there before. Raises OutOfOrderSequence, InvalidProducerEpoch."""
        header = _header(producer, sequence)
        before = self.producers.check(header)
        if before is not None:
            return before.base_offset, True
        self.producers.apply(header, len(self.entries), now_ms, now_ms)
        self.entries.append(Entry(message, producer, sequence))
        return len(self.entries) - 1, False

    def elect(self, end: int, now_ms: int) -> list[Message]:
        """Another replica leads, which has all up to here; what is lost. It knows producers by what it has."""
        lost = [entry.message for entry in self.entries[end:]]
        del self.entries[end:]
        self.producers = Producers()
        for offset, (_, producer, sequence) in enumerate(self.entries):
            if producer is not NO_PRODUCER:
                self.producers.apply(_header(producer, sequence), offset, now_ms, now_ms)
        return lost
