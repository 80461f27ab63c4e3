"""A test that times out does not fail the tests after it."""

import pytest

from .conftest import SparkSessions


@pytest.mark.slow
def test_a_discarded_session_is_replaced_by_another_one(spark_sessions: SparkSessions) -> None:
    before = spark_sessions.current()
    assert before.range(3).count() == 3
    spark_sessions.discard()
    after = spark_sessions.current()
    assert after is not before
    assert after.range(4).count() == 4
