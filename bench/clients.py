"""A real client, confluent-kafka, in a process of its own: it writes a topic, then reads all of it.

python -m bench.clients produce|consume PORT TOPIC PARTITIONS MESSAGES BROKER_PID
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from bench.cache import BENCH, NotRun
from bench.frames import payload
from bench.load import Sample
from bench.measure import cpu_s, machine_cpu_s

VALUE_BYTES: Final = 1024
RUN_S_MAX: Final = 300.0
POLL_EVERY: Final = 1000


def run(action: str, port: int, topic: str, partitions: int, messages: int, broker_pid: int) -> Sample:
    """Run one action in a fresh process."""
    words = [action, str(port), topic, str(partitions), str(messages), str(broker_pid)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.clients", *words],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX + 60,
        cwd=BENCH.parent,
        check=False,
    )
    if done.returncode:
        raise NotRun(f"confluent-kafka failed to {action}: {done.stderr[-300:]}")
    seen = json.loads(done.stdout)
    return Sample(
        answered=messages,
        answered_total=messages,
        seconds=seen["seconds"],
        client_cpu_s=seen["client_cpu_s"],
        broker_cpu_s=seen["broker_cpu_s"],
        machine_cpu_s=seen["machine_cpu_s"],
        bytes_each=VALUE_BYTES,
    )


def produce(port: int, topic: str, partitions: int, messages: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 5, "acks": "all"})
    value = payload(VALUE_BYTES)
    give_up_s = time.monotonic() + RUN_S_MAX
    done = 0
    while done < messages and time.monotonic() < give_up_s:
        try:
            for _ in range(min(POLL_EVERY, messages - done)):
                producer.produce(topic, value)
                done += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    left = producer.flush(RUN_S_MAX)
    if left or done < messages:
        raise SystemExit(f"{left + messages - done} of {messages} messages were not delivered")


def consume(port: int, topic: str, partitions: int, messages: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    give_up_s = time.monotonic() + RUN_S_MAX
    seen = 0
    value = payload(VALUE_BYTES)
    while seen < messages and time.monotonic() < give_up_s:
        for message in consumer.consume(POLL_EVERY, 0.5):
            if message.error() is not None or message.value() != value:
                raise SystemExit(f"a message is not what was sent: {message.error()}")
            seen += 1
    consumer.close()
    if seen != messages:
        raise SystemExit(f"{seen} messages were read, {messages} were written")


ACTIONS: Final[dict[str, Callable[[int, str, int, int], None]]] = {"produce": produce, "consume": consume}


def main() -> None:
    action, port, topic, partitions, messages, broker_pid = sys.argv[1:]
    began_s, client_s = time.perf_counter(), time.process_time()
    broker_s, machine_s = cpu_s(int(broker_pid)), machine_cpu_s()
    ACTIONS[action](int(port), topic, int(partitions), int(messages))
    seen = {
        "seconds": time.perf_counter() - began_s,
        "client_cpu_s": time.process_time() - client_s,
        "broker_cpu_s": cpu_s(int(broker_pid)) - broker_s,
        "machine_cpu_s": machine_cpu_s() - machine_s,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
