"""Messages: a send becomes a record, and the record becomes what is received, digests included."""

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.queues.messages import Delivered, Sent
from penstock.cluster.queues import Queue, QueueSettings
from penstock.queues.messages import OWN_PREFIX, Receipt
from penstock.sqs import errors
from penstock.sqs.digests import Attribute, md5_of_attributes, md5_of_body
from penstock.sqs.errors import SqsError
from penstock.sqs.message_attributes import Filter, from_headers, read_attributes, shown, to_headers
from penstock.sqs.received_message import AttributeSelection, shown_message
from penstock.sqs.sent_message import read_message, send_result, sequence_number, too_long

ALL = Filter.of(["All"])
STANDARD = Queue(name="jobs", topic_id=bytes(16))
FIFO = Queue(name="jobs.fifo", topic_id=bytes(16), settings=QueueSettings(is_fifo=True))
BY_CONTENT = Queue(
    name="c.fifo", topic_id=bytes(16), settings=QueueSettings(is_fifo=True, content_based_deduplication=True)
)


def delivered(value: bytes, headers: Any = (), **more: Any) -> Delivered:
    made = Delivered(2, 41, "h.1", "an-id", 3, 1000, 500, None, value, tuple(headers))
    return made._replace(**more)


def send(queue: Queue, **params: Any) -> Any:
    return read_message(queue, {"QueueUrl": "u", **params}, "")


# -- digests


def test_digests_of_attributes_are_those_that_aws_gives() -> None:
    """Taken from answers of AWS itself."""
    assert md5_of_attributes([Attribute("Foo", "String", b"Bar")]) == "ae7155c6026991b6d54b11589678bf9c"
    assert (
        md5_of_attributes([Attribute("timestamp", "Number", b"1493147359900")]) == "235c5c510d26fb653d073faed50ae77c"
    )


def test_digests_do_not_depend_on_the_order_of_attributes() -> None:
    attributes = [Attribute(name, "Binary", b"\x00") for name in ("b", "a", "ab", "é")]
    assert md5_of_attributes(attributes) == md5_of_attributes(attributes[::-1])
    assert md5_of_attributes(attributes[:1]) != md5_of_attributes([Attribute("b", "String", b"\x00")])


# -- attributes of messages

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("aws.", "amazon.")) and not name.startswith(OWN_PREFIX)
)
LEGAL = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1, max_size=30
)
VALUES = st.one_of(
    LEGAL.map(lambda text: {"DataType": "String", "StringValue": text}),
    LEGAL.map(lambda text: {"DataType": "String.label", "StringValue": text}),
    st.integers(-(10**37), 10**37).map(lambda number: {"DataType": "Number", "StringValue": str(number)}),
    st.binary(min_size=1, max_size=30).map(
        lambda data: {"DataType": "Binary.x", "BinaryValue": base64.b64encode(data).decode()}
    ),
)


@given(st.dictionaries(NAMES, VALUES, max_size=10))
def test_attributes_come_back_as_they_were_sent(given_attributes: dict[str, Any]) -> None:
    read = read_attributes({"MessageAttributes": given_attributes})
    headers = tuple(to_headers(read))
    found = from_headers(headers, ALL)
    assert shown(found) == given_attributes
    assert md5_of_attributes(found) == md5_of_attributes(read)


def test_a_header_of_a_kafka_client_is_an_attribute_as_well() -> None:
    headers = (
        ("text", "é".encode()),
        ("bytes", b"\xff\x00"),
        ("control", b"\x01"),
        ("nothing", None),
        ("empty", b""),
        ("penstock-delay-ms", b"5"),
    )
    assert shown(from_headers(headers, ALL)) == {
        "text": {"DataType": "String", "StringValue": "é"},
        "bytes": {"DataType": "Binary", "BinaryValue": "/wA="},
        "control": {"DataType": "Binary", "BinaryValue": "AQ=="},
    }


