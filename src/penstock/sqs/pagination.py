"""Pagination of ListQueues and similar actions (MaxResults, NextToken), in time slices if there are many names."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.steps import Steps
from penstock.sqs import checks, errors
from penstock.sqs.checks import Params
from penstock.sqs.limits import HANDLE_CHARS_MAX, RESULTS_MAX, Span

NAMES_PER_STEP: Final = 2000
"""Maximum number of names scanned in one time slice."""


class Page(NamedTuple):
    names: list[str]
    next_token: str | None
    """The token for the next page; None on the last page."""


def page_of(names: Iterable[str], params: Params) -> Page:
    """Returns one page of the sorted names. The next token encodes the last name of the page; it stays valid if
    that queue is deleted."""
    limit, after = _read(params)
    found = sorted(names)
    first = bisect_right(found, after) if after else 0
    page = found[first : first + limit]
    has_more = first + limit < len(found)
    return Page(page, urlsafe_b64encode(page[-1].encode()).decode() if has_more else None)


def page_steps(names: Iterable[str], is_wanted: Callable[[str], bool], params: Params) -> Steps[Page]:
    """Like `page_of`, in time slices, for the names that `is_wanted` accepts. `names` must not change meanwhile."""
    limit, after = _read(params)
    left, found = iter(names), list[str]()
    while chunk := list(islice(left, NAMES_PER_STEP)):
        found = sorted([*found, *(name for name in chunk if name > after and is_wanted(name))])[: limit + 1]
        yield
    return page_of(found, params)


def _read(params: Params) -> tuple[int, str]:
    """Returns the page size (MaxResults), and the name after which the page starts (NextToken; empty: first page)."""
    limit = checks.maybe_int(params, "MaxResults")
    if limit is None:
        limit = RESULTS_MAX
    checks.within("MaxResults", limit, Span(1, RESULTS_MAX), f"Must be between 1 and {RESULTS_MAX}.")
    token = checks.maybe_text(params, "NextToken")
    return limit, _read_token(token) if token else ""


def _read_token(token: str) -> str:
    try:
        if len(token) > HANDLE_CHARS_MAX:
            raise ValueError
        return urlsafe_b64decode(token).decode()
    except ValueError:
        raise errors.invalid_parameter("NextToken", token[:256], "It was not given by this API.") from None
