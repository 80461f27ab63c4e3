"""Answers requests of the schema registry's REST API, or forwards them to the broker that leads the registry."""

import asyncio
import logging
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.schemas.runtimes import leader_of
from penstock.broker.schemas.service import RegistryService
from penstock.broker.schemas.topic import create_schemas_topic
from penstock.cluster.image import NO_LEADER
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotCoordinator, PenstockError
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.ids import SCHEMAS_TOPIC
from penstock.foundation.proxies import Proxies
from penstock.log.setting_table import BROKERS, WRITE_ACCESS
from penstock.registry.access import CHALLENGE, Authenticator, Unauthorized
from penstock.registry.audit_trail import RegistryAudit
from penstock.registry.rest import (
    RestCall,
    RestRequest,
    RestResponse,
    Route,
    encode,
    encode_error,
    find_route,
    in_context,
    load_routes,
    parse_path,
    parse_query,
)
from penstock.schemas.registry.errors import (
    ForwardingFailed,
    LeaderUnknown,
    RegistryError,
    StoreFailed,
    TooManyRequests,
)
from penstock.wire.messages.registry_call import RegistryCallRequest, RegistryCallResponse

logger = logging.getLogger(__name__)

PATH: Final = "/registry"
RETRY_FOR_S: Final = 10.0
"""How long a request is retried while the registry has no leader, or a new one is loading it."""
RETRY_EVERY_S: Final = 0.1
FORWARDED_MAX: Final = 256
"""Maximum number of requests that are forwarded or retried at the same time."""
_RETRIABLE: Final = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
)


class RegistryRequestHandler:
    """The schema registry's REST API on one broker. Any broker answers any request."""

    def __init__(
        self,
        broker: Broker,
        service: RegistryService,
        authenticator: Authenticator,
        audit: RegistryAudit | None = None,
    ) -> None:
        """`audit`: None if requests are not audited."""
        load_routes()
        self._audit = audit
        self._broker = broker
        self._service = service
        self._authenticator = authenticator
        self._forwarded = 0
        self.requests = 0
        """Number of requests answered so far."""

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answers an HTTP request whose path starts with PATH."""
        path = request.path.encode("latin-1").decode(errors="replace").removeprefix(PATH)
        query = request.query.encode("latin-1").decode(errors="replace")
        try:
            key_name = self._authenticator.key_name(request.headers)
        except Unauthorized as error:
            if self._audit is not None:
                self._audit.login_failed(request)
            refused = encode_error(error)
            return HttpResponse(refused.status, refused.body, refused.content_type, CHALLENGE)
        method = request.method.decode("latin-1")
        sent = RestRequest(method, path, query, request.body, key_name)
        found = await self._answer(sent)
        if self._audit is not None:
            self._audit.answered(request, self._authenticator.principal(key_name), sent, _writes(sent), found.status)
        return HttpResponse(status=found.status, body=found.body, content_type=found.content_type)

    async def answer_call(self, call: RegistryCallRequest) -> RegistryCallResponse:
        """Answers a request that another broker forwarded. Raises PenstockError if this broker does not lead."""
        request = RestRequest(call.method, call.path, call.query, bytes(call.body), call.access_key)
        found = await self._answer_here(request)
        return RegistryCallResponse(status=found.status, content_type=found.content_type, body=found.body)

    async def _answer(self, request: RestRequest) -> RestResponse:
        self.requests += 1
        deadline_s = asyncio.get_running_loop().time() + RETRY_FOR_S
        if self._forwarded >= FORWARDED_MAX:
            return encode_error(TooManyRequests(f"{FORWARDED_MAX} requests wait at this broker; try again"))
        self._forwarded += 1
        try:
            while True:
                try:
                    return await self._route(request)
                except RegistryError as error:
                    return encode_error(error)
                except PenstockError as error:
                    if error.code not in _RETRIABLE or asyncio.get_running_loop().time() > deadline_s:
                        return encode_error(LeaderUnknown(f"The registry is not available: {error}"))
                    await asyncio.sleep(RETRY_EVERY_S)
        finally:
            self._forwarded -= 1

    async def _route(self, request: RestRequest) -> RestResponse:
        """Answers a request here or at the leader. Raises PenstockError if it must be tried again."""
        topic = self._broker.image.by_name.get(SCHEMAS_TOPIC)
        if topic is not None and not topic.is_internal:
            raise StoreFailed(
                f"Topic {SCHEMAS_TOPIC!r} is written by clients, probably another registry. Stop that, then set "
                f"{WRITE_ACCESS}={BROKERS} on the topic, and this registry continues with its schemas"
            )
        if topic is None:
            route, _ = _find(request)[:2]
            self._authenticator.access(request.key_name).check_any(route.right)
            if route.writes:
                await create_schemas_topic(self._broker)
            else:
                return await self._run(request, self._service.without_topic)
        leader = leader_of(self._broker.image)
        if leader == NO_LEADER:
            raise NotCoordinator(f"{SCHEMAS_TOPIC}-0 has no leader; try again")
        if leader == self._broker.node_id:
            return await self._answer_here(request)
        return await self._forward(leader, request)

    async def _forward(self, leader: int, request: RestRequest) -> RestResponse:
        call = RegistryCallRequest(
            method=request.method,
            path=request.path,
            query=request.query,
            body=request.body,
            access_key=request.key_name,
        )
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._broker.ask(leader, call, lambda value: None if answered.done() else answered.set_result(value))
        found = await answered
        if isinstance(found, PenstockError):
            raise ForwardingFailed(f"Broker {leader}, which leads the registry, did not answer: {found}")
        if found.error_code in _RETRIABLE:
            raise NotCoordinator(found.error_message or f"broker {leader} does not lead the registry")
        if found.error_code:
            raise ForwardingFailed(f"Broker {leader}, which leads the registry: {found.error_message}")
        return RestResponse(found.status, bytes(found.body), found.content_type)

    async def _answer_here(self, request: RestRequest) -> RestResponse:
        """Answers a request at the leader. Raises PenstockError if this broker does not lead, or loads the state."""
        try:
            _ = self._service.state
            return await self._run(request, self._service)
        except RegistryError as error:
            return encode_error(error)

    async def _run(self, request: RestRequest, service: RegistryService) -> RestResponse:
        route, arguments, query = _find(request)
        access = self._authenticator.access(request.key_name)
        access.check_any(route.right)
        call = RestCall(service, request, query, self._broker.image.cluster_id, access, route.right)
        return encode(await route.answer(call, *arguments))


def serve_registry(
    broker: Broker, service: RegistryService, authenticator: Authenticator, proxies: Proxies
) -> RegistryRequestHandler:
    """Returns the handler of the REST API, which also answers the requests that other brokers forward."""
    audit = None if broker.audit is None else RegistryAudit(broker.audit, proxies)
    handler = RegistryRequestHandler(broker, service, authenticator, audit)
    broker.answer_registry_call = handler.answer_call
    return handler


def _writes(request: RestRequest) -> bool:
    """Whether a request may change the registry."""
    try:
        return _find(request)[0].writes
    except RegistryError:
        return False


def _find(request: RestRequest) -> tuple[Route, list[str], dict[str, list[str]]]:
    query = parse_query(request.query)
    parts = in_context(parse_path(request.path), query)
    method = "GET" if request.method == "HEAD" else request.method
    route, arguments = find_route(method, parts)
    return route, arguments, query
