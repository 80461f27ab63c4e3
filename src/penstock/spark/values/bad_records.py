"""Handles records whose key or value cannot be decoded: fails, keeps them as nulls, or sends them to a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.send_settings import SendSettings
from penstock.client.transactional import BatchProducer
from penstock.foundation.clock import SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.compression import Codec
from penstock.spark.background import background_loop
from penstock.spark.read_options import ReadOptions
from penstock.spark.task_writer import TaskWriter
from penstock.spark.values.options import DEAD_LETTER_TOPIC, ON_BAD_RECORD
from penstock.spark.write_options import BATCH_BYTES, TRANSACTION_TIMEOUT_MS, Delivery, WriteOptions
from penstock.spark.write_schema import WriteColumns

PREFIX: Final = "__dlq.errors."
"""Prefix of the headers that say where a dead letter comes from; those of share groups have it, too (KIP-1191)."""
_HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

Reasons = Mapping[int, str]
"""Why records are bad, by row."""


class BadRecord(PenstockError):
    """A record cannot be decoded, and `onBadRecord` is `fail`."""

    code = ErrorCode.INVALID_RECORD


def fail(tp: TopicPartition, offset: int, reason: str) -> BadRecord:
    """Returns the error for a bad record."""
    return BadRecord(
        f"the record at offset {offset} of partition {tp} cannot be read: {reason}. Set {ON_BAD_RECORD!r} to null to "
        f"get such records with a null value and a column badRecord, or to deadletter to write them to the topic "
        f"{DEAD_LETTER_TOPIC!r} (in a pipeline file, set on_corrupt to keep or drop); or start after this offset"
    )


def bad_record_column(rows: pa.RecordBatch, reasons: Reasons) -> pa.Array:
    """Returns the column `badRecord` for rows that have the raw columns `key` and `value`."""
    kind = pa.struct([("reason", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
    if not reasons:
        return pa.nulls(rows.num_rows, kind)
    texts = pa.array([reasons.get(row) for row in range(rows.num_rows)], pa.string())
    is_bad = texts.is_valid()
    none = pa.scalar(None, pa.binary())
    raw = [pc.if_else(is_bad, rows.column(name), none) for name in ("key", "value")]
    return pa.StructArray.from_arrays([texts, *raw], fields=list(kind), mask=pc.invert(is_bad))


class DeadLetterWriter:
    """Writes bad records to the dead-letter topic: their bytes and headers, and where they come from."""

    def __init__(self, options: ReadOptions, tp: TopicPartition) -> None:
        self._options = options
        self._tp = tp
        self._loop = background_loop()
        self._writer: TaskWriter | None = None
        self._producer: BatchProducer | None = None

    def write(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Writes rows with the columns `key`, `value`, `headers` and `offset`; returns when all replicas in sync have
        them."""
        headers = pa.array(
            [
                [*_others(given or ()), *self._own(offset, reason)]
                for given, offset, reason in zip(
                    rows.column("headers").to_pylist(), rows.column("offset").to_pylist(), reasons, strict=True
                )
            ],
            _HEADERS,
        )
        letters = pa.RecordBatch.from_arrays(
            [rows.column("key"), rows.column("value"), headers], names=["key", "value", "headers"]
        )
        writer = self._open()
        writer.write(letters)
        writer.finish()

    def close(self) -> None:
        if self._producer is not None:
            self._loop.run(self._producer.close())

    def _own(self, offset: int, reason: str) -> list[dict[str, object]]:
        found = {
            "topic": self._tp.topic,
            "partition": str(self._tp.partition),
            "offset": str(offset),
            "message": reason,
        }
        return [{"key": PREFIX + name, "value": text.encode()} for name, text in found.items()]

    def _open(self) -> TaskWriter:
        if self._writer is None:
            client = self._loop.client(self._options.bootstrap, self._options.client)
            send = SendSettings(delivery_timeout_s=self._options.fetch.poll_timeout_s)
            self._producer = self._loop.run(BatchProducer.open(client, send))
            self._writer = TaskWriter(
                WriteOptions(
                    bootstrap=self._options.bootstrap,
                    client=self._options.client,
                    topic=self._options.bad_records.topic,
                    delivery=Delivery.AT_LEAST_ONCE,
                    codec=Codec.NONE,
                    level=None,
                    batch_bytes=BATCH_BYTES,
                    record_bytes_max=None,
                    transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                    send=send,
                ),
                WriteColumns(topic=False, key=True, partition=False, timestamp=False, headers=True),
                client=client,
                producer=self._producer,
                background=self._loop,
                clock=SystemClock(),
            )
        return self._writer


def _others(headers: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Returns the headers without those of an earlier dead letter."""
    return [each for each in headers if not str(each["key"]).startswith(PREFIX)]
