"""Timeouts for blocking calls of librdkafka that have none: offset commits and closing a consumer.

librdkafka retries an OffsetCommit forever if it was in flight when the coordinator went down, and does not close a
consumer before its commits have ended. So these calls run in a thread, and callers wait for it up to a timeout.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaException

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

T = TypeVar("T")


class CallTimedOut(PenstockError):
    """A blocking call did not return within its timeout. The call continues in its thread."""

    code = ErrorCode.REQUEST_TIMED_OUT


class _Call(Generic[T]):
    """One blocking call that runs in a daemon thread, which does not keep the process alive."""

    def __init__(self, work: Callable[[], T], after: "_Call[Any] | None") -> None:
        self._work = work
        self._after = after
        self._result: list[T] = []
        self._error: KafkaException | RuntimeError | None = None
        self._done = threading.Event()
        try:
            threading.Thread(target=self._run, name="penstock-blocking", daemon=True).start()
        except RuntimeError:  # from Python 3.12 on, no thread is started while the interpreter shuts down
            self._run()

    def _run(self) -> None:
        try:
            if self._after is not None:
                self._after.wait(None)
                self._after = None
            self._result.append(self._work())
        except (KafkaException, RuntimeError) as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, timeout_s: float | None) -> bool:
        return self._done.wait(timeout_s)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class BlockingCalls:
    """Runs the blocking calls of one consumer, one after the other. Not thread-safe."""

    def __init__(self) -> None:
        self._last: _Call[Any] | None = None

    def run(self, work: Callable[[], T], timeout_s: float) -> T:
        """Runs `work` in a thread; returns its result or raises its error. Raises CallTimedOut after `timeout_s`.

        Only one call runs at a time: if an earlier call does not end within `timeout_s`, `work` is not started.
        """
        if self._last is not None and not self._last.wait(timeout_s):
            raise CallTimedOut
        return self._begin(work, None, timeout_s)

    def run_last(self, work: Callable[[], T], timeout_s: float) -> T:
        """Runs `work`, the consumer's last call, after the previous call. Raises CallTimedOut after `timeout_s`."""
        return self._begin(work, self._last, timeout_s)

    def _begin(self, work: Callable[[], T], after: _Call[Any] | None, timeout_s: float) -> T:
        call = _Call(work, after)
        self._last = call
        if not call.wait(timeout_s):
            raise CallTimedOut
        return call.result()
