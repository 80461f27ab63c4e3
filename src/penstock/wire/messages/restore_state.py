"""Penstock's API 30040, RestoreState: writes records of an internal topic while its coordinators are paused."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bytes, Int16, Int32, String, field, request, response, struct

ENTRIES_MAX: Final = 500
KEY_BYTES_MAX: Final = 64 << 10
BYTES_MAX: Final = 1_048_588
"""Maximum total size, in bytes, of the keys and values in a request."""


@struct
class StateEntry:
    key: Bytes
    value: Bytes | None


@request(ApiKey.RESTORE_STATE, versions="0", flexible="0+")
class RestoreStateRequest:
    topic: String
    partitions: Int32
    """The topic's partition count as the client knows it, from which the client computed each record's partition."""
    partition: Int32
    entries: Array[StateEntry]


@response(ApiKey.RESTORE_STATE, versions="0", flexible="0+")
class RestoreStateResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
