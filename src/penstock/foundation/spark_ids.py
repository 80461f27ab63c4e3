"""Transactional ids of Spark's tasks: all of one query have one coordinator, which decides about them at once."""

import re
from typing import Final

from penstock.foundation.errors import InvalidRequest

QUERY_BYTES_MAX: Final = 100
"""Spark names its queries by UUIDs, of 36."""
TASK_ID_BYTES_MAX: Final = 190
"""As many as CommitSet may name at a time fit into one request."""

_SHAPE: Final = re.compile(r"spark/([^/]+)/[0-9]+/[^/]+")


def transactional_id(query: str, partition: int, attempt: str) -> str:
    """The id under which one attempt of a task writes; the next batch's attempt of that number has the same.

    >>> transactional_id("6f1c", 3, "0.1")
    'spark/6f1c/3/0.1'
    """
    check_query(query)
    name = f"{coordinator_key_of(query)}/{partition}/{attempt}"
    if query_of(name) != query or len(name.encode()) > TASK_ID_BYTES_MAX:
        raise InvalidRequest(
            f"{name!r} is no transactional id of a task; expected spark/<query>/<partition>/<attempt>"
            f" of at most {TASK_ID_BYTES_MAX} bytes"
        )
    return name


def check_query(query: str) -> None:
    """What a query may be called."""
    if not query or "/" in query or len(query.encode()) > QUERY_BYTES_MAX:
        raise InvalidRequest(
            f"{query!r} is no name of a query; expected 1 to {QUERY_BYTES_MAX} bytes without '/': Spark's query id"
        )


def query_of(transactional_id: str) -> str | None:
    """The query that a task writes for; None if the id is not a task's.

    >>> query_of("spark/6f1c/3/0.1")
    '6f1c'
    """
    if not transactional_id.startswith("spark/"):
        return None
    found = _SHAPE.fullmatch(transactional_id)
    return found[1] if found else None


def coordinator_key_of(query: str) -> str:
    """What the coordinator of a query is found by."""
    return f"spark/{query}"


def coordinator_key(transactional_id: str) -> str:
    """What the coordinator of a transactional id is found by: a task's by its query, any other by itself.

    >>> coordinator_key("spark/6f1c/3/0.1"), coordinator_key("orders-7")
    ('spark/6f1c', 'orders-7')
    """
    query = query_of(transactional_id)
    return transactional_id if query is None else coordinator_key_of(query)
