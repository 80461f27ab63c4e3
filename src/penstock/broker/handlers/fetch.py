"""Fetch: returns committed record batches as stored in the log, at once or when min bytes are available."""

from collections.abc import Awaitable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.fetch.attempt import FetchAttempt
from penstock.broker.fetch.delayed_fetch import DelayedFetch, answer_large
from penstock.broker.isolation import wants_committed
from penstock.broker.registry import handles
from penstock.broker.views.view_fetch import answer_views, has_views
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

IDS_FROM: Final = 13
"""First Fetch version whose requests have topic ids rather than names."""


@handles(ApiKey.FETCH)
def fetch(request: FetchRequest, call: Call, broker: Broker) -> FetchResponse | Awaitable[FetchResponse] | None:
    try:
        is_stable = wants_committed(request.isolation_level)
        plan = broker.sessions.plan(request, call.principal, broker.clock.now_ms(), by_id=call.version >= IDS_FROM)
    except PenstockError as error:
        return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=())
    attempt = FetchAttempt(request, plan, call, broker, is_stable)
    if broker.image.views and attempt.follower is None and has_views(plan, broker):
        answer_views(attempt, call)
        return None
    if attempt.is_large:
        return answer_large(attempt, call)
    attempt.read()
    if attempt.cold:
        return _answer_cold(attempt)
    if attempt.is_enough or request.max_wait_ms <= 0:
        return attempt.response()
    DelayedFetch(attempt, call)
    return None


async def _answer_cold(attempt: FetchAttempt) -> FetchResponse:
    await attempt.read_warm()
    return attempt.response()
