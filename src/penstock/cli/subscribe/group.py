"""`penstock subscribe --group`: consumes as a group member and commits each message after printing it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock.api.core.cluster_lookup import From
from penstock.api.sync.connection import connect
from penstock.cli.common import client_properties
from penstock.cli.message_output import Formatter
from penstock.client.offsets import Origin, Start
from penstock.client.security import librdkafka_options
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record

IDLE_S: Final = 2.0
"""Seconds without a message after which the command ends, unless --follow is given."""


def subscribe_in_group(
    bootstrap: str,
    topic: str,
    group: str,
    *,
    start: Start,
    count_max: int | None,
    follow: bool,
    show: Formatter,
    write: Callable[[bytes], None],
) -> None:
    """Prints messages until `count_max` are printed, none has arrived for IDLE_S (unless `follow`), or the user
    interrupts; then commits the printed messages and leaves the group."""
    with (
        connect(bootstrap, client_id="penstock-cli", options=librdkafka_options(client_properties())) as mq,
        mq.subscribe(
            topic,
            group=group,
            delivery="at-least-once",
            from_=_start_position(start),
            limit=count_max,
            idle_timeout_s=None if follow else IDLE_S,
        ) as messages,
    ):
        for message in messages:
            record = Record(
                key=message.key,
                value=message.value,
                headers=message.headers,
                timestamp_ms=message.timestamp_ms,
                offset=message.offset,
            )
            write(show(TopicPartition(message.topic, message.partition), record))
            message.done()


def _start_position(start: Start) -> From:
    match start.origin:
        case Origin.LATEST:
            return "latest"
        case Origin.OFFSET:
            return start.value
        case Origin.BACK:
            return -start.value
        case Origin.TIME:
            return datetime.fromtimestamp(start.value / 1000, UTC)
    return "earliest"
