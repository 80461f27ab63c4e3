"""Client telemetry (KIP-714) by raw requests: subscriptions and pushes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_config_resources import CLIENT_METRICS, ListConfigResourcesRequest
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from penstock.wire.schema import NIL_UUID
from tests.brokers import BrokerProcess

from .raw import RawClient

SET, DELETE = 0, 1


def alter(raw: RawClient, name: str, **changes: str | None) -> int:
    """The error code of changing a subscription; None deletes a setting. `interval_ms` stands for interval.ms."""
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return int(answer.responses[0].error_code)


def listed(raw: RawClient) -> set[str]:
    return {entry.resource_name for entry in raw.ask(ListConfigResourcesRequest(), 0).config_resources}


@contextmanager
def subscribed(broker: BrokerProcess, name: str, **settings: str) -> Iterator[None]:
    with RawClient(broker.address) as raw:
        assert alter(raw, name, **settings) == ErrorCode.NONE
        yield
        assert alter(raw, name, metrics=None, interval_ms=None, match=None) == ErrorCode.NONE
        assert name not in listed(raw)


def introduced(raw: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.2.3")
    assert raw.ask(request, 4).error_code == ErrorCode.NONE


def ask(raw: RawClient, instance_id: bytes = NIL_UUID) -> GetTelemetrySubscriptionsResponse:
    answer: GetTelemetrySubscriptionsResponse = raw.ask(
        GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0
    )
    return answer


def push(raw: RawClient, subscription: GetTelemetrySubscriptionsResponse, data: bytes, /, **other: Any) -> int:
    given = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": data,
    }
    return int(raw.ask(PushTelemetryRequest(**{**given, **other}), 0).error_code)
