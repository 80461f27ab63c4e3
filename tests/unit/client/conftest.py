"""A real broker in this process, on its own loop and thread; tests connect over real sockets."""

import asyncio
import inspect
import itertools
import threading
from collections.abc import Iterator

import pytest

from .nodes import running_node

_numbers = itertools.count()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests of this folder may be coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**wanted))
    return True


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker that most tests share: they differ in their topics."""
    folder = tmp_path_factory.mktemp("node")
    address: list[str] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with running_node(folder) as node:
            address.append(str(node.listen))
            is_ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, name="broker")
    thread.start()
    assert is_ready.wait(20)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    loop.close()
    assert not thread.is_alive()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"