@pytest.mark.parametrize("types", [b"", b"{", b"[]", b'{"a": 5}', b'{"a": "Nonsense"}', b"[" * 100_000])
def test_types_that_make_no_sense_are_passed_over(types: bytes) -> None:
    found = from_headers((("a", b"x"), ("penstock-attribute-types", types)), ALL)
    assert found == [Attribute("a", "String", b"x")]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["All"], ["bar", "foo", "foo.a", "fool"]),
        ([".*"], ["bar", "foo", "foo.a", "fool"]),
        (["*"], ["bar", "foo", "foo.a", "fool"]),
        (["none", "*"], ["bar", "foo", "foo.a", "fool"]),
        (["f*"], []),
        (["foo"], ["foo"]),
        (["foo.*"], ["foo", "foo.a", "fool"]),
        (["bar", "foo.a", "none"], ["bar", "foo.a"]),
        (["none"], []),
    ],
)
def test_only_the_attributes_that_are_asked_for_are_shown(names: list[str], found: list[str]) -> None:
    headers = tuple((name, b"x") for name in ("bar", "foo", "foo.a", "fool"))
    assert [each.name for each in from_headers(headers, Filter.of(names))] == found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("a", {"DataType": "String", "StringValue": ""}, "must contain a non-empty value of type 'String'"),
        ("a", {"DataType": "String"}, "must contain a non-empty value of type 'String'"),
        ("a", {"DataType": "Binary"}, "must contain a non-empty value of type 'Binary'"),
        ("a", {"DataType": "Binary", "BinaryValue": "?"}, "is not base64"),
        ("a", {"StringValue": "x"}, "must contain non-empty message attribute type"),
        ("a", {"DataType": "Float", "StringValue": "x"}, "supported type prefixes is Binary, Number, and String"),
        ("a", {"DataType": "String." + "x" * 250, "StringValue": "x"}, "types must be shorter than 256"),
        ("a", {"DataType": "Number", "StringValue": "x"}, "Can't cast the value"),
        ("a", {"DataType": "Number", "StringValue": "NaN"}, "Can't cast the value"),
        ("a", {"DataType": "Number", "StringValue": "1e127"}, "Can't cast the value"),
        ("a", {"DataType": "Number", "StringValue": "9" * 39}, "Can't cast the value"),
        ("a", {"DataType": "Number", "StringValue": "9" * 100_000}, "Can't cast the value"),
        ("", {"DataType": "String", "StringValue": "x"}, "names must be shorter than 256"),
        ("a" * 257, {"DataType": "String", "StringValue": "x"}, "names must be shorter than 256"),
        ("a b", {"DataType": "String", "StringValue": "x"}, "can only contain"),
        ("AWS.x", {"DataType": "String", "StringValue": "x"}, "reserved for internal use"),
        ("amazon.x", {"DataType": "String", "StringValue": "x"}, "reserved for internal use"),
        ("penstock-x", {"DataType": "String", "StringValue": "x"}, "reserved for internal use"),
        ("a.", {"DataType": "String", "StringValue": "x"}, "cannot start or end with '.'"),
        (".a", {"DataType": "String", "StringValue": "x"}, "cannot start or end with '.'"),
        ("a..b", {"DataType": "String", "StringValue": "x"}, "'..'"),
    ],
)
def test_an_attribute_that_aws_would_not_take_is_refused(name: str, value: dict[str, str], said: str) -> None:
    with pytest.raises(SqsError) as raised:
        send(STANDARD, MessageBody="x", MessageAttributes={name: value})
    assert raised.value.fault is errors.INVALID_PARAMETER_VALUE
    assert said in raised.value.message


def test_a_message_has_ten_attributes_at_most() -> None:
    attributes = {f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(11)}
    with pytest.raises(SqsError, match=r"Number of message attributes \[11\] exceeds the allowed maximum \[10\]"):
        send(STANDARD, MessageBody="x", MessageAttributes=attributes)


# -- sending


def test_a_plain_message_has_no_headers_and_no_key() -> None:
    draft = send(STANDARD, MessageBody="hé")
    assert draft.message == ("hé".encode(), None, (), "")
    assert (draft.size, draft.result) == (3, {"MD5OfMessageBody": md5_of_body("hé".encode())})


def test_all_that_a_message_can_have_is_kept_in_its_record() -> None:
    draft = read_message(
        STANDARD,
        {
            "Id": "1",
            "MessageBody": "x",
            "DelaySeconds": 0,
            "MessageGroupId": "tenant",
            "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "5"}},
            "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
        },
        "sender",
    )
    assert draft.message.key == b"tenant"
    assert dict(draft.message.headers) == {
        "penstock-sender": b"sender",
        "n": b"5",
        "penstock-attribute-types": b'{"n":"Number"}',
        "penstock-trace": b"Root=1",
        "penstock-delay-ms": b"0",
    }
    assert draft.size == len("x" + "n" + "Number" + "5"), "system attributes do not count"
    result = send_result(STANDARD, draft, Sent(0, 7, "an-id"))
    assert sorted(result) == [
        "MD5OfMessageAttributes",
        "MD5OfMessageBody",
        "MD5OfMessageSystemAttributes",
        "MessageId",
    ]


