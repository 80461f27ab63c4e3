"""An awaitable callback, with which coroutines wait for replies of partitions and peer brokers."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from penstock.foundation.errors import PenstockError

T = TypeVar("T")
_NOTHING = object()


class PendingReply(Generic[T]):
    """A callback for one reply. `await` waits for the reply and returns it, or raises it if it is a PenstockError."""

    __slots__ = ("_future", "_reply", "_undo")

    def __init__(self, undo: Callable[[T], None] | None = None) -> None:
        """`undo`: called with a reply that no task awaits: a second reply, or a reply after cancellation."""
        self._reply: object = _NOTHING
        self._future: asyncio.Future[object] | None = None
        self._undo = undo

    @property
    def is_awaited(self) -> bool:
        """Whether a reply is still expected: none has arrived, and the waiting task was not cancelled."""
        return self._reply is _NOTHING and not (self._future is not None and self._future.done())

    def __call__(self, reply: T | PenstockError) -> None:
        future = self._future
        if future is None and self._reply is _NOTHING:
            self._reply = reply
        elif future is not None and not future.done():
            future.set_result(reply)
        else:
            self._drop(reply)

    def __await__(self) -> Generator[Any, None, T]:
        if self._reply is _NOTHING:
            self._future = future = asyncio.get_running_loop().create_future()
            try:
                self._reply = yield from future
            except asyncio.CancelledError:
                if not future.cancelled():
                    self._drop(future.result())
                raise
        if isinstance(self._reply, PenstockError):
            raise self._reply
        return cast(T, self._reply)

    def _drop(self, reply: object) -> None:
        if self._undo is not None and not isinstance(reply, PenstockError):
            self._undo(cast(T, reply))
