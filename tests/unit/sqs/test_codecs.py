"""Both protocols against botocore: requests and responses."""

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.sqs import errors, json_codec, query_codec, query_json_codec
from penstock.sqs.errors import SqsError
from tests.sqs_clients import JSON, PROTOCOLS, QUERY, service_model

ID = b"00000000-0000-0000-0000-000000000001"
URL = "http://localhost:9324/000000000000/jobs"
ATTRIBUTES = {
    "kind": {"DataType": "String", "StringValue": "ünïcode & <xml> 'quotes' \"all\" + % = ;"},
    "count": {"DataType": "Number.int", "StringValue": "42"},
    "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\x01\xff"},
}
SHOWN_ATTRIBUTES = {
    **ATTRIBUTES,
    "bytes": {"DataType": "Binary.png", "BinaryValue": base64.b64encode(b"\x00\x01\xff").decode()},
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
BODY = "a body with <, &, \", ', é, 𝄞,\ttabs and\nlines"

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (
        "CreateQueue",
        {"QueueName": "jobs", "Attributes": {"DelaySeconds": "5", "Policy": '{"a": 1}'}, "tags": {"a": "b", "c": ""}},
    ),
    ("ListQueues", {}),
    ("ListQueues", {"QueueNamePrefix": "j", "MaxResults": 10, "NextToken": "dG9rZW4="}),
    ("GetQueueUrl", {"QueueName": "jobs", "QueueOwnerAWSAccountId": "111122223333"}),
    ("GetQueueAttributes", {"QueueUrl": URL, "AttributeNames": ["All"]}),
    ("GetQueueAttributes", {"QueueUrl": URL, "AttributeNames": ["DelaySeconds", "QueueArn", "Policy"]}),
    ("SetQueueAttributes", {"QueueUrl": URL, "Attributes": {"VisibilityTimeout": "10", "DelaySeconds": "1"}}),
    ("SendMessage", {"QueueUrl": URL, "MessageBody": BODY}),
    (
        "SendMessage",
        {
            "QueueUrl": URL,
            "MessageBody": BODY,
            "DelaySeconds": 7,
            "MessageAttributes": ATTRIBUTES,
            "MessageSystemAttributes": TRACE,
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        },
    ),
    (
        "SendMessageBatch",
        {
            "QueueUrl": URL,
            "Entries": [
                {"Id": f"m{n}", "MessageBody": f"{BODY} {n}", "DelaySeconds": n, "MessageAttributes": ATTRIBUTES}
                for n in range(10)
            ],
        },
    ),
    (
        "ReceiveMessage",
        {
            "QueueUrl": URL,
            "AttributeNames": ["All"],
            "MessageSystemAttributeNames": ["SenderId", "SentTimestamp"],
            "MessageAttributeNames": ["foo.*", "bar"],
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 0,
            "WaitTimeSeconds": 20,
            "ReceiveRequestAttemptId": "once",
        },
    ),
    ("DeleteMessage", {"QueueUrl": URL, "ReceiptHandle": "AQ-_=="}),
    (
        "DeleteMessageBatch",
        {"QueueUrl": URL, "Entries": [{"Id": "a", "ReceiptHandle": "x"}, {"Id": "b", "ReceiptHandle": "y"}]},
    ),
    ("ChangeMessageVisibility", {"QueueUrl": URL, "ReceiptHandle": "x", "VisibilityTimeout": 0}),
    (
        "ChangeMessageVisibilityBatch",
        {"QueueUrl": URL, "Entries": [{"Id": "a", "ReceiptHandle": "x", "VisibilityTimeout": 12}]},
    ),
    ("PurgeQueue", {"QueueUrl": URL}),
    ("DeleteQueue", {"QueueUrl": URL}),
    ("TagQueue", {"QueueUrl": URL, "Tags": {"team": "a&b", "empty": ""}}),
    ("UntagQueue", {"QueueUrl": URL, "TagKeys": ["team", "other"]}),
    ("ListQueueTags", {"QueueUrl": URL}),
    ("ListDeadLetterSourceQueues", {"QueueUrl": URL, "MaxResults": 3}),
    ("StartMessageMoveTask", {"SourceArn": "arn:a", "DestinationArn": "arn:b", "MaxNumberOfMessagesPerSecond": 5}),
    ("ListMessageMoveTasks", {"SourceArn": "arn:a", "MaxResults": 5}),
    ("CancelMessageMoveTask", {"TaskHandle": "t"}),
    ("AddPermission", {"QueueUrl": URL, "Label": "l", "AWSAccountIds": ["1", "2"], "Actions": ["SendMessage"]}),
    ("RemovePermission", {"QueueUrl": URL, "Label": "l"}),
]
RESULTS: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
    ("CreateQueue", {"QueueUrl": URL}, {"QueueUrl": URL}),
    ("ListQueues", {}, {}),
    (
        "ListQueues",
        {"QueueUrls": [URL, URL + "2"], "NextToken": "t"},
        {"QueueUrls": [URL, URL + "2"], "NextToken": "t"},
    ),
    ("GetQueueAttributes", {"Attributes": {"a": "1", "b": "<&>"}}, {"Attributes": {"a": "1", "b": "<&>"}}),
    (
        "ReceiveMessage",
        {
            "Messages": [
                {
                    "MessageId": "i",
                    "ReceiptHandle": "r",
                    "MD5OfBody": "m",
                    "Body": BODY + "\r\n",
                    "Attributes": {"SenderId": "s", "SentTimestamp": "1"},
                    "MD5OfMessageAttributes": "n",
                    "MessageAttributes": SHOWN_ATTRIBUTES,
                },
                {"MessageId": "j", "Body": " "},
            ]
        },
        {
            "Messages": [
                {
                    "MessageId": "i",
                    "ReceiptHandle": "r",
                    "MD5OfBody": "m",
                    "Body": BODY + "\r\n",
                    "Attributes": {"SenderId": "s", "SentTimestamp": "1"},
                    "MD5OfMessageAttributes": "n",
                    "MessageAttributes": ATTRIBUTES,
                },
                {"MessageId": "j", "Body": " "},
            ]
        },
    ),
    (
        "SendMessageBatch",
        {
            "Successful": [{"Id": "a", "MessageId": "i", "MD5OfMessageBody": "m"}],
            "Failed": [{"Id": "b", "SenderFault": True, "Code": "C", "Message": "<no>"}],
        },
        {
            "Successful": [{"Id": "a", "MessageId": "i", "MD5OfMessageBody": "m"}],
            "Failed": [{"Id": "b", "SenderFault": True, "Code": "C", "Message": "<no>"}],
        },
    ),
    ("DeleteMessageBatch", {"Successful": [{"Id": "a"}, {"Id": "b"}]}, {"Successful": [{"Id": "a"}, {"Id": "b"}]}),
    ("DeleteMessage", None, {}),
    ("ListQueueTags", {"Tags": {"a": "b", "c": ""}}, {"Tags": {"a": "b", "c": ""}}),
    ("ListDeadLetterSourceQueues", {"queueUrls": [URL]}, {"queueUrls": [URL]}),
    (
        "ListMessageMoveTasks",
        {
            "Results": [
                {"Status": "RUNNING", "ApproximateNumberOfMessagesMoved": 5, "StartedTimestamp": 1_700_000_000_000}
            ]
        },
        {
            "Results": [
                {"Status": "RUNNING", "ApproximateNumberOfMessagesMoved": 5, "StartedTimestamp": 1_700_000_000_000}
            ]
        },
    ),
    ("CancelMessageMoveTask", {"ApproximateNumberOfMessagesMoved": 7}, {"ApproximateNumberOfMessagesMoved": 7}),
]


