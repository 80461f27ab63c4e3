"""The front end: takes a request of either protocol, has its action carried out, and gives the answer back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

from penstock.broker.queues.service import QueueService
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.security.credentials import AccessKey, Credentials
from penstock.security.errors import AccessDenied
from penstock.security.sigv4 import Verifier
from penstock.sqs import json_codec, query_codec
from penstock.sqs.call import Call, Outcome, Pending, Result
from penstock.sqs.errors import INTERNAL_FAILURE, INVALID_ACTION, MISSING_ACTION, SqsError, UnknownQueue, translate
from penstock.sqs.registry import ACTIONS, TARGETS, Action, load_actions
from penstock.sqs.tally import UNKNOWN, Tally

logger = logging.getLogger(__name__)

LOOKS_MAX: Final = 16
"""Requests at a time that look for a queue in the store."""
_TARGET_CHARS_MAX: Final = 100


class SqsFront:
    """Answers every request of the SQS API. It keeps nothing of them: any broker can answer the next."""

    def __init__(
        self, service: QueueService, *, clock: Clock, host: str, seed: bytes, credentials: Credentials | None = None
    ) -> None:
        """`host`: where this broker is. `seed`: ten random bytes that begin the ids of requests."""
        load_actions()
        self._service = service
        self._clock = clock
        self._host = host
        prefix = seed.hex()
        self._prefix = f"{prefix[:8]}-{prefix[8:12]}-{prefix[12:16]}-{prefix[16:20]}-".encode()
        self._numbers = count(1)
        self._looking = 0
        self.tally: Final = Tally()
        self._verifier = None if credentials is None else Verifier(credentials)

    def use(self, credentials: Credentials) -> None:
        """From now on, these keys count and no others."""
        self._verifier = Verifier(credentials)

    def answer(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        request_id = b"%s%012x" % (self._prefix, next(self._numbers))
        target = request.headers.get(b"x-amz-target")
        if target is None:
            return self._answer_query(request, request_id)
        action = TARGETS.get(target)
        name = UNKNOWN if action is None else action.name
        self.tally.requests[name] += 1
        try:
            caller = None if self._verifier is None else self._verifier.verify(request, self._clock.now_ms())
            if action is None:
                shown = target[:_TARGET_CHARS_MAX].decode("latin-1")
                raise SqsError(INVALID_ACTION, f"There is no action {shown!r}.")
            if caller is not None:
                _check_permission(caller, action)
            params = json_codec.decode(request.body)
            found = self._run(action, Call(name, params, self._service, request, caller, self._host))
        except PenstockError as error:
            return json_codec.encode_error(self._told(name, error), request_id)
        if found is None or isinstance(found, dict):
            return json_codec.encode(found, request_id)
        return _later(
            found,
            lambda result: json_codec.encode(result, request_id),
            lambda error: json_codec.encode_error(self._told(name, error), request_id),
        )

    def _answer_query(self, request: HttpRequest, request_id: bytes) -> HttpResponse | Awaitable[HttpResponse]:
        name = UNKNOWN
        try:
            caller = None if self._verifier is None else self._verifier.verify(request, self._clock.now_ms())
            wanted, params = query_codec.decode(request)
            if not wanted:
                raise SqsError(MISSING_ACTION, "The request must contain the parameter Action.")
            action = ACTIONS.get(wanted)
            if action is None:
                shown = wanted[:_TARGET_CHARS_MAX]
                raise SqsError(INVALID_ACTION, f"The action {shown} is not valid for this endpoint.")
            name = action.name
            if caller is not None:
                _check_permission(caller, action)
            call = Call(name, params, self._service, request, caller, self._host, is_query=True)
            found = self._run(action, call)
        except PenstockError as error:
            return query_codec.encode_error(self._told(name, error), request_id)
        finally:
            self.tally.requests[name] += 1
        if found is None or isinstance(found, dict):
            return query_codec.encode(name, found, request_id)
        return _later(
            found,
            lambda result: query_codec.encode(name, result, request_id),
            lambda error: query_codec.encode_error(self._told(name, error), request_id),
        )

    def _told(self, name: str, error: PenstockError) -> SqsError:
        """What the client is told of an error, which is counted."""
        told = translate(error)
        self.tally.errors[name, told.fault.code] += 1
        if not told.fault.is_sender:
            logger.warning("sqs_failed action=%s code=%s reason=%r", name, told.fault.code, str(error))
        return told

    # -- queues that this broker has yet to hear of: behind a load balancer, another one may have made them just now

    def _run(self, action: Action, call: Call) -> Outcome:
        """Carry out an action; once more, if it is about a queue that only the store knows."""
        try:
            found = action.run(call)
        except UnknownQueue as error:
            return self._run_again(action, call, error)
        if found is None or isinstance(found, (dict, Pending)):
            return found
        return self._run_on(action, call, found)

    async def _run_on(self, action: Action, call: Call, found: Awaitable[Result]) -> Result:
        try:
            return await found
        except UnknownQueue as error:
            return await self._run_again(action, call, error)

    async def _run_again(self, action: Action, call: Call, error: UnknownQueue) -> Result:
        if self._looking >= LOOKS_MAX:  # whoever asks for queues that are not there must not keep the store busy
            raise error
        self._looking += 1
        try:
            await self._service.look_up(error.name)
        finally:
            self._looking -= 1
        found = action.run(call)
        if isinstance(found, Pending):
            return found.finish(await found.found)
        return found if found is None or isinstance(found, dict) else await found


def _later(
    found: Pending | Awaitable[Result],
    encode: Callable[[Result], HttpResponse],
    refuse: Callable[[PenstockError], HttpResponse],
) -> "asyncio.Future[HttpResponse]":
    """The answer, once there is a result. It needs no task; and whoever gives it up gives up what it waits for."""
    source = asyncio.ensure_future(found.found if isinstance(found, Pending) else found)
    answer: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()

    def on_found(source: "asyncio.Future[Any]") -> None:
        if source.cancelled():
            answer.cancel()
            return
        if answer.done():
            source.exception()  # looked at: nobody else will
            return
        try:
            value = source.result()
            response = encode(found.finish(value) if isinstance(found, Pending) else value)
        except PenstockError as error:
            response = refuse(error)
        except Exception as error:
            logger.exception("sqs_failed")
            response = refuse(SqsError(INTERNAL_FAILURE, f"The request processing has failed: {error!r}"))
        answer.set_result(response)

    def on_answered(answer: "asyncio.Future[HttpResponse]") -> None:
        if answer.cancelled():
            source.cancel()

    source.add_done_callback(on_found)
    answer.add_done_callback(on_answered)
    return answer


def _check_permission(caller: AccessKey, action: Action) -> None:
    if not caller.may(action.permission):
        name = f"sqs:{action.name.lower()}"
        raise AccessDenied(
            f"User: {caller.access_key} is not authorized to perform: {name} because no identity-based policy allows "
            f"the {name} action"
        )
