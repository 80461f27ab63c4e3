"""Workers of a queue in processes of their own, by each server's own client: they take messages and acknowledge each.

python -m bench.queue_workers CLIENT PORT QUEUE
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

from bench.blocking_client import WrongAnswer
from bench.cache import BENCH, NotRun
from bench.load import Sample
from bench.measure import cpu_s, machine_cpu_s

AT_A_TIME: Final = 100
"""Messages that a worker may have in flight."""
IDLE_S: Final = 4.0
"""A worker to which nothing has come for so long is done."""
JOIN_S: Final = 20.0
"""One to which nothing has come at all, after so long: others have done it."""
WAIT_S: Final = 0.5
RUN_S_MAX: Final = 300


class Shared(Protocol):
    """A server with queues whose messages are worked off."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...


@dataclass(slots=True)
class Shift:
    """What one worker has done, and when: by the machine's steady clock, which all processes share."""

    began_s: float = field(default_factory=time.monotonic)
    first_s: float = 0.0
    last_s: float = 0.0
    messages: int = 0
    first_cpu_s: float = 0.0
    last_cpu_s: float = 0.0
    total_cpu_s: float = 0.0

    def note(self, messages: int) -> None:
        self.last_s, self.last_cpu_s = time.monotonic(), time.process_time()
        if not self.messages:
            self.first_s, self.first_cpu_s = self.last_s, self.last_cpu_s
        self.messages += messages

    @property
    def cpu_s(self) -> float:
        return self.last_cpu_s - self.first_cpu_s

    @property
    def is_over(self) -> bool:
        end_s = self.last_s + IDLE_S if self.first_s else self.began_s + JOIN_S
        return time.monotonic() > end_s


def run(server: Shared, client: str, queue: str, workers: int, messages: int, value_bytes: int) -> Sample:
    """So many workers until nothing is left: from the first message that any of them gets to the last."""
    command = [sys.executable, "-m", "bench.queue_workers", client, str(server.port), queue]
    began_s, broker_s, machine_s = time.monotonic(), cpu_s(server.pid), machine_cpu_s()
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=BENCH.parent)
        for _ in range(workers)
    ]
    try:
        shifts = [_shift(server, child) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    done = sum(shift.messages for shift in shifts)
    if done != messages:
        raise WrongAnswer(f"{server.name}: {done} messages were worked off, {messages} were there")
    busy = [shift for shift in shifts if shift.messages]
    seconds = max(shift.last_s for shift in busy) - min(shift.first_s for shift in busy)
    client_s = sum(shift.cpu_s for shift in busy)
    # Of the whole time from the workers' start to their end, which is longer.
    elapsed_s, broker_s = time.monotonic() - began_s, cpu_s(server.pid) - broker_s
    others_s = max(0.0, machine_cpu_s() - machine_s - broker_s - sum(shift.total_cpu_s for shift in shifts))
    return Sample(
        answered=messages,
        answered_total=messages,
        seconds=seconds,
        client_cpu_s=client_s,
        broker_cpu_s=broker_s,
        machine_cpu_s=client_s + broker_s + others_s * seconds / elapsed_s,
        bytes_each=value_bytes,
    )


def _shift(server: Shared, child: "subprocess.Popen[str]") -> Shift:
    said, trouble = child.communicate(timeout=RUN_S_MAX)
    if child.returncode:
        raise NotRun(f"a worker failed against {server.name}: {trouble[-300:]}")
    return Shift(**json.loads(said))


# -- one client each


def share(port: int, queue: str, shift: Shift) -> None:
    """confluent-kafka: what was polled is acknowledged by the next poll, its default (KIP-932)."""
    from confluent_kafka import ShareConsumer

    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": queue, "max.poll.records": AT_A_TIME}
    consumer = ShareConsumer(settings)
    consumer.subscribe([queue])
    while not shift.is_over:
        found = consumer.poll(WAIT_S)
        for message in found:
            if message.error() is not None:
                raise SystemExit(f"a message is not what was sent: {message.error()}")
        if found:
            shift.note(len(found))
    consumer.close()


def rabbit(port: int, queue: str, shift: Shift) -> None:
    """pika, each message acknowledged by itself."""
    for channel, tag in _consumed(port, queue, shift):
        channel.basic_ack(tag)
        shift.note(1)


def _consumed(port: int, queue: str, shift: Shift) -> Iterator[tuple[Any, int]]:
    import pika

    link = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = link.channel()
    channel.basic_qos(prefetch_count=AT_A_TIME)
    for method, _, _ in channel.consume(queue, inactivity_timeout=WAIT_S):
        if method is not None:
            yield channel, method.delivery_tag
        elif shift.is_over:
            break
    link.close()


def nats(port: int, queue: str, shift: Shift) -> None:
    """nats-py by pull, each message acknowledged by itself."""
    asyncio.run(_pulled(port, queue, shift))


async def _pulled(port: int, queue: str, shift: Shift) -> None:
    import nats as client

    link = await client.connect(f"nats://127.0.0.1:{port}")
    subscription = await link.jetstream().pull_subscribe_bind(durable=queue, stream=queue)
    while not shift.is_over:
        try:
            found = await subscription.fetch(AT_A_TIME, timeout=WAIT_S)
        except TimeoutError:
            continue
        for message in found:
            await message.ack()
        shift.note(len(found))
    await link.drain()


CLIENTS: Final[dict[str, Callable[[int, str, Shift], None]]] = {"share": share, "rabbit": rabbit, "nats": nats}


def main(words: Sequence[str]) -> None:
    name, port, queue = words
    shift = Shift()
    CLIENTS[name](int(port), queue, shift)
    shift.total_cpu_s = time.process_time()
    print(json.dumps(asdict(shift)))


if __name__ == "__main__":
    main(sys.argv[1:])
