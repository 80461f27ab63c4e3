"""Measures how fast Protobuf payloads become Arrow columns, and columns payloads: a part of `bench.columns`.

The same rows as for Avro, with the types that Protobuf has for them. The peer is Google's library for Python.
"""

from typing import Any, Final

import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from bench.column_rows import HEADER, ROWS, STATES, Case, measure, orders
from bench.report import AT_LEAST, Bar, Table
from penstock.schemas.columns.protobuf.codec import protobuf_decoder, protobuf_encoder
from penstock.schemas.columns.protobuf.descriptors import message_descriptor
from penstock.schemas.formats.protobuf import parse

DECODED: Final = Bar(sign=AT_LEAST, value=1.0, unit=" M/s")
FIRST_MESSAGE: Final = b"\0"
SCHEMA: Final = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; int32 quantity = 2; string customer = 3; double price = 4; bool gift = 5;
  google.protobuf.Timestamp at = 6; optional string note = 7; State state = 8; int32 day = 9; bytes token = 10;
}
enum State { NEW = 0; PAID = 1; SHIPPED = 2; }
"""
NARROW: Final = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 6; }
"""


def filled(message: Any, row: dict[str, Any]) -> Any:
    for name, value in row.items():
        if name == "at":
            message.at.FromMicroseconds(value)
        elif value is not None:
            setattr(message, name, STATES.index(value) if name == "state" else value)
    return message


def ask_protobuf(rounds: int, seconds: float) -> Table:
    schema, narrow = parse(SCHEMA, {}), parse(NARROW, {})
    message = GetMessageClass(message_descriptor(schema, "Order"))
    rows = orders()
    written = [filled(message(), row).SerializeToString() for row in rows]
    payloads = pa.array([HEADER + FIRST_MESSAGE + each for each in written], pa.binary())
    decoder, encoder = protobuf_decoder(schema, schema, None), protobuf_encoder(schema, None)
    few = protobuf_decoder(schema, narrow, None)
    decoded = decoder.decode(payloads, len(HEADER))
    assert not decoded.bad
    assert encoder.encode(decoded.values, HEADER).equals(payloads)

    def read_by_peer() -> None:
        for each in written:
            message.FromString(each)

    def write_by_peer() -> None:
        for row in rows:
            filled(message(), row).SerializeToString()

    cases: list[Case] = [
        ("decode", lambda: decoder.decode(payloads, len(HEADER)), read_by_peer, True),
        ("decode two of the fields", lambda: few.decode(payloads, len(HEADER)), read_by_peer, True),
        ("encode", lambda: encoder.encode(decoded.values, HEADER), write_by_peer, False),
    ]
    table = Table(
        slug="columns-protobuf",
        title="Protobuf payloads and Arrow columns, on one core",
        columns=("", "million rows/s", "bar", "CPU per row", "protobuf", "ratio"),
        notes=[
            f"{ROWS:,} messages at a time, of 10 fields and {payloads.nbytes // ROWS} B.",
            "Google's library parses a message to C structs, from which no field has been read yet.",
        ],
    )
    measure(table, cases, DECODED, rounds, seconds)
    return table