def as_sent(protocol: str, action: str, params: dict[str, Any]) -> HttpRequest:
    """What botocore makes of parameters."""
    made = create_serializer(protocol).serialize_to_request(params, service_model(protocol).operation_model(action))
    headers = {name.lower().encode(): str(value).encode() for name, value in made["headers"].items()}
    body = made["body"]
    if isinstance(body, dict):
        body = urlencode(body).encode()
    return HttpRequest(made["method"].encode(), made["url_path"], "", headers, body)


def as_understood(protocol: str, action: str, response: HttpResponse) -> dict[str, Any]:
    """What botocore makes of an answer."""
    lines = [line.split(": ", 1) for line in response.headers.decode().split("\r\n") if line]
    parsed = {"status_code": int(response.status), "headers": dict(lines), "body": response.body}
    shape = service_model(protocol).operation_model(action).output_shape
    return create_parser(protocol).parse(parsed, shape)


def in_json(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them: bytes in base64."""
    return json.loads(json.dumps(params, default=lambda value: base64.b64encode(value).decode()))


@pytest.mark.parametrize(("action", "params"), REQUESTS)
def test_json_requests_of_botocore_are_decoded(action: str, params: dict[str, Any]) -> None:
    request = as_sent(JSON, action, params)
    assert request.headers[b"x-amz-target"] == json_codec.TARGET_PREFIX + action.encode()
    assert json_codec.decode(request.body) == in_json(params)


@pytest.mark.parametrize("in_url", [False, True])
@pytest.mark.parametrize(("action", "params"), REQUESTS)
def test_query_requests_of_botocore_are_decoded_as_in_json(action: str, params: dict[str, Any], in_url: bool) -> None:
    request = as_sent(QUERY, action, params)
    if in_url:
        request = request._replace(method=b"GET", query=request.body.decode(), body=b"")
    wanted = in_json(params)
    if "tags" in wanted:
        wanted["Tags"] = wanted.pop("tags")
    assert query_codec.decode(request) == (action, wanted)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("action", "result", "wanted"), RESULTS)
def test_responses_are_understood_by_botocore(
    action: str, result: dict[str, Any] | None, wanted: dict[str, Any], protocol: str
) -> None:
    response = json_codec.encode(result, ID) if protocol == JSON else query_codec.encode(action, result, ID)
    found = as_understood(protocol, action, response)
    metadata = found.pop("ResponseMetadata")
    assert found == wanted
    assert metadata["RequestId"] == ID.decode()
    assert metadata["HTTPStatusCode"] == 200


FAULTS = {name: fault for name, fault in vars(errors).items() if isinstance(fault, errors.Fault)} | errors.REFUSALS


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"UNKNOWN_OPERATION"}))  # which has no code in XML
def test_an_error_has_the_same_code_in_both_protocols(name: str) -> None:
    fault = FAULTS[name]
    error = SqsError(fault, 'what is <wrong> & "why"')
    for protocol, response in (
        (JSON, json_codec.encode_error(error, ID)),
        (QUERY, query_codec.encode_error(error, ID)),
    ):
        found = as_understood(protocol, "SendMessage", response)
        assert found["Error"]["Code"] == fault.code
        assert found["Error"]["Message"] == error.message
        assert found["Error"]["Type"] == fault.whose
        assert found["ResponseMetadata"]["HTTPStatusCode"] == fault.status
        assert found["ResponseMetadata"]["RequestId"] == ID.decode()
    body = json.loads(json_codec.encode_error(error, ID).body)
    assert body == {"__type": fault.type, "message": error.message}


def test_the_bytes_of_an_error_are_awss() -> None:
    error = errors.UnknownQueue("jobs")
    response = json_codec.encode_error(error, ID)
    assert response.status == 400
    assert response.content_type == "application/x-amz-json-1.0"
    assert response.headers == (
        b"x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender\r\n"
        b"x-amzn-requestid: 00000000-0000-0000-0000-000000000001\r\n"
    )
    assert (
        response.body
        == b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}'
    )
    assert query_codec.encode_error(error, ID).body == (
        b'<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        b"<Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code>"
        b"<Message>The specified queue does not exist for this wsdl version.</Message><Detail/></Error>"
        b"<RequestId>00000000-0000-0000-0000-000000000001</RequestId></ErrorResponse>"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"text"',
        b"null",
        b"7",
        b"{",
        b'{"a": 1}}',
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"QueueUrl": "a", "QueueUrl": "b"}',
        b'{"QueueUrl": "a", "Queue\\u0055rl": "b", "x": "QueueUrl"}',
    ],
)
def test_hostile_json_is_a_serialization_exception(body: bytes) -> None:
    with pytest.raises(SqsError) as raised:
        json_codec.decode(body)
    assert raised.value.fault is errors.SERIALIZATION
    assert len(raised.value.message) < 400


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "a", "b": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"a": "b", "b": "a"}',
        b'{"QueueUrl": "QueueUrl"}',
        b'{"a": "\\"a\\": 1"}',
        b'{"a": {"a": {"a": "a"}}}',
        b"",
    ],
)
def test_a_name_that_is_a_text_elsewhere_is_not_given_twice(body: bytes) -> None:
    assert json_codec.decode(body) == json.loads(body or b"{}")


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("Action=A&Tag.1.Key=a&Tag.1=b", errors.MALFORMED_QUERY),
        ("Action=A&Tag.1=a&Tag.1.Key=b", errors.MALFORMED_QUERY),
        ("Action=A&QueueUrl=a&QueueUrl=b", errors.MALFORMED_QUERY),
        ("Action=A&AttributeName.x=a", errors.MALFORMED_QUERY),
        ("Action=A&a=%ff", errors.MALFORMED_QUERY),
        ("&".join(f"a{n}=b" for n in range(3000)), errors.MALFORMED_QUERY),
        ("Action=A&Attribute.1.Value=b", errors.INVALID_PARAMETER_VALUE),
        ("Action=A&Attribute.1=b", errors.INVALID_PARAMETER_VALUE),
        ("Action=A&Tag.1.Key=a&Tag.2.Key=a", errors.INVALID_PARAMETER_VALUE),
        ("Action=A&DelaySeconds=x", errors.INVALID_PARAMETER_VALUE),
        ("Action=A&DelaySeconds=" + "9" * 5000, errors.INVALID_PARAMETER_VALUE),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(query: str, fault: errors.Fault) -> None:
    for request in (HttpRequest(b"GET", "/", query, {}, b""), HttpRequest(b"POST", "/", "", {}, query.encode())):
        with pytest.raises(SqsError) as raised:
            query_codec.decode(request)
        assert raised.value.fault is fault


def test_a_form_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(SqsError) as raised:
        query_codec.decode(HttpRequest(b"POST", "/", "", {}, b"Action=SendMessage&MessageBody=\xff"))
    assert raised.value.fault is errors.MALFORMED_QUERY


def test_numbered_parameters_are_in_the_order_of_their_numbers() -> None:
    query = "Action=A&TagKey.10=c&TagKey.2=b&TagKey.1=a&AttributeName=All&X-Amz-Date=1&Version=2012-11-05"
    assert query_codec.decode(HttpRequest(b"GET", "/", query, {}, b"")) == (
        "A",
        {"TagKeys": ["a", "b", "c"], "AttributeNames": ["All"]},
    )


@pytest.mark.parametrize(
    ("form", "member"),
    [
        # What botocore 1.29 sends, and then what the SDK for Go does.
        ("AttributeNames=", "AttributeNames"),
        ("MessageAttributeNames=", "MessageAttributeNames"),
        ("Entries=", "Entries"),
        ("TagKeys=", "TagKeys"),
        ("AWSAccountIds=", "AWSAccountIds"),
        ("Actions=", "Actions"),
        ("AttributeName=", "AttributeNames"),
        ("SendMessageBatchRequestEntry=", "Entries"),
        ("TagKey=", "TagKeys"),
    ],
)
def test_an_empty_list_is_a_parameter_without_a_value(form: str, member: str) -> None:
    request = HttpRequest(b"POST", "/", "", {}, f"Action=A&{form}".encode())
    assert query_codec.decode(request) == ("A", {member: []})


@pytest.mark.parametrize(
    ("form", "member"), [("Attributes=", "Attributes"), ("Attribute=", "Attributes"), ("Tag=", "Tags")]
)
def test_an_empty_map_is_a_parameter_without_a_value(form: str, member: str) -> None:
    request = HttpRequest(b"POST", "/", "", {}, f"Action=A&{form}".encode())
    assert query_codec.decode(request) == ("A", {member: {}})


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        (None, False),
        (b"*/*", False),
        (b"text/xml", False),
        (b"application/json", True),
        (b"application/json, text/plain, */*", True),
        (b"Application/JSON;q=0.9", True),
        (b"text/xml, application/json", False),
        (b"application/xml;q=0.9,application/json", False),
    ],
)
def test_a_client_of_the_query_protocol_may_prefer_json(accept: bytes | None, is_json: bool) -> None:
    headers = {} if accept is None else {b"accept": accept}
    assert query_json_codec.is_wanted(HttpRequest(b"GET", "/", "", headers, b"")) is is_json


def test_every_action_with_a_result_has_its_members_in_the_json_of_the_query_protocol() -> None:
    operations = service_model(JSON)
    with_result = {name for name in operations.operation_names if operations.operation_model(name).output_shape}
    assert set(query_json_codec.MEMBERS) == with_result


def query_json(action: str, result: dict[str, Any] | None) -> dict[str, Any]:
    response = query_json_codec.encode(action, result, ID)
    assert (response.status, response.content_type) == (200, "application/json")
    found = json.loads(response.body)[f"{action}Response"]
    assert found.pop("ResponseMetadata") == {"RequestId": ID.decode()}
    return found.get(f"{action}Result", {})


def test_the_json_of_the_query_protocol_is_awss() -> None:
    """As API Gateway passes it on from SQS: what is absent is null, and maps are lists."""
    assert query_json("ListQueues", {}) == {"NextExclusiveStartQueueName": None, "NextToken": None, "queueUrls": None}
    assert query_json("ListQueues", {"QueueUrls": [URL]})["queueUrls"] == [URL]
    assert query_json("DeleteMessage", None) == {}
    assert query_json("ReceiveMessage", {}) == {"messages": None}
    message = {
        "MessageId": "i",
        "ReceiptHandle": "r",
        "MD5OfBody": "m",
        "Body": BODY,
        "Attributes": {"SenderId": "s"},
        "MD5OfMessageAttributes": "n",
        "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "x"}},
    }
    wanted = {
        **message,
        "Attributes": [{"Name": "SenderId", "Value": "s"}],
        "MessageAttributes": [
            {
                "Name": "kind",
                "Value": {
                    "BinaryListValues": None,
                    "BinaryValue": None,
                    "DataType": "String",
                    "StringListValues": None,
                    "StringValue": "x",
                },
            }
        ],
    }
    fragment = query_json_codec.fragment(message)
    assert query_json("ReceiveMessage", {"Messages": [message, fragment]}) == {"messages": [wanted, wanted]}
    found = query_json_codec.encode("SendMessage", {"MD5OfMessageBody": "m", "MessageId": "i"}, ID)
    assert found.body == (
        b'{"SendMessageResponse":{"ResponseMetadata":{"RequestId":"00000000-0000-0000-0000-000000000001"},'
        b'"SendMessageResult":{"MD5OfMessageAttributes":null,"MD5OfMessageBody":"m",'
        b'"MD5OfMessageSystemAttributes":null,"MessageId":"i","SequenceNumber":null}}}'
    )
    assert query_json("GetQueueAttributes", {"Attributes": {"a": "1"}}) == {
        "Attributes": [{"Name": "a", "Value": "1"}]
    }
    assert query_json("ListQueueTags", {"Tags": {"a": "1"}}) == {"Tags": [{"Key": "a", "Value": "1"}]}
    failed = {"Id": "b", "SenderFault": True, "Code": "C", "Message": "no"}
    assert query_json("DeleteMessageBatch", {"Failed": [failed]}) == {"Failed": [failed], "Successful": None}


def test_an_error_in_the_json_of_the_query_protocol_is_as_aws_writes_it() -> None:
    found = query_json_codec.encode_error(errors.UnknownQueue("jobs"), ID)
    assert (found.status, found.content_type) == (400, "application/json")
    assert found.body == (
        b'{"Error":{"Code":"AWS.SimpleQueueService.NonExistentQueue",'
        b'"Message":"The specified queue does not exist for this wsdl version.","Type":"Sender"},'
        b'"RequestId":"00000000-0000-0000-0000-000000000001"}'
    )
    query_json_codec.encode_error(SqsError(errors.INVALID_ACTION, "\ud800"), ID)
    unknown = SqsError(errors.UNKNOWN_OPERATION, "no Action")
    assert query_json_codec.encode_error(unknown, ID) == query_codec.encode_error(unknown, ID)
    assert query_codec.encode_error(unknown, ID).body == b"<UnknownOperationException/>"


def test_a_queue_may_be_named_by_the_path() -> None:
    request = HttpRequest(b"POST", "/000000000000/jobs", "Action=PurgeQueue", {}, b"Version=2012-11-05")
    assert query_codec.decode(request) == ("PurgeQueue", {"QueueUrl": "/000000000000/jobs"})


def test_characters_that_xml_cannot_carry_are_replaced() -> None:
    response = query_codec.encode("ListQueueTags", {"Tags": {"a\x01": "\x00\ufffe"}}, ID)
    assert as_understood(QUERY, "ListQueueTags", response)["Tags"] == {"a?": "??"}


def fault_of(read: Callable[[], object]) -> errors.Fault | None:
    try:
        read()
    except SqsError as error:
        return error.fault
    return None


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    request = HttpRequest(b"POST", "/", data.decode("latin-1"), {}, data)
    assert fault_of(lambda: json_codec.decode(data)) in (None, errors.SERIALIZATION)
    refused = (None, errors.MALFORMED_QUERY, errors.INVALID_PARAMETER_VALUE)
    assert fault_of(lambda: query_codec.decode(request)) in refused


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\ufffe\uffff"), max_size=50).map(
    lambda text: "".join(each for each in text if each >= " " or each in "\t\n\r")
)


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5), TEXTS.filter(bool))
def test_every_text_comes_back_as_it_was(tags: dict[str, str], body: str) -> None:
    for protocol in PROTOCOLS:
        request = as_sent(protocol, "TagQueue", {"QueueUrl": URL, "Tags": tags})
        read = json_codec.decode(request.body) if protocol == JSON else query_codec.decode(request)[1]
        assert read.get("Tags", {}) == tags
        result = {"Messages": [{"MessageId": "i", "Body": body}]}
        response = (
            json_codec.encode(result, ID) if protocol == JSON else query_codec.encode("ReceiveMessage", result, ID)
        )
        assert as_understood(protocol, "ReceiveMessage", response)["Messages"][0]["Body"] == body
