"""CreateTopics: creates topics and views (filtered virtual topics); an invalid one does not affect the others."""

from collections import Counter

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.new_topics import check_new_topic, create_checked
from penstock.broker.registry import handles
from penstock.broker.views.administration import create_view, is_view
from penstock.cluster.image import Topic
from penstock.cluster.topic_changes import NewTopic
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidConfig, InvalidRequest, PenstockError
from penstock.foundation.view_names import VIEW_OF
from penstock.log.setting_table import LOG_SETTINGS
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@handles(ApiKey.CREATE_TOPICS)
async def create_topics(request: CreateTopicsRequest, call: Call, broker: Broker) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    named = {topic.name: topic for topic in request.topics}
    results = []
    for name, topic in named.items():
        try:
            if counts[name] > 1:
                raise InvalidRequest(f"the request names topic {name!r} {counts[name]} times")
            _check_allowed(topic, call)
            if not request.validate_only:
                call.change_partitions(_partitions(topic, broker))
            make = create_view if is_view(topic) else _create
            results.append(_shown(await make(topic, request.validate_only, broker), call))
        except PenstockError as error:
            results.append(CreatableTopicResult(name=name, error_code=error.code, error_message=error.message))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _partitions(topic: CreatableTopic, broker: Broker) -> int:
    return len(topic.assignments) or (
        topic.num_partitions if topic.num_partitions > 0 else broker.configs["num.partitions"]
    )


def _check_allowed(topic: CreatableTopic, call: Call) -> None:
    """Raises TopicAuthorizationFailed if the client may not create the topic or, for a view, not read its topic."""
    if not call.allows_in_cluster(Operation.CREATE, audited=False):
        call.check(Operation.CREATE, ResourceType.TOPIC, topic.name)
    for entry in topic.configs:
        if entry.name == VIEW_OF and entry.value:
            call.check(Operation.READ, ResourceType.TOPIC, entry.value)


def _shown(result: CreatableTopicResult, call: Call) -> CreatableTopicResult:
    """Returns the result without the settings of the new topic if the client may not read them."""
    if call.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name, audited=False):
        return result
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
    )


async def _create(topic: CreatableTopic, validate_only: bool, broker: Broker) -> CreatableTopicResult:
    wanted = _wanted(topic)
    if validate_only:
        wanted, defaults = check_new_topic(broker, wanted), broker.topic_defaults()
        replicas = wanted.replication_factor if wanted.replication_factor > 0 else defaults.replication_factor
        partitions = wanted.partitions if wanted.partitions > 0 else defaults.partitions
        if wanted.assignments:
            partitions, replicas = len(wanted.assignments), len(next(iter(wanted.assignments.values())))
        return _result(
            Topic(topic_id=bytes(16), name=topic.name, configs=wanted.configs), partitions, replicas, broker
        )
    made = await create_checked(broker, wanted)
    return _result(made, len(made.partitions), len(made.partitions[0].replicas), broker)


def _wanted(topic: CreatableTopic) -> NewTopic:
    configs = {}
    for entry in topic.configs:
        if entry.value is None:
            raise InvalidConfig(f"{entry.name} has no value; leave it out to get the default")
        configs[entry.name] = entry.value
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: entry.broker_ids for entry in topic.assignments},
        configs=configs,
    )


def _result(topic: Topic, partitions: int, replicas: int, broker: Broker) -> CreatableTopicResult:
    effective = [broker.configs.topic_values(entry, topic.configs)[0] for entry in LOG_SETTINGS]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=value.text,
                read_only=False,
                config_source=value.source,
                is_sensitive=False,
            )
            for entry, value in zip(LOG_SETTINGS, effective, strict=True)
        ],
    )
