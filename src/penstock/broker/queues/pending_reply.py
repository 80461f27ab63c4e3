"""A result that is available at once or awaited, so that the hot path needs no coroutine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

from penstock.foundation.errors import PenstockError

T = TypeVar("T")
_NOTHING = object()


class Outcome(Generic[T]):
    """A one-time callback that stores a value or a PenstockError for `result`."""

    __slots__ = ("_future", "_on_gone", "_value")

    def __init__(self) -> None:
        self._value: object = _NOTHING
        self._future: asyncio.Future[T] | None = None
        self._on_gone: Callable[[], None] | None = None

    def __call__(self, value: T | PenstockError) -> None:
        future = self._future
        if future is None:
            self._value = value
        elif not future.done():
            if isinstance(value, PenstockError):
                future.set_exception(value)
            else:
                future.set_result(value)

    @property
    def is_gone(self) -> bool:
        """Whether the task that waits for the result was cancelled."""
        return self._future is not None and self._future.cancelled()

    def result(self, on_gone: Callable[[], None] | None = None) -> "T | Awaitable[T]":
        """Returns the value, or a future if it is not available yet. Raises the PenstockError if that is the result.

        `on_gone`: called if the task that waits for the future is cancelled.
        """
        value = self._value
        if value is not _NOTHING:
            if isinstance(value, PenstockError):
                raise value
            return cast(T, value)
        self._future = asyncio.get_running_loop().create_future()
        if on_gone is not None:
            self._on_gone = on_gone
            self._future.add_done_callback(self._done)
        return self._future

    def _done(self, future: "asyncio.Future[T]") -> None:
        if future.cancelled() and self._on_gone is not None:
            self._on_gone()
