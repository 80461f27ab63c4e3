"""Starts a coroutine at once, not in the event loop's next iteration: what `eager_start` does from Python 3.12 on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start(work: Coroutine[Any, Any, T]) -> "T | asyncio.Task[T]":
    """Runs a coroutine until it first waits. Returns its result if it has ended, else a task that runs the rest.

    Before it waits for the first time, the coroutine must not use `asyncio.timeout`, which needs the task.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return asyncio.get_running_loop().create_task(_StartedCoroutine(work, awaited))


class _StartedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine that was run up to its first wait; its task begins by waiting for the future awaited there."""

    __slots__ = ("_awaited", "_is_resumed", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work = work
        self._awaited = awaited
        self._is_resumed = False

    def send(self, value: Any) -> Any:
        if self._is_resumed:
            return self._work.send(value)
        self._is_resumed = True
        return self._awaited

    def throw(self, *error: Any) -> Any:
        if not self._is_resumed:  # cancelled before its task has run
            self._is_resumed = True
            if self._awaited is not None and self._awaited.cancel():
                return self._awaited
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        raise NotImplementedError  # only its task runs it
