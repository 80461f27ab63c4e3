"""Names, pagination, tags, batches and translated errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.queues.messages import MoveTaskRunning, NoSuchMoveTask, QueueUnavailable
from penstock.cluster.queues import NameTaken, NoSuchQueue, QueueExists
from penstock.foundation.errors import MessageTooLarge, NotLeaderOrFollower, PenstockError, StorageError
from penstock.foundation.steps import run_steps
from penstock.queues.errors import OverLimit
from penstock.security.errors import AccessDenied, SignatureDoesNotMatch
from penstock.sqs import errors
from penstock.sqs.batches import failed, read_entries, result
from penstock.sqs.errors import SqsError, translate
from penstock.sqs.pagination import Page, page_steps
from penstock.sqs.queue_names import account_of, arn_of, check_name, name_in_arn, name_in_url, url_of
from penstock.sqs.tags import check_tags


def page_of(names: list[str], params: dict[str, Any]) -> Page:
    return run_steps(page_steps(names, lambda name: True, params))


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/000000000000/jobs",
        "https://sqs.eu-west-1.amazonaws.com/111122223333/jobs",
        "http://localhost:9324/queue/jobs",
        "http://balancer.example/jobs/",
        "/000000000000/jobs",
        "jobs",
    ],
)
def test_only_the_end_of_the_path_of_a_url_counts(url: str) -> None:
    assert name_in_url(url) == "jobs"


def test_a_url_and_an_arn_are_made_of_what_clients_look_for() -> None:
    assert url_of("h:1", "https", "111122223333", "jobs") == "https://h:1/111122223333/jobs"
    assert account_of("111122223333", "000000000000") == "111122223333"
    assert account_of("payments", "444455556666") == "444455556666"
    assert account_of("000000000000", "444455556666") == "444455556666", "the default account, as it is called here"
    assert arn_of("eu-west-1", "111122223333", "jobs") == "arn:aws:sqs:eu-west-1:111122223333:jobs"


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:sqs:eu-west-1:111122223333:jobs.fifo", "jobs.fifo"),
        ("arn:aws-cn:sqs:cn-north-1:1:jobs", "jobs"),
        ("arn:aws:sns:eu-west-1:111122223333:jobs", None),
        ("jobs", None),
        ("arn:aws:sqs:eu-west-1:111122223333:", None),
    ],
)
def test_the_name_in_an_arn(arn: str, name: str | None) -> None:
    assert name_in_arn(arn) == name


@pytest.mark.parametrize(
    ("name", "is_fifo"), [("jobs", False), ("a-B_9" * 16, False), ("jobs.fifo", True), ("a" * 75 + ".fifo", True)]
)
def test_a_name_that_aws_takes_is_taken(name: str, is_fifo: bool) -> None:
    check_name(name, is_fifo)
    with pytest.raises(SqsError):
        check_name(name, not is_fifo)


@pytest.mark.parametrize("name", ["a" * 81, "a b", "a.b", "a/b", "é", ".fifo", "a" * 76 + ".fifo"])
def test_a_name_that_aws_does_not_take_is_refused(name: str) -> None:
    for is_fifo in (True, False):
        with pytest.raises(SqsError) as raised:
            check_name(name, is_fifo)
        assert raised.value.fault is errors.INVALID_PARAMETER_VALUE


@given(st.sets(st.text("abc", min_size=1, max_size=6)), st.integers(1, 10))
def test_pages_together_are_the_whole_list_in_order(names: set[str], limit: int) -> None:
    found: list[str] = []
    token: str | None = None
    while True:
        page = page_of(names, {"MaxResults": limit, **({"NextToken": token} if token else {})})
        assert len(page.names) <= limit
        found += page.names
        token = page.next_token
        if token is None:
            break
    assert found == sorted(names)


def test_a_page_has_a_thousand_names_at_most() -> None:
    names = [f"q{number:05d}" for number in range(1500)]
    page = page_of(names, {})
    assert page.names == names[:1000]
    assert page_of(names, {"NextToken": page.next_token}).names == names[1000:]


@pytest.mark.parametrize("params", [{"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "é"}, {"NextToken": "_x"}])
def test_a_page_that_there_is_not_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(SqsError) as raised:
        page_of(["a"], params)
    assert raised.value.fault is errors.INVALID_PARAMETER_VALUE


def test_tags_have_their_limits() -> None:
    check_tags({"a" * 128: "b" * 256, "c": ""}, [str(number) for number in range(48)])
    for tags, before in (
        ({"": "x"}, []),
        ({"a" * 129: "x"}, []),
        ({"a": "x" * 257}, []),
        ({"a": ""}, list(range(50))),
    ):
        with pytest.raises(SqsError):
            check_tags(tags, map(str, before))


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        (None, errors.EMPTY_BATCH),
        ([], errors.EMPTY_BATCH),
        ([{"Id": str(number)} for number in range(11)], errors.TOO_MANY_ENTRIES),
        ([{"Id": "a"}, {"Id": "a"}], errors.IDS_NOT_DISTINCT),
        ([{"Id": ""}], errors.INVALID_BATCH_ID),
        ([{}], errors.INVALID_BATCH_ID),
        ([{"Id": "a b"}], errors.INVALID_BATCH_ID),
        ([{"Id": "a" * 81}], errors.INVALID_BATCH_ID),
        ([{"Id": 5}], errors.SERIALIZATION),
        (["a"], errors.SERIALIZATION),
        ({"Id": "a"}, errors.SERIALIZATION),
    ],
)
def test_a_batch_that_makes_no_sense_fails_as_a_whole(entries: Any, fault: errors.Fault) -> None:
    with pytest.raises(SqsError) as raised:
        read_entries({"Entries": entries}, "DeleteMessageBatch")
    assert raised.value.fault is fault


def test_an_entry_that_failed_says_whose_fault_it_was() -> None:
    assert failed("a", errors.missing("X")) == {
        "Id": "a",
        "SenderFault": True,
        "Code": "MissingParameter",
        "Message": "The request must contain the parameter X.",
    }
    assert failed("b", QueueUnavailable("no leader"))["SenderFault"] is False
    assert result([], []) == {}


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (NoSuchQueue("x"), errors.QUEUE_DOES_NOT_EXIST),
        (QueueExists("x"), errors.QUEUE_NAME_EXISTS),
        (NameTaken("x"), errors.QUEUE_NAME_EXISTS),
        (OverLimit("x"), errors.OVER_LIMIT),
        (MoveTaskRunning("x"), errors.INVALID_PARAMETER_VALUE),
        (NoSuchMoveTask("x"), errors.RESOURCE_NOT_FOUND),
        (MessageTooLarge("x"), errors.INVALID_PARAMETER_VALUE),
        (QueueUnavailable("x"), errors.SERVICE_UNAVAILABLE),
        (NotLeaderOrFollower("x"), errors.SERVICE_UNAVAILABLE),
        (StorageError("x"), errors.SERVICE_UNAVAILABLE),
        (AccessDenied("x"), errors.REFUSALS["AccessDenied"]),
        (SignatureDoesNotMatch("x"), errors.REFUSALS["SignatureDoesNotMatch"]),
        (PenstockError("x"), errors.INTERNAL_FAILURE),
    ],
)
def test_an_internal_error_is_translated_to_one_of_aws(error: PenstockError, fault: errors.Fault) -> None:
    translated = translate(error)
    assert translated.fault is fault
    assert translated.message
