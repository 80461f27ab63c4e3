"""Lists that are given a page at a time, however many names there are to choose from."""

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
"""Where there are more names, they are looked at in steps."""


class Page(NamedTuple):
    names: list[str]
    next_token: str | None
    """What to ask for the rest with; None: there is none."""


def page_of(names: Iterable[str], params: Params) -> Page:
    """The names that are asked for, in order. A token says after which name to go on: it outlives that queue."""
    limit, after = _read(params)
    found = sorted(names)
    first = bisect_right(found, after) if after else 0
    page = found[first : first + limit]
    has_more = first + limit < len(found)
    return Page(page, urlsafe_b64encode(page[-1].encode()).decode() if has_more else None)


def page_steps(names: Iterable[str], is_wanted: Callable[[str], bool], params: Params) -> Steps[Page]:
    """As `page_of`, of all names that are wanted. `names` must not change meanwhile."""
    limit, after = _read(params)
    left, found = iter(names), list[str]()
    while looked := list(islice(left, NAMES_PER_STEP)):
        found = sorted([*found, *(name for name in looked if name > after and is_wanted(name))])[: limit + 1]
        yield
    return page_of(found, params)


def _read(params: Params) -> tuple[int, str]:
    """How many names a page has, and after which name it begins."""
    limit = checks.maybe_whole(params, "MaxResults")
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
