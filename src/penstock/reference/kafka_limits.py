"""Table of the limits that apply to Kafka protocol requests."""

from collections.abc import Iterator

from penstock.broker.fetch.sessions import SESSION_PARTITIONS_MAX
from penstock.broker.large_requests import UNDIVIDED_ELEMENTS_MAX
from penstock.broker.settings import BROKER_SETTINGS
from penstock.foundation.patterns import PATTERN_CHARS_MAX, PATTERN_STEPS_MAX
from penstock.log.setting_table import LOG_SETTINGS
from penstock.network.large_request import PARTIAL_BYTES_MAX, RATE_MIN, RATE_S, SMALL_FRAME_BYTES_MAX
from penstock.reference.tables import size, table
from penstock.telemetry.subscriptions import SUBSCRIPTIONS_MAX
from penstock.wire.codec import ELEMENTS_MAX
from penstock.wire.decoders import STRING_BYTES_MAX

_CLOSED = "the connection is closed"


def _setting(name: str) -> str:
    """Returns the name and the default of a size setting, formatted for the table."""
    entry = BROKER_SETTINGS.by_name.get(name) or LOG_SETTINGS.get(name)
    return f"`{name}` ({size(int(entry.default))})"


def _rows() -> Iterator[tuple[str, str, str]]:
    yield (
        "bytes of a request",
        f"{_setting('socket.request.max.bytes')}; {size(SMALL_FRAME_BYTES_MAX)} for every API but Produce",
        _CLOSED,
    )
    yield (
        "array elements and tagged fields of a request",
        f"{ELEMENTS_MAX:,} in all; {UNDIVIDED_ELEMENTS_MAX:,} for requests that are decided as a whole (JoinGroup, "
        "SyncGroup, AddPartitionsToTxn, share fetches and acknowledgements, heartbeats)",
        f"{_CLOSED} (Kafka 4.4: 1,000,000 in one array)",
    )
    yield ("bytes of a string", f"{STRING_BYTES_MAX:,}, as in Kafka", _CLOSED)
    yield (
        "requests that have arrived in part, or wait for their response",
        f"{_setting('queued.max.request.bytes')}, counted by bytes that have arrived",
        "connections with large requests are not read from, except the oldest one",
    )
    yield (
        f"rate at which a request of more than {size(PARTIAL_BYTES_MAX)} arrives",
        f"{size(RATE_MIN)}/s over {RATE_S:.0f} s",
        _CLOSED,
    )
    yield (
        "decompressed bytes of a batch that the broker must decompress",
        f"{_setting('decompressed.batch.max.bytes')}, of the topic",
        "MESSAGE_TOO_LARGE on topics that are compacted, have delayed messages or recompress; views and queues skip "
        "such a batch and log it. Other topics accept it: as in Kafka, only the compressed size counts there",
    )
    yield (
        "records that a share fetch acquires",
        "the group's `share.partition.max.record.locks`, even if `max_records` is larger",
        "fewer are acquired",
    )
    yield (
        "partitions of a fetch session",
        f"{SESSION_PARTITIONS_MAX:,}",
        "no session is created: every fetch lists all its partitions",
    )
    yield (
        "a regular expression",
        f"{PATTERN_CHARS_MAX:,} characters, and {PATTERN_STEPS_MAX:,} steps once compiled",
        "INVALID_REGULAR_EXPRESSION",
    )
    yield ("subscriptions to client metrics", f"{SUBSCRIPTIONS_MAX:,}", "POLICY_VIOLATION")
    yield ("metrics that a client pushes", f"{_setting('telemetry.max.bytes')}", "TELEMETRY_TOO_LARGE")


def request_limits() -> str:
    return table(("what", "limit", "what happens above it"), _rows())
