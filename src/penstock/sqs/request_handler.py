"""The SQS API: verifies, decodes and runs an HTTP request of either protocol, and encodes the response.

For a large request, signature, decoding and action take some milliseconds each, and each gets its own time slice.
"""

import asyncio
import logging
from collections.abc import Awaitable
from itertools import count
from typing import Any, Final, NamedTuple

from penstock.broker.queues.service import QueueService
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.steps import Steps
from penstock.foundation.time_slices import TimeSlices
from penstock.security.credentials import AccessKey, Credentials
from penstock.security.errors import AccessDenied
from penstock.security.sigv4 import Verifier
from penstock.sqs import json_codec, peek_endpoint, query_codec, query_json_codec
from penstock.sqs.call import Call, Endpoint, Outcome, Pending, Result
from penstock.sqs.codecs import JSON, QUERY_JSON, QUERY_XML, Codec
from penstock.sqs.deferred_answers import answer_later
from penstock.sqs.errors import (
    INVALID_ACTION,
    INVALID_REQUEST,
    UNKNOWN_OPERATION,
    SqsError,
    UnknownQueue,
    translate,
)
from penstock.sqs.limits import FULL_NAME_CHARS_MAX
from penstock.sqs.queue_names import is_queue_path
from penstock.sqs.registry import ACTIONS, TARGETS, Action, load_actions
from penstock.sqs.request_counts import PEEK, UNKNOWN, RequestCounts

logger = logging.getLogger(__name__)

LOOKUPS_MAX: Final = 16
"""Maximum number of concurrent requests that look up a queue in the metadata store."""
LARGE_BYTES: Final = 256 << 10
"""Body size, in bytes, above which a request is processed in time slices."""
_TARGET_CHARS_MAX: Final = 100
_WITHOUT_QUEUE: Final = frozenset(("CreateQueue", "ListQueues"))
"""Actions that are not valid at the URL of a queue."""

Answered = HttpResponse | Awaitable[HttpResponse]


class _DecodedRequest(NamedTuple):
    """A large request, verified and decoded: signing key, action (if it is a parameter) and parameters."""

    caller: AccessKey | None
    decoded: tuple[str, dict[str, Any]]