@pytest.mark.parametrize("body", ["\x00", "a\x0bb", "\x1f", "\ufffe", "a\uffff", "\x08é"])
def test_a_body_with_characters_that_xml_cannot_carry_is_refused(body: str) -> None:
    with pytest.raises(SqsError) as raised:
        send(STANDARD, MessageBody=body)
    assert raised.value.fault is errors.INVALID_MESSAGE_CONTENTS


@pytest.mark.parametrize("body", ["\t\n\r ", "\x7f", "\ufffd", "𝄞", "\ud7ff", "\ue000"])
def test_every_other_character_is_taken(body: str) -> None:
    assert send(STANDARD, MessageBody=body).message.value == body.encode()


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({}, errors.MISSING_PARAMETER),
        ({"MessageBody": ""}, errors.MISSING_PARAMETER),
        ({"MessageBody": 5}, errors.SERIALIZATION),
        ({"MessageBody": ["x"]}, errors.SERIALIZATION),
        ({"MessageBody": "x", "DelaySeconds": "5"}, errors.SERIALIZATION),
        ({"MessageBody": "x", "DelaySeconds": True}, errors.SERIALIZATION),
        ({"MessageBody": "x", "DelaySeconds": 1.0}, errors.SERIALIZATION),
        ({"MessageBody": "x", "DelaySeconds": 901}, errors.INVALID_PARAMETER_VALUE),
        ({"MessageBody": "x", "DelaySeconds": -1}, errors.INVALID_PARAMETER_VALUE),
        ({"MessageBody": "x", "MessageAttributes": []}, None),
        ({"MessageBody": "x", "MessageAttributes": [1]}, errors.SERIALIZATION),
        ({"MessageBody": "x", "MessageAttributes": {"a": 1}}, errors.SERIALIZATION),
        ({"MessageBody": "x", "MessageAttributes": {"a": {"DataType": 1}}}, errors.SERIALIZATION),
        ({"MessageBody": "x", "MessageSystemAttributes": "x"}, errors.SERIALIZATION),
        ({"MessageBody": "x", "MessageSystemAttributes": {"Other": {}}}, errors.INVALID_PARAMETER_VALUE),
        (
            {
                "MessageBody": "x",
                "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}},
            },
            errors.INVALID_PARAMETER_VALUE,
        ),
        ({"MessageBody": "x", "MessageGroupId": "a b"}, errors.INVALID_PARAMETER_VALUE),
        ({"MessageBody": "x", "MessageGroupId": ""}, errors.INVALID_PARAMETER_VALUE),
        ({"MessageBody": "x", "MessageGroupId": "a" * 129}, errors.INVALID_PARAMETER_VALUE),
        ({"MessageBody": "x", "MessageDeduplicationId": "d"}, errors.INVALID_PARAMETER_VALUE),
    ],
)
def test_an_invalid_message_gets_the_error_code_of_aws(params: dict[str, Any], fault: errors.Fault | None) -> None:
    if fault is None:
        assert send(STANDARD, **params).message.headers == ()
        return
    with pytest.raises(SqsError) as raised:
        send(STANDARD, **params)
    assert raised.value.fault is fault


def test_the_largest_message_is_one_that_the_queue_takes() -> None:
    small = Queue(name="s", topic_id=bytes(16), settings=QueueSettings(message_bytes_max=1024))
    assert too_long(small, send(small, MessageBody="x" * 1024)) is None
    error = too_long(small, send(small, MessageBody="é" * 512 + "x"))
    assert error is not None
    assert error.message == "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    attributes = {"aa": {"DataType": "String", "StringValue": "x" * 10}}
    assert too_long(small, send(small, MessageBody="x" * 1006, MessageAttributes=attributes)) is None
    assert too_long(small, send(small, MessageBody="x" * 1007, MessageAttributes=attributes)) is not None


def test_a_message_of_a_fifo_queue_has_a_group_and_an_id() -> None:
    draft = send(FIFO, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=0)
    assert draft.message == (b"x", b"g", (), "d")
    assert send_result(FIFO, draft, Sent(3, 41, "i"))["SequenceNumber"] == sequence_number(3, 41)
    with pytest.raises(SqsError, match="must contain the parameter MessageGroupId"):
        send(FIFO, MessageBody="x", MessageDeduplicationId="d")
    with pytest.raises(SqsError, match="should either have ContentBasedDeduplication enabled"):
        send(FIFO, MessageBody="x", MessageGroupId="g")
    with pytest.raises(SqsError, match="Value 2 for parameter DelaySeconds is invalid"):
        send(FIFO, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=2)


