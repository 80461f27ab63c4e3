"""DescribeConfigs: returns settings with their values, sources and synonyms."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.config_admin import Resource, check_describe
from penstock.broker.configs import Source, Value
from penstock.broker.registry import handles
from penstock.broker.settings import BROKER_SETTINGS, READ_ONLY
from penstock.broker.views.administration import VIEW_SETTINGS, view_values
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.settings import Kind, Setting
from penstock.groups.group_configs import GROUP_CONFIGS
from penstock.log.setting_table import LOG_SETTINGS
from penstock.telemetry.subscriptions import CLIENT_METRICS_SETTINGS
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handles(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(request: DescribeConfigsRequest, call: Call, broker: Broker) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        code, message, found = 0, None, []
        try:
            check_describe(call, resource.resource_type, resource.resource_name)
            found = _values(resource, broker)
        except PenstockError as error:
            code, message = error.code, error.message
        results.append(
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    _entry(setting, values, request)
                    for setting, values in found
                    if resource.configuration_keys is None or setting.name in resource.configuration_keys
                ],
            )
        )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _values(resource: DescribeConfigsResource, broker: Broker) -> list[tuple[Setting, list[Value]]]:
    configs = broker.configs
    if resource.resource_type == Resource.TOPIC:
        topic = broker.shown_topic(resource.resource_name)
        if topic.view is not None:
            return view_values(topic.view, broker)
        return [(setting, configs.topic_values(setting, topic.configs)) for setting in LOG_SETTINGS]
    if resource.resource_type == Resource.BROKER:
        if resource.resource_name == "":
            shared = [(setting, configs.broker_values(setting)) for setting in BROKER_SETTINGS]
            dynamic = [
                (setting, [v for v in values if v.source == Source.DYNAMIC_CLUSTER]) for setting, values in shared
            ]
            return [(setting, values) for setting, values in dynamic if values]
        if resource.resource_name != str(broker.node_id):
            raise InvalidRequest(
                f"this is broker {broker.node_id}; send the request to broker {resource.resource_name}"
            )
        return [(setting, configs.broker_values(setting)) for setting in BROKER_SETTINGS]
    if resource.resource_type == Resource.GROUP:
        own = broker.image.group_configs.get(resource.resource_name, {})
        return [(setting, configs.group_values(setting, own)) for setting in GROUP_CONFIGS]
    if resource.resource_type == Resource.CLIENT_METRICS:
        if not resource.resource_name:
            raise InvalidRequest("the name of a client metrics subscription is empty; give a name")
        own = broker.image.client_metrics.get(resource.resource_name, {})
        return [(setting, configs.client_metrics_values(setting, own)) for setting in CLIENT_METRICS_SETTINGS]
    raise InvalidRequest(
        f"resource type {resource.resource_type} has no settings; topics (2), brokers (4), client metrics (16) and "
        "groups (32) have"
    )


def _entry(setting: Setting, values: list[Value], request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = values if request.include_synonyms else []
    is_sensitive = setting.kind is Kind.PASSWORD
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if is_sensitive else values[0].text,
        read_only=setting.name in READ_ONLY or setting.name in VIEW_SETTINGS.by_name,
        config_source=values[0].source,
        is_sensitive=is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=value.name, value=None if is_sensitive else value.text, source=value.source)
            for value in synonyms
        ],
        config_type=setting.kind,
        documentation=setting.doc if request.include_documentation else None,
    )
