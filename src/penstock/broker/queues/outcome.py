"""What somebody asked for: there at once, or awaited. The hot path needs no coroutine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

from penstock.foundation.errors import PenstockError

T = TypeVar("T")
_NOTHING = object()


class Outcome(Generic[T]):
    """Call it once with the value, or with the PenstockError that stands in its place."""

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
        """Whether nobody waits for it any more."""
        return self._future is not None and self._future.cancelled()

    def result(self, on_gone: Callable[[], None] | None = None) -> "T | Awaitable[T]":
        """The value if it is there, else something to wait for. Raises the error that stands in its place.

        `on_gone`: called if whoever waits is cancelled.
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