def test_content_based_deduplication_derives_the_id() -> None:
    draft = send(BY_CONTENT, MessageBody="x", MessageGroupId="g")
    assert draft.message.deduplication_id == hashlib.sha256(b"x").hexdigest()
    assert (
        send(BY_CONTENT, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d").message.deduplication_id
        == "d"
    )


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 10**15 - 1)), min_size=2, max_size=2))
def test_sequence_numbers_have_twenty_digits_and_grow_with_the_offset(places: list[tuple[int, int]]) -> None:
    (_, first), (_, second) = places
    numbers = [sequence_number(*place) for place in places]
    assert [len(number) for number in numbers] == [20, 20]
    assert (first < second) <= (numbers[0] < numbers[1])


# -- receiving


def test_a_message_shows_its_body_its_receipt_and_nothing_else_unless_asked() -> None:
    found = shown_message(STANDARD, delivered("é".encode(), [("a", b"b")]), AttributeSelection())
    assert found == {
        "MessageId": "an-id",
        "ReceiptHandle": Receipt(bytes(16), 2, 41, "h.1").to_handle(),
        "MD5OfBody": md5_of_body("é".encode()),
        "Body": "é",
    }


def test_all_system_attributes_are_returned_on_request() -> None:
    headers = [
        ("penstock-sender", b"me"),
        ("penstock-sent-at", b"77"),
        ("penstock-receive-count", b"4"),
        ("penstock-deduplication-id", b"d"),
        ("penstock-trace", b"Root=1"),
        ("penstock-source-arn", b"arn:aws:sqs:us-east-1:000000000000:jobs.fifo"),
    ]
    selection = AttributeSelection(system=ALL, region="eu-west-1")
    found = shown_message(FIFO, delivered(b"x", headers, key=b"g"), selection)
    assert found["Attributes"] == {
        "SenderId": "me",
        "SentTimestamp": "77",
        "ApproximateReceiveCount": "7",
        "ApproximateFirstReceiveTimestamp": "1000",
        "MessageGroupId": "g",
        "SequenceNumber": sequence_number(2, 41),
        "MessageDeduplicationId": "d",
        "AWSTraceHeader": "Root=1",
        "DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:000000000000:jobs.fifo",
    }
    plain = shown_message(STANDARD, delivered(b"x"), selection)["Attributes"]
    assert plain == {
        "SenderId": "000000000000",
        "SentTimestamp": "500",
        "ApproximateReceiveCount": "3",
        "ApproximateFirstReceiveTimestamp": "1000",
    }
    some = AttributeSelection(system=Filter.of(["SenderId", "SentTimestamp", "AWSTraceHeader"]))
    assert sorted(shown_message(STANDARD, delivered(b"x"), some)["Attributes"]) == ["SenderId", "SentTimestamp"]
    assert "Attributes" not in shown_message(
        STANDARD, delivered(b"x"), AttributeSelection(system=Filter.of(["AWSTraceHeader"]))
    )


def test_the_digest_is_that_of_the_attributes_that_are_shown() -> None:
    found = shown_message(
        STANDARD, delivered(b"x", [("a", b"1"), ("b", b"2")]), AttributeSelection(attributes=Filter.of(["b"]))
    )
    assert found["MessageAttributes"] == {"b": {"StringValue": "2", "DataType": "String"}}
    assert found["MD5OfMessageAttributes"] == md5_of_attributes([Attribute("b", "String", b"2")])


@pytest.mark.parametrize(("value", "is_xml"), [(b"\xff\xfe", False), (b"\xff\xfe", True), (b"\x00", True)])
def test_a_binary_body_is_returned_in_base64_with_an_attribute(value: bytes, is_xml: bool) -> None:
    found = shown_message(STANDARD, delivered(value), AttributeSelection(is_xml=is_xml))
    assert base64.b64decode(found["Body"]) == value
    assert found["MD5OfBody"] == md5_of_body(found["Body"].encode()), "SDKs check what they see"
    assert found["Attributes"] == {"PenstockBodyEncoding": "base64"}


def test_json_can_carry_what_xml_cannot() -> None:
    assert shown_message(STANDARD, delivered(b"\x00"), AttributeSelection())["Body"] == "\x00"
