"""Transactional ids of Spark tasks. One coordinator has all ids of a Spark query, and commits them together."""

import re
from typing import Final

from penstock.foundation.errors import InvalidRequest

QUERY_BYTES_MAX: Final = 100
"""Maximum size of a Spark query's name, in bytes; the name is usually its id, a UUID of 36 characters."""
TASK_ID_BYTES_MAX: Final = 190
"""Maximum size, in bytes, of a Spark task's transactional id: it bounds a CommitSet request, which lists many ids."""

_SHAPE: Final = re.compile(r"spark/([^/]+)/[0-9]+/[^/]+")


def transactional_id(query: str, partition: int, attempt: str) -> str:
    """Returns the transactional id of a Spark task attempt; in the next batch, the same attempt has the same id."""
    check_query(query)
    name = f"{coordinator_key_of(query)}/{partition}/{attempt}"
    if query_of(name) != query or len(name.encode()) > TASK_ID_BYTES_MAX:
        raise InvalidRequest(
            f"{name!r} is not the transactional id of a task; expected spark/<query>/<partition>/<attempt>"
            f" of at most {TASK_ID_BYTES_MAX} bytes"
        )
    return name


def check_query(query: str) -> None:
    """Raises InvalidRequest for an invalid name of a Spark query."""
    if not query or "/" in query or len(query.encode()) > QUERY_BYTES_MAX:
        raise InvalidRequest(
            f"{query!r} is not a query name; expected 1 to {QUERY_BYTES_MAX} bytes without '/': Spark's query id"
        )


def query_of(transactional_id: str) -> str | None:
    """Returns the Spark query of a task's transactional id; None if the id is not that of a Spark task.

    >>> query_of("spark/6f1c/3/0.1")
    '6f1c'
    """
    if not transactional_id.startswith("spark/"):
        return None
    found = _SHAPE.fullmatch(transactional_id)
    return found[1] if found else None


def coordinator_key_of(query: str) -> str:
    """Returns the key with which FindCoordinator finds the transaction coordinator of a Spark query."""
    return f"spark/{query}"


def coordinator_key(transactional_id: str) -> str:
    """Returns the key that determines the coordinator of a transactional id: the query of a Spark task, else the id.

    >>> coordinator_key("spark/6f1c/3/0.1"), coordinator_key("orders-7")
    ('spark/6f1c', 'orders-7')
    """
    query = query_of(transactional_id)
    return transactional_id if query is None else coordinator_key_of(query)
