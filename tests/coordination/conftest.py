"""The stores under test, which a test may open several times."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .servers import KINDS, Ensemble
from .stores import Stores

_numbers = itertools.count()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests may be coroutines: each has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**wanted))
    return True


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ensemble]]:
    """One server of each kind for all tests that do not harm it: they differ in the root of their keys."""
    started: dict[str, Ensemble] = {}

    def ensemble(kind: str) -> Ensemble:
        skip_without(kind)
        if kind not in started:
            started[kind] = made = KINDS[kind](tmp_path_factory.mktemp(kind))
            made.start()
        return started[kind]

    yield ensemble
    for running in started.values():
        running.stop()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Callable[..., Ensemble]]:
    """Servers for one test alone, which may do to them what it likes: `own("etcd", 3)`."""
    started: list[Ensemble] = []

    def ensemble(kind: str, count: int = 1) -> Ensemble:
        skip_without(kind)
        folder = tmp_path / f"{kind}-{len(started)}"
        folder.mkdir()
        started.append(KINDS[kind](folder, count))
        return started[-1].start()

    yield ensemble
    for running in started:
        running.stop()


def skip_without(kind: str) -> None:
    reason = KINDS[kind].why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(params=["embedded", "zookeeper", "etcd"])
def stores(request: pytest.FixtureRequest, shared: Callable[[str], Ensemble], tmp_path: Path) -> Stores:
    """Each store in turn: empty, and the same one however often it is opened."""
    return stores_of(request.param, shared, tmp_path)


@pytest.fixture(params=["zookeeper", "etcd"])
def remote(request: pytest.FixtureRequest, shared: Callable[[str], Ensemble], tmp_path: Path) -> Stores:
    """Each store that several processes share."""
    return stores_of(request.param, shared, tmp_path)


def stores_of(kind: str, shared: Callable[[str], Ensemble], folder: Path) -> Stores:
    if kind == "embedded":
        return Stores(kind, "embedded", folder / "data")
    return Stores(kind, shared(kind).url(f"/tests/{next(_numbers)}"), folder)
