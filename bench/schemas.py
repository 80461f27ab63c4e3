"""`python -m bench.schemas [--rounds N]`: what schema.validation=true costs the broker for each message.

One connection sends the same batches to a topic that validates, and to one that does not, in turns.
"""

import struct
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

import click

from bench.measure import cpu_s, settle
from penstock.records.compression import Codec
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.raw import PRODUCE_VERSION, RawClient, batch_of, produce_request
from tests.registry.rest_client import RestClient, record

VALIDATED: Final = "validated"
PLAIN: Final = "plain"
VALUE_BYTES: Final = 200
BATCHES: Final = ((1, Codec.NONE), (80, Codec.NONE), (5000, Codec.NONE), (80, Codec.ZSTD), (5000, Codec.ZSTD))
"""Records in a batch, and its codec."""
MESSAGES: Final = 1_000_000
REQUESTS_MAX: Final = 10_000
IN_FLIGHT: Final = 5


def send(raw: RawClient, topic: str, records: int, codec: Codec, schema_id: int) -> int:
    """Sends batches; returns the number of messages."""
    cells = [struct.pack(">bi", 0, schema_id) + b"%016d" % number * (VALUE_BYTES // 16) for number in range(records)]
    request = produce_request(topic, batch_of(cells, codec=codec))
    requests = min(REQUESTS_MAX, MESSAGES // records)
    for number in range(requests + IN_FLIGHT):
        if number < requests:
            raw.send(request, PRODUCE_VERSION)
        if number >= IN_FLIGHT:
            (answer,) = raw.receive().responses[0].partition_responses
            if answer.error_code:
                raise click.ClickException(f"error {answer.error_code}: {answer.error_message}")
    return requests * records


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Turns of each topic; the median counts.")
def main(rounds: int) -> None:
    """Measure the CPU time that schema validation takes."""
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder)).start()
        try:
            measure(broker, rounds)
        finally:
            broker.finish()


def measure(broker: BrokerProcess, rounds: int) -> None:
    driver = ConfluentDriver(broker.kafka)
    small = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20)}
    driver.create_topic(VALIDATED, configs=small | {"schema.validation": "true"})
    driver.create_topic(PLAIN, configs=small)
    schema_id = int(RestClient(broker.http).register(f"{VALIDATED}-value", record("id:long")).body["id"])
    click.echo("records in a batch, codec | broker CPU ns a message: plain | validated | more")
    with RawClient(broker.address) as raw:
        for records, codec in BATCHES:
            found: dict[str, list[float]] = defaultdict(list)
            for _ in range(rounds):
                for topic in (PLAIN, VALIDATED):
                    settle()
                    before_s = cpu_s(broker.pid)
                    messages = send(raw, topic, records, codec, schema_id)
                    found[topic].append((cpu_s(broker.pid) - before_s) * 1e9 / messages)
            plain, validated = (median(found[topic]) for topic in (PLAIN, VALIDATED))
            click.echo(
                f"{records:5}, {codec.name.lower():4} | {plain:8.0f} | {validated:8.0f} | {validated - plain:8.0f}"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
