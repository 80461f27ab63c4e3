"""`python -m bench.columns [--quick]`: how fast payloads become Arrow columns, and columns payloads, on one core.

Rows of ten fields, with the header of Confluent's serializers. Each codec takes the same rows, again and again, for a
second of CPU time, a few rounds; the figures are medians. Its peer makes or takes one Python object per row.
"""

import io
import json
from pathlib import Path
from typing import Any, Final

import click
import fastavro
import pyarrow as pa

from bench.column_rows import HEADER, ROWS, STATES, Case, measure, orders
from bench.columns_protobuf import ask_protobuf
from bench.measure import machine
from bench.report import AT_LEAST, Bar, Table
from penstock.schemas.columns.avro.decoder import avro_decoder
from penstock.schemas.columns.avro.encoder import avro_encoder
from penstock.schemas.formats.avro import parse

DECODED: Final = Bar(sign=AT_LEAST, value=1.5, unit=" M/s")
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
    cases: list[Case] = [
        ("decode", lambda: decoder.decode(payloads, len(HEADER)), read_by_peer, True),
        ("decode two of the fields", lambda: few.decode(payloads, len(HEADER)), read_by_peer, True),
        ("encode", lambda: encoder.encode(decoded.values, HEADER), write_by_peer, False),
    ]
    table = Table(
        slug="columns-avro",
        title="Avro payloads and Arrow columns, on one core",
        columns=("", "million rows/s", "bar", "CPU per row", "fastavro", "ratio"),
        notes=[
            f"{ROWS:,} records at a time, of {len(ORDER['fields'])} fields and {payloads.nbytes // ROWS} B.",
            "fastavro makes and takes Python dictionaries, which are not columns yet.",
        ],
    )
    measure(table, cases, DECODED, rounds, seconds)
    return table


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--quick", is_flag=True, help="One round of a tenth of a second: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the tables go, too.")
def main(rounds: int, quick: bool, output: Path | None) -> None:
    """How fast payloads become columns, and columns payloads."""
    rounds, seconds = (1, 0.1) if quick else (rounds, 1.0)
    tables = [ask_avro(rounds, seconds), ask_protobuf(rounds, seconds)]
    facts = ", ".join(f"{name} {value}" for name, value in machine().items() if name != "Java")
    text = "\n".join([f"{facts}\n", *(table.markdown() for table in tables)])
    print(text)
    if output is not None:
        output.write_text(text)


if __name__ == "__main__":
    main()
