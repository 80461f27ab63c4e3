"""Changes of topic, broker, group and client-metrics settings, for AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.configs import CLUSTER_WIDE, Configs
from penstock.broker.settings import BROKER_SETTINGS, READ_ONLY
from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_changes import plan_configure
from penstock.coordination.store import ABSENT, Delete, Op, Put
from penstock.foundation.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.foundation.errors import InvalidConfig, InvalidRequest
from penstock.foundation.settings import Table
from penstock.groups.group_configs import DEAD_LETTER_TOPIC, GROUP_CONFIGS, check_group_configs
from penstock.log.setting_table import LOG_SETTINGS
from penstock.telemetry.subscriptions import CLIENT_METRICS_SETTINGS, check_subscription

Alter = Callable[[Mapping[str, str]], dict[str, str]]
"""A function from the current settings of a resource to its new settings."""


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


SETTINGS: Final[Mapping[int, Table]] = {
    Resource.TOPIC: LOG_SETTINGS,
    Resource.BROKER: BROKER_SETTINGS,
    Resource.GROUP: GROUP_CONFIGS,
    Resource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
"""The table of valid settings for each resource type."""


def check_topic_configs(overrides: Mapping[str, str], configs: Configs) -> None:
    """Raises InvalidConfig if `overrides` are not valid settings of a topic."""
    for name in overrides:
        LOG_SETTINGS.get(name)
    configs.log_settings_of(overrides)


_SUBJECTS: Final[Mapping[int, ResourceType]] = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
}
"""The resource of ACLs for each type of settings; those of other types are about the cluster."""


def check_alter(call: Call, kind: int, name: str) -> None:
    """Raises NotAuthorized if the client may not change the settings of a resource (of type `kind`)."""
    _check(call, Operation.ALTER_CONFIGS, kind, name)


def check_describe(call: Call, kind: int, name: str) -> None:
    """Raises NotAuthorized if the client may not read the settings of a resource (of type `kind`)."""
    _check(call, Operation.DESCRIBE_CONFIGS, kind, name)


def _check(call: Call, operation: Operation, kind: int, name: str) -> None:
    subject = _SUBJECTS.get(kind, ResourceType.CLUSTER)
    call.check(operation, subject, CLUSTER_NAME if subject is ResourceType.CLUSTER else name)


async def alter(call: Call, broker: Broker, kind: int, name: str, change: Alter, validate_only: bool) -> None:
    """Changes the settings of one resource (of type `kind`), which `call` may do. Raises InvalidRequest or
    InvalidConfig, and NotAuthorized if a new setting needs another permission."""
    if kind == Resource.TOPIC:
        await _alter_topic(broker, name, change, validate_only)
    elif kind == Resource.BROKER:
        await _alter_broker(broker, name, change, validate_only)
    elif kind == Resource.GROUP:
        await _alter_group(call, broker, name, change, validate_only)
    elif kind == Resource.CLIENT_METRICS:
        await _alter_client_metrics(broker, name, change, validate_only)
    else:
        raise InvalidRequest(
            f"settings of resource type {kind} cannot be altered; topics (2), brokers (4), "
            "client metrics (16) and groups (32) can"
        )


async def _alter_topic(broker: Broker, name: str, change: Alter, validate_only: bool) -> None:
    companion = broker.new_topic_id()

    def plan(image: ClusterImage) -> list[Op]:
        topic = broker.topic(name)
        wanted = change(topic.configs)
        check_topic_configs(wanted, broker.configs)
        if wanted.get("storage", "disk") != topic.configs.get("storage", "disk"):
            raise InvalidConfig(
                "storage cannot change after a topic is created; create another topic and copy the records"
            )
        return plan_configure(topic, wanted, companion) if wanted != dict(topic.configs) else []

    plan(broker.image)
    if not validate_only:
        await broker.metadata.change(plan)


async def _alter_broker(broker: Broker, name: str, change: Alter, validate_only: bool) -> None:
    if name != CLUSTER_WIDE and not (name.isdigit() and int(name) in broker.image.brokers):
        raise InvalidRequest(f"broker {name!r} is not registered; leave the name empty to change the whole cluster")

    def plan(image: ClusterImage) -> list[Op]:
        now = image.broker_configs.get(name, {})
        wanted = change(now)
        for key, text in wanted.items():
            BROKER_SETTINGS.get(key).parse(text)
            if key in READ_ONLY and text != now.get(key):
                raise InvalidConfig(f"{key} is read only when the broker starts; set it in the configuration file")
        key = keys.broker_config(name)
        return [Put(key, keys.encode(wanted), image.versions.get(key, ABSENT))] if wanted != dict(now) else []

    plan(broker.image)
    if not validate_only:
        await broker.metadata.change(plan)


async def _alter_group(call: Call, broker: Broker, name: str, change: Alter, validate_only: bool) -> None:
    """Changes the settings of a group, which need not exist (KIP-848). A new topic for its dead letters must be one
    that the client may write to, since brokers will do so for the group."""
    if not name:
        raise InvalidRequest("the group id is empty; give the id of the group")

    def check(image: ClusterImage, wanted: Mapping[str, str]) -> None:
        check_group_configs(wanted, broker.configs.__getitem__)
        dead_letters = wanted.get(DEAD_LETTER_TOPIC, "")
        if dead_letters and dead_letters != image.group_configs.get(name, {}).get(DEAD_LETTER_TOPIC):
            call.check(Operation.WRITE, ResourceType.TOPIC, dead_letters)

    await _replace(
        broker, keys.group_config(name), lambda image: image.group_configs.get(name, {}), change, check, validate_only
    )


async def _alter_client_metrics(broker: Broker, name: str, change: Alter, validate_only: bool) -> None:
    """Changes a client-metrics subscription, which exists as long as it has settings."""

    def check(image: ClusterImage, wanted: Mapping[str, str]) -> None:
        check_subscription(name, wanted, len(image.client_metrics.keys() - {name}) if wanted else 0)

    await _replace(
        broker,
        keys.client_metrics(name),
        lambda image: image.client_metrics.get(name, {}),
        change,
        check,
        validate_only,
    )


async def _replace(
    broker: Broker,
    key: str,
    current: Callable[[ClusterImage], Mapping[str, str]],
    change: Alter,
    check: Callable[[ClusterImage, Mapping[str, str]], None],
    validate_only: bool,
) -> None:
    """Applies `change` to the `current` settings and validates the result with `check`. Unless `validate_only`,
    stores it under `key` in the metadata store; deletes the key if no settings are left."""

    def plan(image: ClusterImage) -> list[Op]:
        now = current(image)
        wanted = change(now)
        check(image, wanted)
        version = image.versions.get(key, ABSENT)
        if wanted == dict(now):
            return []
        return [Put(key, keys.encode(wanted), version)] if wanted else [Delete(key, version)]

    plan(broker.image)
    if not validate_only:
        await broker.metadata.change(plan)
