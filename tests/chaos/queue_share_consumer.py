"""A process of share consumers: they consume a queue as members of the share group of its name."""

import itertools
import os
import threading
from collections import defaultdict
from random import Random
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from .child import Orders, note, options
from .queue_calls import now_s
from .queue_checker import Verdict
from .queue_worker import is_refused

POLL_S: Final = 0.5
COMMIT_S: Final = 15.0
SETTINGS: Final = {
    "share.acknowledgement.mode": "explicit",
    "max.poll.records": 5,
    "log_level": 0,
    "reconnect.backoff.max.ms": 1000,
    "socket.timeout.ms": 10_000,
}


class Sharer(threading.Thread):
    """One share consumer. How long a message is in flight is not known: it is released when the connection breaks."""

    def __init__(self, name: str, queue: str, servers: str, orders: Orders, rng: Random) -> None:
        super().__init__()
        self._own_name = name
        self._queue = queue
        self._orders = orders
        self._rng = rng
        self._numbers = itertools.count()
        self._began_s = now_s()
        """Since then a message that is polled may be here: it is fetched ahead."""
        self._consumer = ShareConsumer({**SETTINGS, "bootstrap.servers": servers, "group.id": queue})

    def run(self) -> None:
        self._consumer.subscribe([self._queue])
        while not self._orders.stopping.is_set():
            try:
                found = [message for message in self._consumer.poll(POLL_S) if self._is_good(message)]
                if found:
                    self._work(found)
            except KafkaException as error:
                note("trouble", self._own_name, str(error)[:200])
        self._consumer.close()

    def _is_good(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            note("trouble", self._own_name, str(error)[:200])
        return error is None

    def _work(self, found: list[Message]) -> None:
        call, ended_s = f"{self._own_name}.{next(self._numbers)}", now_s()
        keys = [f"{call}.{at}" for at in range(len(found))]
        lines = [
            [key, message.value().decode(), "", message.delivery_count(), "", ""]
            for key, message in zip(keys, found, strict=True)
        ]
        note("got", call, self._queue, self._began_s, ended_s, 0, lines)
        places: dict[tuple[str, int], list[str]] = defaultdict(list)
        for key, message in zip(keys, found, strict=True):
            self._acknowledge(key, message)
            places[message.topic(), message.partition()].append(key)
        said = self._commit()
        for place, those in places.items():
            # An error of one acknowledgement is reported for all; which of them were applied is unknown.
            outcome = "ok" if place in said and said[place] is None else "info"
            for key in those:
                note("end", key, now_s(), outcome)

    def _commit(self) -> dict[tuple[str, int], Any]:
        try:
            answer = self._consumer.commit_sync(COMMIT_S)
        except KafkaException as error:
            note("trouble", self._own_name, f"commit {str(error)[:200]}")
            return {}
        return {(place.topic, place.partition): error for place, error in answer.items()}

    def _acknowledge(self, key: str, message: Message) -> None:
        if not is_refused(message.value().decode()):
            verdict, kind = Verdict.DELETE, AcknowledgeType.ACCEPT
        elif self._rng.random() < 0.3:
            verdict, kind = Verdict.REJECT, AcknowledgeType.REJECT
        else:
            verdict, kind = Verdict.CHANGE, AcknowledgeType.RELEASE
        note("try", key, verdict, now_s(), 0)
        self._consumer.acknowledge(message, kind)


def main() -> None:
    wanted, orders = options(), Orders()
    rng = Random(f"{wanted['seed']} {wanted['name']}")
    note("began", os.getpid())
    sharers = [
        Sharer(f"{wanted['name']}.{number}", wanted["queue"], wanted["kafka"], orders, Random(rng.random()))
        for number in range(wanted["count"])
    ]
    for sharer in sharers:
        sharer.start()
    for sharer in sharers:
        sharer.join()


if __name__ == "__main__":
    main()
