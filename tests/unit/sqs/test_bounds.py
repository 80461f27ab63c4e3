"""Requests that are meant to be slow: parsed in linear time, or refused early."""

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.queues import Queue
from penstock.foundation.http import HttpRequest
from penstock.foundation.steps import run_steps
from penstock.sqs import checks, errors, json_codec, limits, query_codec
from penstock.sqs.acknowledgement import read_receipt
from penstock.sqs.batches import read_entries
from penstock.sqs.errors import SqsError
from penstock.sqs.json_codec import STRINGS_MAX, STRUCTURE_BYTES_MAX
from penstock.sqs.message_attributes import Filter, from_headers
from penstock.sqs.move_tasks import read_handle
from penstock.sqs.pagination import NAMES_PER_STEP, page_of, page_steps
from penstock.sqs.queue_names import name_in_arn, name_in_url
from penstock.sqs.received_message import size_of
from tests.scaling import GROWTH_MAX, cpu_s, growth
from tests.unit.sqs.test_messages import delivered

QUEUE = Queue(name="jobs", topic_id=bytes(16))
LARGE = 400 << 10
"""Bytes of a body whose values are counted before it is parsed."""


def refusal_of(read: Callable[[], object]) -> SqsError:
    with pytest.raises(SqsError) as raised:
        read()
    return raised.value


# -- JSON


def test_names_are_compared_in_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        body = json.dumps({f"name{number}": number for number in range(count)}).encode()
        return lambda: json_codec.decode(body)

    assert growth(work, STRINGS_MAX // 8) < GROWTH_MAX


def test_names_that_are_texts_as_well_are_compared_in_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        body = json.dumps({f"name{number}": f"name{number}\n" for number in range(count)} | {"a": "a"}).encode()
        return lambda: json_codec.decode(body)

    assert growth(work, STRINGS_MAX // 20) < GROWTH_MAX


@pytest.mark.parametrize("padding", ["", "x" * 20_000, "x" * LARGE, '"\\\n' * 100, '"\\\n' * 10_000, '"\\\n' * LARGE])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_parameter_that_is_given_twice_is_refused_in_bodies_of_all_sizes(padding: str, indent: int | None) -> None:
    params = {
        "QueueUrl": "QueueUrl",
        "MessageBody": padding,
        "MessageAttributes": {"a": {"DataType": "String", "StringValue": ":"}, "b": {"QueueUrl": [1, {"c": ":"}]}},
        "DelaySeconds": 1,
    }
    body = json.dumps(params, indent=indent).encode()
    assert json_codec.decode(body) == params
    for name in params:
        twice = b'{ "%s" : 1 ,' % name.encode() + body[1:]
        assert refusal_of(lambda twice=twice: json_codec.decode(twice)).fault is errors.SERIALIZATION
        twice = body[:-1] + b', "%s":1}' % name.encode()
        assert refusal_of(lambda twice=twice: json_codec.decode(twice)).fault is errors.SERIALIZATION


@pytest.mark.parametrize("size", [1, 20_000, LARGE])
def test_a_name_with_an_escaped_letter_is_the_same_name(size: int) -> None:
    body = b'{"QueueUrl": "a", "Queue\\u0055rl": "b", "MessageBody": "%s"}' % (b"x" * size)
    assert "given twice" in refusal_of(lambda: json_codec.decode(body)).message


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab"\\:,{}[] \né', max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab":\\', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text("abcXYZ", min_size=1, max_size=3), VALUES, max_size=6),
    st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ":\t")]),
    st.booleans(),
)
def test_names_of_the_outermost_object_are_counted(
    params: dict[str, Any], separators: tuple[str, str], is_ascii: bool
) -> None:
    body = json.dumps(params, separators=separators, ensure_ascii=is_ascii).encode()
    assert json_codec._count_names(body) == len(params)
    assert json_codec.decode(body) == params
    assert json_codec._count_names(b'{"a":{"a":1},' + body[1:]) == len(params) + 1


