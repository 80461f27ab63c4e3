"""`python -m bench.delays [--messages N]`: the three figures of delayed messages.

1. RssAnon of the broker with N messages pending over a year, against none;
2. how long it takes after `kill -9` until it serves them: ready, and messages of before and of now delivered;
3. lateness with 2,000 due a second, while others produce and consume.
"""

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.measure import settle
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

TOPIC: Final = "delayed"
BESIDE: Final = "beside"
YEAR_S: Final = 364 * 86_400
MEMORY_MB_MAX: Final = 400
RECOVERY_S_MAX: Final = 10
LATE_MS_MAX: Final = 250
KEPT_S_MAX: Final = 600
REST_S: Final = 12
"""Longer than the broker's own notes on its progress are apart: its memory is looked at when it has nothing to do."""
QUIET: Final = {"log_level": 0}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def create(broker: BrokerProcess, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka, **QUIET})
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    (made,) = admin.create_topics([NewTopic(topic, 1, config=wanted)]).values()
    made.result(30)


def producer(broker: BrokerProcess) -> Producer:
    settings = {"linger.ms": 20, "batch.size": 262_144, "queue.buffering.max.messages": 1_000_000}
    return Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True, **settings, **QUIET})


def fill(broker: BrokerProcess, count: int, rng: random.Random) -> None:
    """Messages of 100 bytes, each due at another time within a year."""
    out, value, base_ms = producer(broker), b"x" * 100, now_ms() + 3_600_000
    for number in range(count):
        due_ms = base_ms + rng.randrange(YEAR_S * 1000 - 7_200_000)
        while True:
            try:
                out.produce(TOPIC, value, b"key-%d" % number, headers={"penstock-deliver-at": b"%d" % due_ms})
                break
            except BufferError:
                out.poll(0.1)
        if number % 10_000 == 0:
            out.poll(0)
    assert out.flush(300) == 0, "not everything was acknowledged"
    wait_until(lambda: broker.metric("penstock_delayed_pending") >= count, "all are kept", KEPT_S_MAX, 0.5)


def consumer(broker: BrokerProcess, topic: str, offset: int) -> Consumer:
    made = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "bench", "fetch.wait.max.ms": 50, "enable.auto.commit": False}
        | QUIET
    )
    made.assign([TopicPartition(topic, 0, offset)])
    return made


def end_of(broker: BrokerProcess, topic: str) -> int:
    probe = consumer(broker, topic, 0)
    try:
        return int(probe.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
    finally:
        probe.close()


def recover(broker: BrokerProcess, pending: int) -> tuple[float, float]:
    """Seconds from a start after `kill -9` to ready, and to a message that is published then and delivered."""
    began_s = time.monotonic()
    broker.start()
    ready_s = time.monotonic() - began_s
    end = end_of(broker, TOPIC)
    out = producer(broker)
    out.produce(TOPIC, b"now", headers={"penstock-delay": b"1ms"})
    out.flush(60)
    reader = consumer(broker, TOPIC, end)
    while (message := reader.poll(60)) is None or message.error() is not None or message.value() != b"now":
        pass
    served_s = time.monotonic() - began_s
    reader.close()
    assert broker.metric("penstock_delayed_pending") == pending, "messages were lost"
    return ready_s, served_s


def lateness(broker: BrokerProcess, rate: int, seconds: int) -> list[int]:
    """How late each message of a flow was seen by a consumer, in milliseconds, while others work beside it."""
    end = end_of(broker, TOPIC)
    out, total, first_ms = producer(broker), rate * seconds, now_ms() + 5000
    for number in range(total):
        due_ms = first_ms + number * 1000 // rate
        out.produce(TOPIC, b"due", headers={"penstock-deliver-at": b"%d" % due_ms})
    out.flush(60)
    load = _load(broker)
    reader, late = consumer(broker, TOPIC, end), []
    while len(late) < total:
        next(load)
        for message in reader.consume(1000, 0.005):
            if message.error() is None and message.value() == b"due":
                due_ms = int(dict(message.headers())["penstock-due-at"])
                late.append(now_ms() - due_ms)
    reader.close()
    return late


def _load(broker: BrokerProcess) -> Iterator[None]:
    """Something else to do: 1,000-byte messages produced and consumed, a few megabytes a second."""
    out, reader = producer(broker), consumer(broker, BESIDE, 0)
    value, sent_s = b"y" * 1000, time.monotonic()
    while True:
        owed = int((time.monotonic() - sent_s) * 5000)
        sent_s += owed / 5000
        for _ in range(owed):
            out.produce(BESIDE, value)
        out.poll(0)
        reader.consume(1000, 0)
        yield


@click.command()
@click.option("--messages", default=5_000_000, show_default=True, help="That wait.")
@click.option("--rate", default=2000, show_default=True, help="Due a second.")
@click.option("--seconds", default=20, show_default=True, help="For so long.")
@click.option("--seed", default=7, show_default=True)
def main(messages: int, rate: int, seconds: int, seed: int) -> None:
    """Measure delayed messages."""
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder), by_exec=True).start()
        try:
            create(broker, TOPIC, delayed_messages="true")
            create(broker, BESIDE)
            fill_probe = random.Random(seed)
            settle()
            before_mb = broker.rss_anon_kib() / 1024
            began_s = time.monotonic()
            fill(broker, messages, fill_probe)
            say(f"{messages:,} messages published and kept in {time.monotonic() - began_s:.0f} s, seed {seed}")
            time.sleep(REST_S)
            more_mb = broker.rss_anon_kib() / 1024 - before_mb
            say(f"RssAnon: {before_mb:.0f} MB before, {more_mb:.0f} MB more (at most {MEMORY_MB_MAX})")
            broker.kill()
            ready_s, served_s = recover(broker, messages)
            say(f"after kill -9: ready in {ready_s:.1f} s, delivering in {served_s:.1f} s (at most {RECOVERY_S_MAX})")
            most_mb = more_mb
            more_mb = broker.rss_anon_kib() / 1024 - before_mb
            say(f"RssAnon after recovery: {more_mb:.0f} MB more (at most {MEMORY_MB_MAX})")
            late = sorted(lateness(broker, rate, seconds))
            p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
            say(
                f"{rate} due a second under load: lateness p50 {p50} ms, p99 {p99} ms, worst {late[-1]} ms"
                f" (p99 at most {LATE_MS_MAX})"
            )
            is_met = max(most_mb, more_mb) < MEMORY_MB_MAX and served_s < RECOVERY_S_MAX and p99 < LATE_MS_MAX
            if not is_met:
                raise click.ClickException("not all bars are met")
        finally:
            if broker.is_running:
                broker.stop()


if __name__ == "__main__":
    main()
