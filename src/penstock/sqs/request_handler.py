"""The SQS API: verifies, decodes and runs an HTTP request of either protocol, and encodes the response.

A large request is verified, decoded and run in separate time slices, since each takes some milliseconds.
"""

import asyncio
import logging
from collections.abc import Awaitable
from itertools import count
from typing import Final

from penstock.broker.client_limits import REQUEST_THROTTLE_MS_MAX, ClientLimits, ClientQuotas, Meter
from penstock.broker.queues.service import QueueService
from penstock.foundation.clock import Clock
from penstock.foundation.eager_task import start
from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.steps import Steps, run_steps
from penstock.foundation.time_slices import TimeSlices
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.credentials import AccessKey, Credentials
from penstock.security.errors import AccessDenied
from penstock.security.key_ring import KeyRing
from penstock.security.sigv4 import Verifier
from penstock.security.stored_keys import StoredKeys
from penstock.sqs import json_codec, peek_endpoint, query_codec, query_json_codec
from penstock.sqs.audit_trail import AuditTrail
from penstock.sqs.call import Call, Endpoint
from penstock.sqs.checks import Params
from penstock.sqs.codecs import JSON, QUERY_JSON, QUERY_XML, Codec
from penstock.sqs.errors import (
    INTERNAL_FAILURE,
    INVALID_ACTION,
    INVALID_REQUEST,
    REQUEST_THROTTLED,
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
"""Maximum number of requests that look up an unknown queue in the metadata store at the same time."""
LARGE_BYTES: Final = 256 << 10
"""Body size, in bytes, above which a request is verified and decoded in time slices."""
_TARGET_CHARS_MAX: Final = 100
_SENDS: Final = frozenset(("SendMessage", "SendMessageBatch"))
_RECEIVES: Final = "ReceiveMessage"
_WITHOUT_QUEUE: Final = frozenset(("CreateQueue", "ListQueues"))
"""Actions that are refused if the URL of the request is that of a queue."""


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
        stored: StoredKeys | None = None,
        quotas: ClientQuotas | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        """`seed`: ten random bytes with which all request ids start. `credentials`: the access keys of a file, if
        the broker has one. `stored`: those in the metadata store. `audit`: None if requests are not audited."""
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
        self._keys = KeyRing(credentials, stored)
        self._verifier = Verifier(self._keys)
        self._quotas = quotas
        self._audit = audit

    @property
    def credentials(self) -> KeyRing | None:
        """The access keys; None if requests need not be signed."""
        return self._keys if self._keys.is_required else None

    def use(self, credentials: Credentials) -> None:
        """Replaces all access keys of the file by `credentials`."""
        self._keys.file = credentials

    def answer(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        request_id = b"%s%012x" % (self._prefix, next(self._numbers))
        started_s = self._clock.monotonic_s()
        if request.path != "/" and peek_endpoint.is_peek(request):
            found = self._read_peek(request, request_id)
        elif len(request.body) > LARGE_BYTES:
            return self._answer_large(request, request_id)
        else:
            found = run_steps(self._read_steps(request, request_id))
        if isinstance(found, HttpResponse):
            return found
        work = self._run(*found, request_id)
        response = start(work) if found[0].is_eager else work
        busy = None if found[1].limits is None else found[1].limits.busy
        if busy is not None:
            now_s = self._clock.monotonic_s()
            busy.take(now_s - started_s, now_s)
        return response

    async def _answer_large(self, request: HttpRequest, request_id: bytes) -> HttpResponse:
        found = await self._slices.run(self._read_steps(request, request_id))
        return found if isinstance(found, HttpResponse) else await self._run(*found, request_id)

    # -- reading requests

    def _read_steps(self, request: HttpRequest, request_id: bytes) -> Steps[HttpResponse | tuple[Action, Call]]:
        """Verifies and decodes a request; returns its action and Call, or an error response if it is refused."""
        target = request.headers.get(b"x-amz-target")
        action = None if target is None else TARGETS.get(target)
        caller, params = None, Params()
        codec = JSON if target is not None else QUERY_JSON if query_json_codec.is_wanted(request) else QUERY_XML
        try:
            is_get = request.method in (b"GET", b"HEAD")
            if target is None and is_get and "Action=" not in request.query:  # signed or not
                raise SqsError(UNKNOWN_OPERATION, "The URL has no parameter Action.")
            if self._keys.is_required:
                caller = self._verifier.verify(request, self._clock.now_ms())
            yield
            if target is None:
                name, params = query_codec.decode(request)
                action = _find_query_action(name, request)
            elif action is None:
                shown = target[:_TARGET_CHARS_MAX].decode("latin-1")
                raise SqsError(INVALID_ACTION, f"There is no action {shown!r}.")
            if caller is not None:
                _check_permission(caller, action)
            limits = self._limits_of(caller)
            meter = None if limits is None else self._meter_of(limits, action)
            if target is not None:
                params = json_codec.decode(request.body)
            yield
        except PenstockError as error:
            name = UNKNOWN if action is None else action.name
            if self._audit is not None:
                self._audit.refused(name, request, caller, params, error)
            return self._refuse(name, codec, error, request_id)
        finally:
            self.request_counts.requests[UNKNOWN if action is None else action.name] += 1
        call = self._call(action.name, params, request, caller, codec)
        call.limits, call.meter = limits, meter
        return action, call

    def _limits_of(self, caller: AccessKey | None) -> ClientLimits | None:
        if self._quotas is None:
            return None
        return self._quotas.limits_of(ANONYMOUS if caller is None else caller.principal, "")

    def _meter_of(self, limits: ClientLimits, action: Action) -> Meter | None:
        """Returns the meter of what the action sends or receives. Raises SqsError while the caller's quota of it is
        exceeded. Other actions are never refused: a client must be able to delete what it has received."""
        meter = limits.produced if action.name in _SENDS else limits.fetched if action.name == _RECEIVES else None
        wait_ms = 0 if meter is None else meter.debt_ms(self._clock.monotonic_s())
        if wait_ms:
            raise SqsError(REQUEST_THROTTLED, f"Rate exceeded; try again in {wait_ms} ms.")
        return meter

    def _read_peek(self, request: HttpRequest, request_id: bytes) -> HttpResponse | tuple[Action, Call]:
        """Reads a request to /_aws/sqs/messages; refuses it if the broker has access keys or is not on loopback."""
        codec = peek_endpoint.codec_of(request)
        self.request_counts.requests[PEEK] += 1
        try:
            if self._keys.is_required or not self._endpoint.is_local:
                raise AccessDenied(
                    f"{peek_endpoint.PATH} is served only by a broker without access keys at a loopback address"
                )
            if len(request.body) > LARGE_BYTES:
                raise SqsError(INVALID_REQUEST, f"A request to {peek_endpoint.PATH} has at most {LARGE_BYTES} bytes.")
            wanted = peek_endpoint.read(request)
        except PenstockError as error:
            return self._refuse(PEEK, codec, error, request_id)
        action = Action(PEEK, "", lambda call: peek_endpoint.peek(call, wanted))
        return action, self._call(peek_endpoint.ACTION, {}, request, None, codec)

    def _call(self, name: str, params: Params, request: HttpRequest, caller: AccessKey | None, codec: Codec) -> Call:
        return Call(name, params, self._service, request, caller, self._endpoint, self._slices, codec)

    # -- running actions

    async def _run(self, action: Action, call: Call, request_id: bytes) -> HttpResponse:
        """Runs an action and returns its response. If it fails or is cancelled, undoes it with `call.on_lost`."""
        try:
            if call.limits is not None and call.limits.busy is not None:
                await self._wait_for(call.limits.busy)
            try:
                result = await action.run(call)
            except UnknownQueue as error:
                await self._look_up(error)
                result = await action.run(call)
            response = call.codec.encode(call.action, result, request_id)
            if call.meter is not None:
                moved = len(response.body) if call.action == _RECEIVES else len(call.request.body)
                call.meter.take(moved, self._clock.monotonic_s())
            if self._audit is not None:
                self._audit.done(action.name, call.request, call.caller, call.params)
        except BaseException as error:
            if call.on_lost is not None:
                call.on_lost()
            if not isinstance(error, Exception):
                raise
            if self._audit is not None and isinstance(error, PenstockError):
                self._audit.refused(action.name, call.request, call.caller, call.params, error)
            return self._refuse(action.name, call.codec, error, request_id)
        return response if call.on_lost is None else response._replace(on_lost=call.on_lost)

    async def _wait_for(self, busy: Meter) -> None:
        """Delays a request whose caller has used more of the broker's time than its quota allows."""
        debt_ms = busy.debt_ms(self._clock.monotonic_s())
        if debt_ms:
            await asyncio.sleep(min(debt_ms, REQUEST_THROTTLE_MS_MAX) / 1000)

    async def _look_up(self, error: UnknownQueue) -> None:
        """Waits, with a timeout, for a queue that is in the metadata store but not yet in the metadata image here.
        Returns at once if it is not stored. Raises `error` if too many requests wait or its name is invalid."""
        # Requests for queues that do not exist must not overload the store.
        if self._lookups >= LOOKUPS_MAX or not 1 <= len(error.name) <= FULL_NAME_CHARS_MAX:
            raise error
        self._lookups += 1
        try:
            # In a task, which its timeout needs: an eager action has none before it waits.
            await asyncio.create_task(self._service.wait_for_queue(error.name))
        finally:
            self._lookups -= 1

    def _refuse(self, name: str, codec: Codec, error: Exception, request_id: bytes) -> HttpResponse:
        """Returns the error response for `error`, translated to an AWS error, and counts it in the metrics."""
        if not isinstance(error, PenstockError):
            logger.error("sqs_failed", exc_info=error)
            error = SqsError(INTERNAL_FAILURE, f"The request processing has failed: {error!r}")
        error_shown = translate(error)
        self.request_counts.errors[name, error_shown.fault.code] += 1
        if not error_shown.fault.is_sender:
            logger.warning("sqs_failed action=%s code=%s reason=%r", name, error_shown.fault.code, str(error))
        return codec.encode_error(error_shown, request_id)


def _find_query_action(name: str, request: HttpRequest) -> Action:
    """Returns the action `name` of a Query request. Raises SqsError if it is unknown or not valid at this URL."""
    if not name:
        raise SqsError(UNKNOWN_OPERATION, "The request has no parameter Action.")
    action = ACTIONS.get(name)
    if action is None or (name in _WITHOUT_QUEUE and is_queue_path(request.path)):
        shown = name[:_TARGET_CHARS_MAX]
        raise SqsError(INVALID_ACTION, f"The action {shown} is not valid for this endpoint.")
    return action


def _check_permission(caller: AccessKey, action: Action) -> None:
    if not caller.may(action.permission):
        name = f"sqs:{action.name.lower()}"
        raise AccessDenied(
            f"User: {caller.access_key} is not authorized to perform: {name} because no identity-based policy allows "
            f"the {name} action"
        )