@pytest.mark.parametrize("value", [b"[]", b"{}", b"[[]]", b'{"a":1}', b'""', b"1", b"1.5", b"null", b'"\\""'])
def test_a_large_body_has_few_values_besides_long_strings(value: bytes) -> None:
    body = b'{"a":[' + (value + b",") * (4 * LARGE // (len(value) + 1)) + b"0]}"
    assert "too many values" in refusal_of(lambda: json_codec.decode(body)).message


def test_the_largest_legal_batch_is_far_from_the_bounds() -> None:
    attribute = {"DataType": "String", "StringValue": 'x"', "StringListValues": [], "BinaryListValues": []}
    entry = {
        "MessageBody": 'body "with" quotes ' * 5000,
        "DelaySeconds": 1,
        "MessageGroupId": "g" * 128,
        "MessageDeduplicationId": "d" * 128,
        "MessageSystemAttributes": {"AWSTraceHeader": attribute},
        "MessageAttributes": {"n" * 255 + str(number): attribute for number in range(10)},
    }
    params = {"QueueUrl": "u", "Entries": [{"Id": str(number), **entry} for number in range(10)]}
    for indent in (None, 4, 8):
        body = json.dumps(params, indent=indent).encode()
        assert len(body) > LARGE
        assert json_codec.decode(body) == params
    assert body.count(b'\\"') < body.count(b'"') < 4 * STRINGS_MAX + body.count(b'\\"')
    spaces = len(json.dumps(params, indent=8)) - len(json.dumps(params))
    assert spaces < STRUCTURE_BYTES_MAX // 2


# -- the Query protocol


def query_of(form: bytes) -> dict[str, Any]:
    return query_codec.decode(HttpRequest(b"POST", "/", "", {}, form))[1]


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=5), st.text(max_size=20)), max_size=5))
def test_a_form_is_read_as_urllib_does(pairs: list[tuple[str, str]]) -> None:
    pairs = [(name, value) for name, value in pairs if not ("=" in value and "\0" in value)]
    form = urlencode(pairs)
    for text in (form, form.replace("%3D", "="), form.lower(), form.replace("+", "%20")):
        assert query_codec._pairs(text.encode()) == parse_qsl(text, keep_blank_values=True, errors="strict")


@given(st.text(st.characters(codec="utf-8", exclude_characters="&%+\0"), max_size=30))
def test_unescaped_characters_are_taken_literally(value: str) -> None:
    assert query_codec._pairs(f"a={value}".encode()) == [("a", value)]
    assert query_codec._pairs(f"a=%41{value}".encode()) == [("a", f"A{value}")]


@pytest.mark.parametrize("value", [b"%41", b"%C3%A9", b"+", b"%3D=", b"a%20"])
def test_a_form_is_decoded_in_linear_time(value: bytes) -> None:
    def work(count: int) -> Callable[[], object]:
        form = b"Action=SendMessage&MessageBody=" + value * count
        return lambda: query_of(form)

    assert growth(work, 10_000) < GROWTH_MAX


def test_a_form_is_decoded_in_a_small_part_of_the_time_that_urllib_takes() -> None:
    text = "Action=SendMessage&MessageBody=" + quote_plus("é" * 10_000)
    form = text.encode()
    assert cpu_s(lambda: query_of(form)) < cpu_s(lambda: parse_qsl(text)) / 5


@pytest.mark.parametrize("value", ["%", "100%", "%zz", "%4", "a%\n41"])
def test_a_wrong_escape_is_a_syntax_error(value: str) -> None:
    for request in (
        HttpRequest(b"POST", "/", "", {}, f"Action=A&MessageBody={value}".encode()),
        HttpRequest(b"GET", "/", f"Action=A&MessageBody={value}", {}, b""),
        HttpRequest(b"GET", "/", f"Action=A&{value}=1", {}, b""),
    ):
        assert refusal_of(lambda request=request: query_codec.decode(request)).fault is errors.MALFORMED_QUERY


def test_the_largest_legal_batch_has_fewer_parameters_than_are_allowed() -> None:
    names = ["Id", "MessageBody", "DelaySeconds", "MessageGroupId", "MessageDeduplicationId"]
    for kind, count in (("MessageSystemAttribute", 1), ("MessageAttribute", 10)):
        for number in range(1, count + 1):
            start = f"{kind}.{number}"
            names += [f"{start}.Name", f"{start}.Value.DataType", f"{start}.Value.StringValue"]
    entries = [f"SendMessageBatchRequestEntry.{number}.{name}" for number in range(1, 11) for name in names]
    pairs = [("Action", "SendMessageBatch"), ("Version", "2012-11-05"), ("QueueUrl", "u")]
    pairs += [(name, f"0{number}") for number, name in enumerate(entries)]
    assert len(pairs) < limits.PARAMETERS_MAX // 2
    found = query_of(urlencode(pairs).encode())
    assert len(found["Entries"]) == 10
    assert all(len(entry["MessageAttributes"]) == 10 for entry in found["Entries"])


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (b"&" * limits.PARAMETERS_MAX, "at most 1000 parameters"),
        (b"&".join(b"a%d=" % number for number in range(limits.PARAMETERS_MAX + 1)), "at most 1000 parameters"),
        (b"a." * 10 + b"b=1", "more than 10 parts"),
        (b"a." * 500_000 + b"b=1", "more than 10 parts"),
    ],
)
def test_parameters_are_bounded_in_number_and_in_depth(form: bytes, said: str) -> None:
    error = refusal_of(lambda: query_of(form))
    assert (error.fault, said in error.message) == (errors.MALFORMED_QUERY, True)
    assert len(error.message) < 300


