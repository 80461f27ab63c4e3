"""The HTTP endpoints besides queues, without a socket."""

import asyncio
import itertools
from collections.abc import Iterator

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.foundation.time_slices import TimeSlices
from penstock.network.http_endpoints import HttpEndpoints

SCRAPE = HttpRequest(b"GET", "/metrics", "", {}, b"")


class Numbers:
    """Metrics in many pieces; counts how often they are asked for."""

    def __init__(self) -> None:
        self.begun = 0

    def __call__(self) -> Iterator[bytes]:
        self.begun += 1
        yield from (b"scrape ", *[b""] * 100, b"%d" % self.begun)


def site_of(numbers: Numbers) -> HttpEndpoints:
    site = HttpEndpoints(is_ready=lambda: True, metrics=numbers)
    site.slices = TimeSlices(map(float, itertools.count()).__next__)  # every slice is over after one step
    return site


async def scrape(site: HttpEndpoints) -> HttpResponse:
    found = site.answer(SCRAPE)
    assert not isinstance(found, HttpResponse)
    return await found


async def test_metrics_are_put_together_from_their_pieces() -> None:
    found = await scrape(site_of(Numbers()))
    assert (found.status, found.body) == (200, b"scrape 1")
    assert found.content_type.startswith("text/plain; version=0.0.4")


async def test_requests_during_a_metrics_scrape_share_the_next_one() -> None:
    numbers = Numbers()
    site = site_of(numbers)
    first = asyncio.ensure_future(scrape(site))
    while not numbers.begun:  # noqa: ASYNC110
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(scrape(site)) for _ in range(50)]
    assert (await first).body == b"scrape 1"
    assert {(await other).body for other in others} == {b"scrape 2"}, "what happened before they asked is in it"
    assert numbers.begun == 2
    assert (await scrape(site)).body == b"scrape 3"


async def test_a_cancelled_scrape_does_not_affect_others() -> None:
    numbers = Numbers()
    site = site_of(numbers)
    first = asyncio.ensure_future(scrape(site))
    while not numbers.begun:  # noqa: ASYNC110
        await asyncio.sleep(0)
    second, third = (asyncio.ensure_future(scrape(site)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    while numbers.begun < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    second.cancel()
    assert (await asyncio.wait_for(third, 20)).body == b"scrape 3"