class SqsRequestHandler:
    """Answers all requests of the SQS API. It keeps no state between requests: any broker can answer the next one."""

    def __init__(
        self,
        service: QueueService,
        *,
        clock: Clock,
        slices: TimeSlices,
        endpoint: Endpoint,
        seed: bytes,
        credentials: Credentials | None = None,
    ) -> None:
        """`seed`: ten random bytes with which all request ids start."""
        load_actions()
        self._service = service
        self._clock = clock
        self._endpoint = endpoint
        prefix = seed.hex()
        self._prefix = f"{prefix[:8]}-{prefix[8:12]}-{prefix[12:16]}-{prefix[16:20]}-".encode()
        self._numbers = count(1)
        self._lookups = 0
        self._slices = slices
        self.request_counts: Final = RequestCounts()
        self._verifier = None if credentials is None else Verifier(credentials)

    def use(self, credentials: Credentials) -> None:
        """Replaces the access keys."""
        self._verifier = Verifier(credentials)

    def answer(self, request: HttpRequest) -> Answered:
        request_id = b"%s%012x" % (self._prefix, next(self._numbers))
        if request.path != "/" and peek_endpoint.is_peek(request):
            return self._answer_peek(request, request_id)
        if len(request.body) > LARGE_BYTES:
            return self._answer_large(request, request_id)
        target = request.headers.get(b"x-amz-target")
        if target is None:
            return self._answer_query(request, request_id)
        return self._answer_json(request, request_id, target)

    async def _answer_large(self, request: HttpRequest, request_id: bytes) -> HttpResponse:
        answered = await self._slices.run(self._large_steps(request, request_id))
        if isinstance(answered, HttpResponse):
            return answered
        waiting = asyncio.ensure_future(answered)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                waiting.result().lose()
            raise

    def _large_steps(self, request: HttpRequest, request_id: bytes) -> Steps[Answered]:
        target = request.headers.get(b"x-amz-target")
        try:
            caller = self._verify(request)
            yield
            if target is None:
                query = query_codec.decode(request)
                yield
                return self._answer_query(request, request_id, _DecodedRequest(caller, query))
            params = json_codec.decode(request.body)
            yield
            return self._answer_json(request, request_id, target, _DecodedRequest(caller, ("", params)))
        except PenstockError as error:
            action = TARGETS.get(target or b"")
            name = UNKNOWN if action is None else action.name
            self.request_counts.requests[name] += 1
            codec = _query_codec(request) if target is None else JSON
            return codec.encode_error(self._translate_error(name, error), request_id)

    def _verify(self, request: HttpRequest) -> AccessKey | None:
        return None if self._verifier is None else self._verifier.verify(request, self._clock.now_ms())

    def _answer_json(
        self, request: HttpRequest, request_id: bytes, target: bytes, decoded_request: "_DecodedRequest | None" = None
    ) -> Answered:
        action = TARGETS.get(target)
        name = UNKNOWN if action is None else action.name
        self.request_counts.requests[name] += 1
        try:
            caller = self._verify(request) if decoded_request is None else decoded_request.caller
            if action is None:
                shown = target[:_TARGET_CHARS_MAX].decode("latin-1")
                raise SqsError(INVALID_ACTION, f"There is no action {shown!r}.")
            if caller is not None:
                _check_permission(caller, action)
            params = json_codec.decode(request.body) if decoded_request is None else decoded_request.decoded[1]
            found = self._run(
                action, Call(name, params, self._service, request, caller, self._endpoint, self._slices)
            )
        except PenstockError as error:
            return json_codec.encode_error(self._translate_error(name, error), request_id)
        return self._encode(JSON, name, found, request_id)

    def _answer_query(
        self, request: HttpRequest, request_id: bytes, decoded_request: "_DecodedRequest | None" = None
    ) -> Answered:
        name, codec = UNKNOWN, _query_codec(request)
        try:
            if request.method in (b"GET", b"HEAD") and "Action=" not in request.query:  # signed or not
                raise SqsError(UNKNOWN_OPERATION, "The URL has no parameter Action.")
            caller = self._verify(request) if decoded_request is None else decoded_request.caller
            wanted, params = query_codec.decode(request) if decoded_request is None else decoded_request.decoded
            if not wanted:
                raise SqsError(UNKNOWN_OPERATION, "The request has no parameter Action.")
            action = ACTIONS.get(wanted)
            if action is None or (wanted in _WITHOUT_QUEUE and is_queue_path(request.path)):
                shown = wanted[:_TARGET_CHARS_MAX]
                raise SqsError(INVALID_ACTION, f"The action {shown} is not valid for this endpoint.")
            name = action.name
            if caller is not None:
                _check_permission(caller, action)
            call = Call(name, params, self._service, request, caller, self._endpoint, self._slices, codec)
            found = self._run(action, call)
        except PenstockError as error:
            return codec.encode_error(self._translate_error(name, error), request_id)
        finally:
            self.request_counts.requests[name] += 1
        return self._encode(codec, name, found, request_id)

    def _encode(
        self, codec: Codec, name: str, found: Outcome | Awaitable[Result | Pending], request_id: bytes
    ) -> Answered:
        """Returns the response of an action that has finished or is in progress."""
        if found is None or isinstance(found, dict):
            return codec.encode(name, found, request_id)
        return answer_later(
            found,
            lambda result: codec.encode(name, result, request_id),
            lambda error: codec.encode_error(self._translate_error(name, error), request_id),
        )

    def _answer_peek(self, request: HttpRequest, request_id: bytes) -> Answered:
        """Shows messages without receiving them; only on a local broker that requires no signatures."""
        codec = peek_endpoint.codec_of(request)
        self.request_counts.requests[PEEK] += 1
        try:
            if self._verifier is not None or not self._endpoint.is_local:
                raise AccessDenied(
                    f"{peek_endpoint.PATH} is served only by a broker without --credentials at a loopback address"
                )
            if len(request.body) > LARGE_BYTES:
                raise SqsError(INVALID_REQUEST, f"A request to {peek_endpoint.PATH} has at most {LARGE_BYTES} bytes.")
            wanted = peek_endpoint.read(request)
        except PenstockError as error:
            return codec.encode_error(self._translate_error(PEEK, error), request_id)
        call = Call(peek_endpoint.ACTION, {}, self._service, request, None, self._endpoint, self._slices, codec)
        action = Action(PEEK, "", lambda call: peek_endpoint.peek(call, wanted))
        return answer_later(
            self._await_action(action, call, peek_endpoint.peek(call, wanted)),
            lambda result: codec.encode(peek_endpoint.ACTION, result, request_id),
            lambda error: codec.encode_error(self._translate_error(PEEK, error), request_id),
        )

    def _translate_error(self, name: str, error: PenstockError) -> SqsError:
        """Returns the AWS error for an internal error, and counts it."""
        error_shown = translate(error)
        self.request_counts.errors[name, error_shown.fault.code] += 1
        if not error_shown.fault.is_sender:
            logger.warning("sqs_failed action=%s code=%s reason=%r", name, error_shown.fault.code, str(error))
        return error_shown

    # -- queues not in the metadata image yet: behind a load balancer, another broker may have just created them

    def _run(self, action: Action, call: Call) -> "Outcome | Awaitable[Result | Pending]":
        """Runs an action; retries once if its queue is in the metadata store but not in the metadata image yet."""
        try:
            found = action.run(call)
        except UnknownQueue as error:
            return self._retry_after_lookup(action, call, error)
        if found is None or isinstance(found, (dict, Pending)):
            return found
        return self._await_action(action, call, found)

    async def _await_action(self, action: Action, call: Call, found: Awaitable[Result]) -> Result | Pending:
        try:
            return await found
        except UnknownQueue as error:
            return await self._retry_after_lookup(action, call, error)

    async def _retry_after_lookup(self, action: Action, call: Call, error: UnknownQueue) -> Result | Pending:
        # Requests for queues that do not exist must not overload the store.
        if self._lookups >= LOOKUPS_MAX or not 1 <= len(error.name) <= FULL_NAME_CHARS_MAX:
            raise error
        self._lookups += 1
        try:
            await self._service.wait_for_queue(error.name)
        finally:
            self._lookups -= 1
        found = action.run(call)
        return found if found is None or isinstance(found, (dict, Pending)) else await found


def _query_codec(request: HttpRequest) -> Codec:
    return QUERY_JSON if query_json_codec.is_wanted(request) else QUERY_XML


def _check_permission(caller: AccessKey, action: Action) -> None:
    if not caller.may(action.permission):
        name = f"sqs:{action.name.lower()}"
        raise AccessDenied(
            f"User: {caller.access_key} is not authorized to perform: {name} because no identity-based policy allows "
            f"the {name} action"
        )