def test_as_many_parameters_and_parts_as_are_allowed_are_taken() -> None:
    assert (
        len(query_of(b"&".join(b"a%d=" % number for number in range(limits.PARAMETERS_MAX)))) == limits.PARAMETERS_MAX
    )
    assert query_of(b"a." * 9 + b"b=1")["a"]["a"]["a"]


# -- what actions read


@pytest.mark.parametrize("read", [checks.texts, checks.text_map])
def test_lists_and_maps_are_bounded(read: Callable[[dict[str, Any], str], Any]) -> None:
    def given_of(count: int) -> Any:
        names = [f"n{number}" for number in range(count)]
        return names if read is checks.texts else dict.fromkeys(names, "")

    assert len(read({"Names": given_of(limits.NAMES_MAX)}, "Names")) == limits.NAMES_MAX
    error = refusal_of(lambda: read({"Names": given_of(limits.NAMES_MAX + 1)}, "Names"))
    assert error.fault is errors.INVALID_PARAMETER_VALUE
    assert error.message == "Names has 1001 entries; at most 1000 are allowed."


def test_entries_are_counted_before_they_are_looked_at() -> None:
    assert refusal_of(lambda: read_entries({"Entries": ["x"] * 11}, "A")).fault is errors.TOO_MANY_ENTRIES


def test_a_receipt_handle_has_as_many_characters_as_awss() -> None:
    for handle in ("A" * (limits.RECEIPT_CHARS_MAX + 1), "A" * 4_000_000):
        error = refusal_of(lambda handle=handle: read_receipt(QUEUE, {"ReceiptHandle": handle}))
        assert error.fault is errors.RECEIPT_HANDLE_IS_INVALID
        assert len(error.message) < 400


def test_handles_tokens_and_arns_are_not_decoded_if_they_are_too_long() -> None:
    handle = base64.urlsafe_b64encode(json.dumps({"taskId": "t", "sourceArn": "a" * 2000}).encode()).decode()
    assert refusal_of(lambda: read_handle(handle)).fault is errors.INVALID_PARAMETER_VALUE
    token = base64.urlsafe_b64encode(b"a" * 2000).decode()
    assert refusal_of(lambda: page_of(["a"], {"NextToken": token})).fault is errors.INVALID_PARAMETER_VALUE
    assert name_in_arn("arn:aws:sqs:us-east-1:000000000000:" + "a" * 80) == "a" * 80
    assert name_in_arn("arn:aws:sqs:us-east-1:000000000000:" + "a" * 500) is None


def test_the_name_in_a_url_is_looked_for_at_its_end_only() -> None:
    assert name_in_url("/" * 4_000_000) == ""
    assert name_in_url("http://x/" + "a" * 4_000_000 + "/jobs/") == "jobs"
    assert len(name_in_url("a" * 4_000_000)) == 1024


def test_prefixes_of_names_are_found_however_many_there_are() -> None:
    names = [f"{number:03d}.*" for number in range(500)] + ["250.x.*", "plain", "b.c.*", "b.*"]
    wanted = Filter.of(names)
    assert all(wanted.wants(name) for name in ("000", "499.a", "250.x", "250.y", "plain", "b", "b.c.d", "bc"))
    assert not any(wanted.wants(name) for name in ("500", "plain.x", "a", "", "c", "49"))
    assert wanted.prefixes == tuple(sorted(["b", *(f"{number:03d}" for number in range(500))]))


@given(st.lists(st.text("ab.", max_size=4), max_size=8), st.text("ab.", max_size=6))
def test_a_filter_wants_what_any_of_its_prefixes_begins(prefixes: list[str], name: str) -> None:
    wanted = Filter.of([f"{prefix}.*" for prefix in prefixes if prefix])
    assert wanted.wants(name) == (name in wanted.names or name.startswith(tuple(filter(None, prefixes))))


def test_of_a_record_with_very_many_headers_the_first_are_shown() -> None:
    headers = tuple((f"h{number}", b"v") for number in range(50_000))
    found = from_headers(headers, Filter.of(["All"]))
    assert [each.name for each in found] == [f"h{number}" for number in range(limits.ATTRIBUTES_SHOWN_MAX)]
    assert size_of(delivered(b"body", headers)) > 5_000_000, "it is shown in a time slice of its own"


def test_a_page_of_very_many_names_is_found_in_steps() -> None:
    names = [f"q{number * 7919 % 100_003:06d}" for number in range(100_003)]
    steps = page_steps(names, lambda name: name.endswith("7"), {"MaxResults": 10})
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            page = end.value
            break
        count += 1
    assert count == len(names) // NAMES_PER_STEP + 1
    wanted = sorted(name for name in names if name.endswith("7"))
    assert page.names == wanted[:10]
    following = run_steps(
        page_steps(names, lambda name: name.endswith("7"), {"MaxResults": 10, "NextToken": page.next_token})
    )
    assert following.names == wanted[10:20]
