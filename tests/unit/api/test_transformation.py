import pytest

from penstock.api.core.message import Message, Outgoing
from penstock.api.core.transformation import Route, Transformation
from penstock.api.errors import InvalidArgument

READ = Message(topic="in", partition=0, offset=7, timestamp_ms=1, key=b"42", value=b"read", headers=())


def made(given: object, to: Route = "out") -> list[tuple[str, bytes | None, bytes | None]]:
    work = Transformation(lambda message: given, to)
    return [(each.topic, each.key, each.value) for each in work.results(work.transform(READ), READ)]


def test_nothing_comes_of_none() -> None:
    assert made(None) == []
    assert made([None, None]) == []


def test_a_value_keeps_the_key_it_was_made_from() -> None:
    assert made({"a": 1}) == [("out", b"42", b'{"a":1}')]
    assert made(b"raw") == [("out", b"42", b"raw")]


def test_a_list_is_several_messages_and_each_may_say_more() -> None:
    assert made([1, Outgoing(2, key="other"), None, Outgoing(3, topic="elsewhere")]) == [
        ("out", b"42", b"1"),
        ("out", b"other", b"2"),
        ("elsewhere", b"42", b"3"),
    ]


def test_a_list_can_be_wrapped_as_one_message() -> None:
    assert made(Outgoing([1, 2])) == [("out", b"42", b"[1,2]")]


def test_a_tombstone_can_be_returned_explicitly() -> None:
    assert made(Outgoing(None)) == [("out", b"42", None)]


def test_a_route_looks_at_the_message() -> None:
    assert made(1, lambda message: f"out-{message.partition}") == [("out-0", b"42", b"1")]


@pytest.mark.parametrize("topic", ["", None, 7])
def test_a_route_must_lead_to_a_topic(topic: object) -> None:
    with pytest.raises(InvalidArgument, match="the name of a topic"):
        made(1, lambda message: topic)  # type: ignore[arg-type, return-value]
