"""Asks the broker that leads the schema registry which schema ids are registered, and answers such questions."""

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.schemas.known_ids import Questions
from penstock.broker.schemas.runtimes import leader_of
from penstock.client.errors import check
from penstock.cluster import keys
from penstock.cluster.image import NO_LEADER
from penstock.foundation.errors import CoordinatorNotAvailable, InvalidRequest, NotCoordinator, PenstockError
from penstock.foundation.ids import SCHEMAS_TOPIC
from penstock.foundation.steps import Steps
from penstock.log.settings import SubjectRule
from penstock.schemas.registry.state import RegistryState
from penstock.wire.messages.known_schema_ids import (
    IDS_MAX,
    KnownSchemaIdsRequest,
    KnownSchemaIdsResponse,
    SchemaIdsAnswer,
    SchemaIdsQuestion,
)


async def ask_registry(broker: Broker, questions: Questions) -> Mapping[SubjectRule, frozenset[int]]:
    """Returns, for each rule, which of the ids are registered as it requires. Raises PenstockError."""
    asked = list(questions.items())
    request = KnownSchemaIdsRequest(
        questions=[
            SchemaIdsQuestion(subject=rule.name, is_prefix=rule.is_prefix, ids=list(ids)) for rule, ids in asked
        ]
    )
    topic = broker.image.by_name.get(SCHEMAS_TOPIC)
    if topic is None:
        if await broker.metadata.is_stored(keys.topic_name(SCHEMAS_TOPIC)):
            raise CoordinatorNotAvailable("the registry's topic was created a moment ago")
        return {rule: frozenset() for rule, _ in asked}
    if not topic.is_internal:
        raise CoordinatorNotAvailable(f"topic {SCHEMAS_TOPIC!r} is written by clients, probably another registry")
    leader = leader_of(broker.image)
    if leader == NO_LEADER:
        raise NotCoordinator(f"{SCHEMAS_TOPIC}-0 has no leader")
    response = await (answer(broker, request) if leader == broker.node_id else _ask(broker, leader, request))
    found = [frozenset(each.ids) for each in response.answers]
    return {rule: ids for (rule, _), ids in zip(asked, found, strict=True)}


async def _ask(broker: Broker, leader: int, request: KnownSchemaIdsRequest) -> KnownSchemaIdsResponse:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    broker.ask(leader, request, lambda value: None if answered.done() else answered.set_result(value))
    response = await answered
    if isinstance(response, PenstockError):
        raise response
    assert isinstance(response, KnownSchemaIdsResponse)
    check(response.error_code, f"broker {leader}, which leads the registry", response.error_message)
    return response


async def answer(broker: Broker, request: KnownSchemaIdsRequest) -> KnownSchemaIdsResponse:
    """Returns which ids are registered, once all that this is based on is committed. Raises PenstockError if this
    broker does not lead the registry, or has not loaded it yet."""
    if sum(len(each.ids) for each in request.questions) > IDS_MAX:
        raise InvalidRequest(f"a request has at most {IDS_MAX} schema ids")
    if broker.schema_registry is None:
        raise CoordinatorNotAvailable("the schema registry of this broker is not ready; try again")
    found = await broker.slices.run(_find(broker.schema_registry.state, request))
    await broker.schema_registry.wait_committed()
    return KnownSchemaIdsResponse(answers=found)


def _find(state: RegistryState, request: KnownSchemaIdsRequest) -> Steps[list[SchemaIdsAnswer]]:
    answers = []
    for question in request.questions:
        known = []
        for number in question.ids:
            if state.is_registered(number, question.subject, is_prefix=question.is_prefix):
                known.append(number)
            yield
        answers.append(SchemaIdsAnswer(ids=known))
    return answers
