"""How do share groups stand next to RabbitMQ's quorum queues and NATS JetStream's work queues?"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench import queue_workers, runs
from bench.blocking_client import WrongAnswer
from bench.broker import topic_name
from bench.frames import Shape, payload
from bench.lab import Lab
from bench.load import Load, Sample
from bench.measure import settle
from bench.peers.nats import Nats
from bench.peers.rabbitmq import RabbitMq
from bench.penstock import Penstock
from bench.queue_workers import AT_A_TIME, Shared
from bench.report import Table, client, cpu_each, noise, ratio
from bench.sqs.blocking_client import SqsBlockingClient

TITLE: Final = "Share groups, against RabbitMQ quorum queues and NATS JetStream work queues"
BATCH: Final = Shape(name="100 B", records=100, value_bytes=100)
"""As a producer sends them that has more than one message at a time."""
WORKERS: Final = (1, 4)
FILL_S_MAX: Final = 120.0
Found = dict[int, dict[str, list[Sample]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A server, its client, and how it gets a queue with something to do."""

    server: Shared
    client: str
    fill: Callable[[int], str]
    drop: Callable[[str], None]


def ask(lab: Lab) -> list[Table]:
    found: Found = {workers: defaultdict(list) for workers in WORKERS}
    messages = lab.scale.share_messages
    with ExitStack() as stack:
        sides = [
            _penstock(lab, stack.enter_context(lab.penstock())),
            _rabbit(stack, stack.enter_context(lab.running("rabbitmq", RabbitMq))),
            _nats(lab, stack.enter_context(lab.nats())),
        ]
        for number in range(lab.scale.coordinator_rounds):
            for workers in WORKERS:
                lab.say(f"shares: round {number + 1}, {workers} workers")
                for side in sides:
                    queue = side.fill(messages)
                    settle()
                    sample = queue_workers.run(side.server, side.client, queue, workers, messages, BATCH.value_bytes)
                    found[workers][side.server.name].append(sample)
                    side.drop(queue)
    return [_table(lab, found, [side.server.name for side in sides])]


def _table(lab: Lab, found: Found, names: list[str]) -> Table:
    table = Table(
        slug="shares",
        title=TITLE,
        columns=(
            "workers",
            *(f"messages/s, {name}" for name in names),
            *(f"ratio to {name}" for name in names[1:]),
            f"broker CPU µs a message, {' / '.join(names)}",
            "ratios",
            f"client cores, {' / '.join(names)}",
        ),
        notes=[
            f"{lab.scale.share_messages:,} messages of {BATCH.value_bytes} B in a queue are worked off, from the "
            "first that any worker gets to the last; each is acknowledged. Workers are Python processes with each "
            f"server's own client, up to {AT_A_TIME} messages in flight: confluent-kafka's ShareConsumer "
            "(acknowledging by the next poll, its default), pika, nats-py by pull.",
            f"Penstock's were produced in batches of {BATCH.records}. All three keep messages and acknowledgements "
            "in files; RabbitMQ's quorum queues sync them, the other two leave that to the kernel for a while.",
            "Clients and brokers share the machine, and the clients take most of it: where ⚠ stands, throughput is "
            "the client's. What the broker spent is its own, and counts from the start of the workers to their "
            "end, their joining and leaving included. No bar is set.",
            noise(found.values()),
        ],
    )
    for workers, samples in found.items():
        sides = [samples[name] for name in names]
        table.rows.append(
            (
                str(workers),
                *(f"{median(each.per_s for each in side):,.0f}/s" for side in sides),
                *(_ratio(sides[0], side, "per_s") for side in sides[1:]),
                " / ".join(cpu_each(side) for side in sides),
                ", ".join(_ratio(sides[0], side, "broker_cpu_us_each") for side in sides[1:]),
                client(*sides),
            )
        )
    return table


def _ratio(ours: list[Sample], theirs: list[Sample], name: str) -> str:
    return ratio([getattr(each, name) for each in ours], [getattr(each, name) for each in theirs])[1]


# -- queues with something to do


def _penstock(lab: Lab, server: Penstock) -> Side:
    """A queue's topic has its name, and so has its share group, which begins at the first message there is."""
    urls: dict[str, str] = {}

    def fill(messages: int) -> str:
        with SqsBlockingClient(server.http_port) as connection:
            url = connection.make_queue()
        name = url.rpartition("/")[2]
        urls[name] = url
        runs.append(server, BATCH, name, messages // BATCH.records, lab.folder, acks=-1)
        return name

    def drop(queue: str) -> None:
        with SqsBlockingClient(server.http_port) as connection:
            connection.drop_queue(urls.pop(queue))

    return Side(server=server, client="share", fill=fill, drop=drop)


def _rabbit(stack: ExitStack, server: RabbitMq) -> Side:
    import pika

    link = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port, heartbeat=0))
    stack.callback(link.close)
    channel: Any = link.channel()
    value, persistent = payload(BATCH.value_bytes), pika.BasicProperties(delivery_mode=2)

    def fill(messages: int) -> str:
        queue = topic_name()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(messages):
            channel.basic_publish("", queue, value, persistent)
        give_up_s = time.monotonic() + FILL_S_MAX
        while (have := channel.queue_declare(queue, passive=True).method.message_count) != messages:
            if time.monotonic() > give_up_s:
                raise WrongAnswer(f"RabbitMQ has {have} messages, {messages} were published")
            link.sleep(0.1)
        return queue

    return Side(server=server, client="rabbit", fill=fill, drop=lambda queue: channel.queue_delete(queue))


def _nats(lab: Lab, server: Nats) -> Side:
    def fill(messages: int) -> str:
        stream = topic_name()
        server.make_work_queue(stream)
        Load(
            port=server.port,
            frames=[server.publish_frame(stream, at, BATCH.value_bytes) for at in range(runs.CONNECTIONS)],
            hellos=[server.hello(at) for at in range(runs.CONNECTIONS)],
            connections=runs.CONNECTIONS,
            depth=runs.PRODUCE_DEPTH,
            seconds=FILL_S_MAX,
            requests_max=messages,
            walk=False,
        ).run(lab.folder, server.pid, BATCH.value_bytes)
        return stream

    return Side(server=server, client="nats", fill=fill, drop=server.drop_stream)
