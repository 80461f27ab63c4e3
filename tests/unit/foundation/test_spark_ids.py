"""Transactional ids of Spark's tasks, and the key of their coordinator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import InvalidRequest
from penstock.foundation.spark_ids import (
    QUERY_BYTES_MAX,
    TASK_ID_BYTES_MAX,
    coordinator_key,
    coordinator_key_of,
    query_of,
    transactional_id,
)

QUERIES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=25)


@given(QUERIES, st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_all_attempts_of_a_query_have_one_coordinator(query: str, partition: int, stage: int, attempt: int) -> None:
    name = transactional_id(query, partition, f"{stage}.{attempt}")
    assert query_of(name) == query
    assert coordinator_key(name) == coordinator_key_of(query)
    assert coordinator_key(coordinator_key_of(query)) == coordinator_key_of(query)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders-7",
        "spark",
        "spark/",
        "spark/q",
        "spark/q/0",
        "spark/q/0/",
        "spark//0/0.0",
        "spark/q/x/0.0",
        "spark/q/0/0.0/more",
        "sparkle/q/0/0.0",
        " spark/q/0/0.0",
        "spark/q/\u0660/0.0",
    ],
)
def test_an_id_of_another_shape_is_found_by_itself(name: str) -> None:
    assert query_of(name) is None
    assert coordinator_key(name) == name


@pytest.mark.parametrize(
    ("query", "partition", "attempt"),
    [
        ("", 0, "0.0"),
        ("a/b", 0, "0.0"),
        ("ü" * (QUERY_BYTES_MAX // 2 + 1), 0, "0.0"),
        ("q", -1, "0.0"),
        ("q", 0, ""),
        ("q", 0, "0/0"),
        ("q", 0, "0" * TASK_ID_BYTES_MAX),
    ],
)
def test_an_invalid_task_id_is_refused(query: str, partition: int, attempt: str) -> None:
    with pytest.raises(InvalidRequest):
        transactional_id(query, partition, attempt)
