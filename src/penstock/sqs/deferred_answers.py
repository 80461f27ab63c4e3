"""Builds the response to an action whose result is not available yet, without a task.

If the response is cancelled, so is the result. If the client gets no response, the action's work (such as deliveries
of messages) is undone (`Pending.undo`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpResponse
from penstock.sqs.call import Pending, Result
from penstock.sqs.errors import INTERNAL_FAILURE, SqsError

logger = logging.getLogger(__name__)

Found = Pending | Awaitable[Any]


def answer_later(
    found: Found, encode: Callable[[Result], HttpResponse], refuse: Callable[[PenstockError], HttpResponse]
) -> "HttpResponse | asyncio.Future[HttpResponse]":
    """Returns the response, or a future of it if the result is not available yet."""
    return _DeferredAnswer(encode, refuse).begin(found)


class _DeferredAnswer:
    """Builds one response, now or when the result is available."""

    def __init__(
        self, encode: Callable[[Result], HttpResponse], refuse: Callable[[PenstockError], HttpResponse]
    ) -> None:
        self._encode = encode
        self._refuse = refuse
        self._answer: asyncio.Future[HttpResponse] | None = None
        """The future of the response; None as long as the result may still be available at once."""
        self._source: asyncio.Future[Any] | None = None
        self._undo: Callable[[], None] | None = None
        """Undoes the action's work; passed on to the response once there is one."""

    def begin(self, found: Found) -> "HttpResponse | asyncio.Future[HttpResponse]":
        response = self._respond(lambda: found)
        if response is not None:
            return response
        self._answer = asyncio.get_running_loop().create_future()
        self._answer.add_done_callback(self._on_answered)
        return self._answer

    def _respond(self, find: Callable[[], Any]) -> HttpResponse | None:
        """Returns the response; None if it has to wait for the result."""
        try:
            found = find()
            while found is not None and not isinstance(found, dict):
                pending = found if isinstance(found, Pending) else None
                if pending is None or not isinstance(pending.found, list):
                    self._wait(found if pending is None else pending.found, pending)
                    return None
                found = self._finish(pending, pending.found)
            response = self._encode(found)
        except PenstockError as error:
            self._undo_now()
            response = self._refuse(error)
        except Exception as error:
            logger.exception("sqs_failed")
            self._undo_now()
            response = self._refuse(SqsError(INTERNAL_FAILURE, f"The request processing has failed: {error!r}"))
        undo, self._undo = self._undo, None
        return response if undo is None else response._replace(on_lost=undo)

    def _finish(self, pending: Pending | None, found: Any) -> Any:
        if pending is None:
            return found
        if pending.undo is not None:
            self._undo = pending.undo(found)
        return pending.finish(found)

    def _wait(self, found: Awaitable[Any], pending: Pending | None) -> None:
        self._source = source = asyncio.ensure_future(found)
        source.add_done_callback(lambda source: self._on_found(source, pending))

    def _on_found(self, source: "asyncio.Future[Any]", pending: Pending | None) -> None:
        answer = self._answer
        assert answer is not None
        if source.cancelled():
            answer.cancel()
        elif not answer.done():
            response = self._respond(lambda: self._finish(pending, source.result()))
            if response is not None:
                answer.set_result(response)
        elif source.exception() is None and pending is not None and pending.undo is not None:  # it was cancelled
            self._undo = pending.undo(source.result())
            self._undo_now()

    def _on_answered(self, answer: "asyncio.Future[HttpResponse]") -> None:
        if answer.cancelled() and self._source is not None:
            self._source.cancel()
            self._undo_now()

    def _undo_now(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
