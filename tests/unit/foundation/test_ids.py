"""Names and ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTopic
from penstock.foundation.ids import TOPIC_NAME_CHARS_MAX, TopicPartition, check_topic_name, uuid_bytes, uuid_text


@given(value=st.binary(min_size=16, max_size=16))
def test_an_id_is_written_as_kafka_does_and_read_back(value: bytes) -> None:
    text = uuid_text(value)
    assert len(text) == 22
    assert not set(text) & set("+/=")
    assert uuid_bytes(text) == value


def test_a_partition_is_shown_with_its_topic() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__consumer_offsets", "x" * TOPIC_NAME_CHARS_MAX])
def test_names_that_kafka_takes_are_taken(name: str) -> None:
    assert check_topic_name(name) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a\0", "a:b", "x" * (TOPIC_NAME_CHARS_MAX + 1)]
)
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopic) as refused:
        check_topic_name(name)
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
