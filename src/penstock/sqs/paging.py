"""Lists that are given a page at a time."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.limits import RESULTS_MAX, Span


class Page(NamedTuple):
    names: list[str]
    next_token: str | None
    """What to ask for the rest with; None: there is none."""


def page_of(names: Iterable[str], params: Params) -> Page:
    """The names that are asked for, in order. A token says after which name to go on: it outlives that queue."""
    limit = checks.maybe_whole(params, "MaxResults")
    if limit is None:
        limit = RESULTS_MAX
    checks.within("MaxResults", limit, Span(1, RESULTS_MAX), f"Must be between 1 and {RESULTS_MAX}.")
    found = sorted(names)
    token = checks.maybe_text(params, "NextToken")
    first = bisect_right(found, _read_token(token)) if token else 0
    page = found[first : first + limit]
    has_more = first + limit < len(found)
    return Page(page, urlsafe_b64encode(page[-1].encode()).decode() if has_more else None)


def _read_token(token: str) -> str:
    try:
        return urlsafe_b64decode(token).decode()
    except ValueError:
        raise errors.invalid_parameter("NextToken", token[:256], "It was not given by this API.") from None
