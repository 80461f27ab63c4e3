"""Queue messages on the wire, and the errors of refusals."""

import json
from base64 import b64encode
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.durations import seconds_of, whole_seconds
from penstock.api.core.job import OutgoingJob
from penstock.api.core.queue_wire import Entry, entry_of, explain, portions, read_attributes, read_message
from penstock.api.core.queue_worker import WorkPlan
from penstock.api.errors import (
    ApiError,
    InvalidArgument,
    InvalidValue,
    JobLost,
    NotAllowed,
    NotConnected,
    QueueFailed,
    UnknownQueue,
)
from penstock.client.errors import ConnectionFailed
from penstock.client.sqs import BATCH_BYTES_MAX, BATCH_MAX, SqsError
from penstock.foundation.errors import PenstockError

NUMBERS = st.integers(-(10**30), 10**30) | st.decimals(allow_nan=False, allow_infinity=False, places=6)
ATTRIBUTES = st.dictionaries(st.text("abc-_.", min_size=1), st.text() | st.binary() | NUMBERS, max_size=10)


@given(attributes=ATTRIBUTES)
def test_attributes_come_back_as_they_were_given(attributes: dict[str, str | bytes | int | Decimal]) -> None:
    params = entry_of(OutgoingJob("x", attributes=attributes)).params
    assert read_attributes(params.get("MessageAttributes", {})) == attributes


def test_bodies_are_written_as_messages_of_topics_are() -> None:
    assert entry_of(OutgoingJob("text")).params == {"MessageBody": "text"}
    assert entry_of(OutgoingJob("ü".encode())).params == {"MessageBody": "ü"}
    assert entry_of(OutgoingJob({"id": 1})).params == {"MessageBody": '{"id":1}'}
    assert entry_of(OutgoingJob("x", group="g", deduplication_id="d", delay=timedelta(seconds=1.2))).params == {
        "MessageBody": "x",
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
        "DelaySeconds": 2,
    }


@pytest.mark.parametrize("body", [b"\xff", "", None, {1, 2}])
def test_invalid_messages_are_refused_before_they_are_sent(body: object) -> None:
    with pytest.raises(InvalidValue):
        entry_of(OutgoingJob(body))


def test_an_attribute_that_is_neither_text_nor_bytes_nor_a_number_is_refused() -> None:
    with pytest.raises(InvalidValue, match="'flag' is a bool"):
        entry_of(OutgoingJob("x", attributes={"flag": True}))


@given(sizes=st.lists(st.integers(1, BATCH_BYTES_MAX)))
def test_messages_go_in_order_in_requests_that_are_small_enough(sizes: list[int]) -> None:
    entries = [Entry({"n": number}, size) for number, size in enumerate(sizes)]
    found = list(portions(entries))
    assert [entry for portion in found for entry in portion] == entries
    for portion in found:
        assert 1 <= len(portion) <= BATCH_MAX
        assert sum(entry.size for entry in portion) <= BATCH_BYTES_MAX


def test_a_message_is_read_with_all_its_attributes() -> None:
    response = {
        "MessageId": "id",
        "ReceiptHandle": "receipt",
        "Body": b64encode(b"\xff\x00").decode(),
        "Attributes": {
            "PenstockBodyEncoding": "base64",
            "ApproximateReceiveCount": "3",
            "SentTimestamp": "17",
            "ApproximateFirstReceiveTimestamp": "18",
            "MessageGroupId": "g",
            "DeadLetterQueueSourceArn": "arn:aws:sqs:us-east-1:000000000000:jobs",
        },
    }
    found = read_message("dead", response)
    assert found["value"] == b"\xff\x00"
    assert (found["receive_count"], found["sent_ms"], found["first_received_ms"]) == (3, 17, 18)
    assert (found["group"], found["source"], found["queue"]) == ("g", "jobs", "dead")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SqsError("AWS.SimpleQueueService.NonExistentQueue", "no"), UnknownQueue),
        (SqsError("AWS.SimpleQueueService.MessageNotInflight", "no"), JobLost),
        (SqsError("ReceiptHandleIsInvalid", "no"), JobLost),
        (SqsError("InvalidParameterValue", "Value x for parameter ReceiptHandle is invalid."), JobLost),
        (SqsError("InvalidParameterValue", "Value 11 for parameter Max is invalid."), InvalidArgument),
        (SqsError("SignatureDoesNotMatch", "no", 403), NotAllowed),
        (SqsError("OverLimit", "no", 403), QueueFailed),
        (ConnectionFailed("refused"), NotConnected),
    ],
)
def test_a_refusal_becomes_an_error_of_the_apis_own(error: PenstockError, kind: type[ApiError]) -> None:
    found = explain(error, "jobs")
    assert type(found) is kind
    assert "jobs" in str(found)


def test_the_queues_own_word_is_kept() -> None:
    found = explain(SqsError("OverLimit", "too many", 403), "jobs")
    assert isinstance(found, QueueFailed)
    assert found.reason == "OverLimit"


@pytest.mark.parametrize("value", ["", "x", "-1s", "5 weeks", -1, float("inf"), float("nan"), True, None])
def test_invalid_durations_are_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="duration"):
        seconds_of(value, "delay")  # type: ignore[arg-type]


def test_durations_have_bounds() -> None:
    assert whole_seconds("12h", "visibility", most=43_200) == 43_200
    with pytest.raises(InvalidArgument, match="0 to 43200 seconds"):
        whole_seconds("13h", "visibility", most=43_200)


@given(base_s=st.floats(0, 1000), most_s=st.floats(0, 100_000), count=st.integers(1, 10**6))
def test_back_off_grows_and_stays_within_bounds(base_s: float, most_s: float, count: int) -> None:
    plan = WorkPlan(visibility_s=30, backoff_s=base_s, backoff_max_s=most_s)
    assert 0 <= plan.delay_s(count) <= min(most_s, 43_200)
    assert plan.delay_s(count) <= plan.delay_s(count + 1)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"limit": 0}, {"idle_timeout_s": 0}])
def test_a_worker_that_could_do_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        WorkPlan(visibility_s=30, **wrong)  # type: ignore[arg-type]


def test_a_new_queue_says_what_was_asked_for_and_no_more() -> None:
    from penstock.client.queue_attributes import NewQueue

    assert NewQueue().attributes() == {}
    found = NewQueue(retention_s=3_000_000, dead_letter="dead", max_receives=3, from_topic="orders").attributes()
    assert found["PenstockRetentionPeriod"] == "3000000"
    assert found["PenstockTopic"] == "orders"
    assert json.loads(found["RedrivePolicy"])["maxReceiveCount"] == 3
    assert NewQueue(fifo=True, partitions=4).attributes()["DeduplicationScope"] == "messageGroup"
