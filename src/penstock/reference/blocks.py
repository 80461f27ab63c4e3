"""The generated blocks of documentation pages, by name."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock.reference import file_map, kafka, kafka_errors, kafka_limits, settings, sqs, sqs_errors, sqs_limits

_BLOCK: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "apis": kafka.api_table,
    "broker-settings": settings.broker_settings,
    "client-metrics-settings": settings.client_metrics_settings,
    "error-codes": kafka_errors.error_codes,
    "file-map": file_map.file_map,
    "group-settings": settings.group_settings,
    "idle-settings": settings.idle_settings,
    "request-limits": kafka_limits.request_limits,
    "sqs-actions": sqs.actions,
    "sqs-errors": sqs_errors.error_table,
    "sqs-limits": sqs_limits.limit_table,
    "sqs-queue-attributes": sqs.queue_attributes,
    "sqs-settings": settings.sqs_settings,
    "topic-settings": settings.topic_settings,
}


def generated(page: str) -> str:
    """Returns a page with all its generated blocks rewritten. Raises KeyError for an unknown block name."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}{found[3]}", page)
