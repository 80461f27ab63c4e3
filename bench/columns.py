"""`python -m bench.columns [--quick]`: how fast payloads become Arrow columns, and columns payloads, on one core.

Rows of ten fields, with the header of Confluent's serializers. Each codec takes the same rows, again and again, for a
second of CPU time, a few rounds; the figures are medians. Its peer makes or takes one Python object per row.
"""

import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import fastavro
import pyarrow as pa

from bench.frames import SEED
from bench.measure import machine
from bench.report import AT_LEAST, Bar, Table
from penstock.schemas.columns import kernel
from penstock.schemas.columns.avro import avro_decoder, avro_encoder
from penstock.schemas.formats.avro import parse

ROWS: Final = 20_000
HEADER: Final = b"\x00\x00\x00\x00\x01"
DECODED: Final = Bar(sign=AT_LEAST, value=1.5, unit=" M/s")
STATES: Final = ["NEW", "PAID", "SHIPPED"]
ORDER: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "quantity", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "gift", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": STATES}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "token", "type": "bytes"},
    ],
}


def orders() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    return [
        {
            "id": 10**9 + number,
            "quantity": rng.randrange(100),
            "customer": f"customer-{rng.randrange(10**6)}",
            "price": rng.random() * 100,
            "gift": rng.random() < 0.5,
            "at": 1_790_000_000_000_000 + rng.randrange(10**12),
            "note": None if rng.random() < 0.3 else f"note {number}",
            "state": rng.choice(STATES),
            "day": rng.randrange(20_000, 21_000),
            "token": rng.randbytes(16),
        }
        for number in range(ROWS)
    ]


def cpu_us_per_row(work: Callable[[], object], rounds: int, seconds: float) -> float:
    """Returns the CPU time that `work` takes for each of its rows."""
    found = []
    for _ in range(rounds):
        done, began_s = 0, time.process_time()
        while time.process_time() - began_s < seconds:
            work()
            done += ROWS
        found.append((time.process_time() - began_s) * 1e6 / done)
    return median(found)


def ask_avro(rounds: int, seconds: float) -> Table:
    rows, peer = orders(), fastavro.parse_schema(ORDER)
    written = []
    for row in rows:
        stream = io.BytesIO(HEADER)
        stream.seek(len(HEADER))
        fastavro.schemaless_writer(stream, peer, row)
        written.append(stream.getvalue())
    payloads = pa.array(written, pa.binary())
    schema = parse(json.dumps(ORDER), {})
    narrow = parse(json.dumps({**ORDER, "fields": [ORDER["fields"][number] for number in (0, 5)]}), {})
    decoder, encoder = avro_decoder(schema, schema), avro_encoder(schema)
    decoded = decoder.decode(payloads, len(HEADER))
    assert not decoded.bad
    assert encoder.encode(decoded.values, HEADER).equals(payloads)

    def read_by_peer() -> None:
        for payload in written:
            fastavro.schemaless_reader(io.BytesIO(payload[len(HEADER) :]), peer, None)

    def write_by_peer() -> None:
        for row in rows:
            fastavro.schemaless_writer(io.BytesIO(), peer, row)

    few = avro_decoder(schema, narrow)
    cases: list[tuple[str, Callable[[], object], Callable[[], None], bool]] = [
        ("decode", lambda: decoder.decode(payloads, len(HEADER)), read_by_peer, True),
        ("decode two of the fields", lambda: few.decode(payloads, len(HEADER)), read_by_peer, True),
        ("encode", lambda: encoder.encode(decoded.values, HEADER), write_by_peer, False),
    ]
    loops = "compiled" if kernel.active is kernel.COMPILED else "pure Python"
    table = Table(
        slug="columns-avro",
        title="Avro payloads and Arrow columns, on one core",
        columns=("", "million rows/s", "bar", "CPU per row", "fastavro", "ratio"),
        notes=[
            f"{ROWS:,} records at a time, of {len(ORDER['fields'])} fields and {payloads.nbytes // ROWS} B.",
            f"With {loops} loops.",
            "fastavro makes and takes Python dictionaries, which are not columns yet.",
        ],
    )
    for name, ours, theirs, is_barred in cases:
        own, other = (cpu_us_per_row(work, rounds, seconds) for work in (ours, theirs))
        verdict = table.verdict(f"avro, {name}", 1 / own, DECODED) if is_barred else ""
        cells = f"{1 / own:.2f}", verdict, f"{own:.2f} µs", f"{other:.2f} µs", f"{other / own:.0f}x"
        table.rows.append((name, *cells))
    return table


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--quick", is_flag=True, help="One round of a tenth of a second: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the tables go, too.")
def main(rounds: int, quick: bool, output: Path | None) -> None:
    """How fast payloads become columns, and columns payloads."""
    rounds, seconds = (1, 0.1) if quick else (rounds, 1.0)
    tables = [ask_avro(rounds, seconds)]
    facts = ", ".join(f"{name} {value}" for name, value in machine().items() if name != "Java")
    text = "\n".join([f"{facts}\n", *(table.markdown() for table in tables)])
    print(text)
    if output is not None:
        output.write_text(text)


if __name__ == "__main__":
    main()
