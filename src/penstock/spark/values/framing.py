"""Finds the schema ids at the start of payloads: a zero byte and four bytes of id, as Confluent's clients write."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HEADER: Final = struct.Struct(">bI")
"""The magic byte, which is zero, and the schema id."""
HEADER_BYTES: Final = HEADER.size


class SchemaIds(NamedTuple):
    """The rows of a column of payloads by their schema ids."""

    rows: Mapping[int, npt.NDArray[np.int64]]
    """The rows of each schema id, in ascending order."""
    bad: Mapping[int, str]
    """Reasons by row, for payloads without a schema id. Null payloads are neither here nor there."""


def find_schema_ids(payloads: pa.BinaryArray) -> SchemaIds:
    """Groups payloads by their schema ids."""
    _, offsets, data = payloads.buffers()
    if not len(payloads) or offsets is None:
        return SchemaIds({}, {})
    ends = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    starts = ends[:-1].astype(np.int64)
    sizes = ends[1:] - ends[:-1]
    rows = np.arange(len(payloads))
    if payloads.null_count:
        is_valid = payloads.is_valid().to_numpy(zero_copy_only=False)
        starts, sizes, rows = starts[is_valid], sizes[is_valid], rows[is_valid]
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    is_framed = sizes >= HEADER_BYTES
    is_framed[is_framed] = content[starts[is_framed]] == 0
    bad = {row: _reason(payloads[row].as_py()) for row in rows[~is_framed].tolist()}
    starts, rows = starts[is_framed], rows[is_framed]
    ids = np.zeros(len(starts), np.int64)
    for position in range(1, HEADER_BYTES):
        ids = ids << 8 | content[starts + position]
    if len(ids) and (ids == ids[0]).all():
        return SchemaIds({int(ids[0]): rows}, bad)
    return SchemaIds({int(found): rows[ids == found] for found in np.unique(ids)}, bad)


def _reason(payload: bytes) -> str:
    if len(payload) < HEADER_BYTES:
        return f"it has {len(payload)} bytes, too few for a schema id"
    return f"it begins with the byte {payload[0]} instead of 0, so it has no schema id"
