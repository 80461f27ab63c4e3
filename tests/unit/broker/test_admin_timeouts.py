"""Timeouts of admin requests, and what happens to the work afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.broker.partition_lookup import RequestTimedOut, run_with_timeout
from penstock.cluster.metadata import Metadata
from penstock.coordination.embedded import EmbeddedStore
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest


def with_metadata(folder: Path, work: Callable[[Metadata], Awaitable[None]]) -> None:
    async def run() -> None:
        store = EmbeddedStore(folder / "metadata.db")
        await store.open()
        metadata = Metadata(store)
        await metadata.start()
        try:
            await work(metadata)
        finally:
            await metadata.close()
            await store.close()

    asyncio.run(run())


def test_work_within_the_timeout_is_answered(tmp_path: Path) -> None:
    async def work(metadata: Metadata) -> None:
        assert await run_with_timeout(metadata, 60_000, metadata.reserve("numbers", 5)) == 0
        assert await run_with_timeout(metadata, 60_000, metadata.reserve("numbers", 5)) == 5

    with_metadata(tmp_path, work)


def test_errors_are_raised(tmp_path: Path) -> None:
    async def refuse() -> None:
        raise InvalidRequest("no")

    async def work(metadata: Metadata) -> None:
        with pytest.raises(InvalidRequest, match="no"):
            await run_with_timeout(metadata, 60_000, refuse())

    with_metadata(tmp_path, work)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 20])
def test_work_goes_on_after_its_request_has_timed_out(tmp_path: Path, timeout_ms: int) -> None:
    async def work(metadata: Metadata) -> None:
        may_go_on, done = asyncio.Event(), asyncio.Event()

        async def slow(fails: bool) -> None:
            await may_go_on.wait()
            done.set()
            if fails:
                raise InvalidRequest("not reported")

        for fails in (False, True):
            with pytest.raises(RequestTimedOut, match="still in progress") as caught:
                await run_with_timeout(metadata, timeout_ms, slow(fails))
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            may_go_on.set()
            await done.wait()
            may_go_on.clear()
            done.clear()

    with_metadata(tmp_path, work)
