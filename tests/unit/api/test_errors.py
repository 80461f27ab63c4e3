import socket

import pytest
from confluent_kafka import KafkaError

from penstock.api.errors import (
    ApiError,
    Busy,
    Fenced,
    InvalidArgument,
    NotAllowed,
    NotConnected,
    PublishFailed,
    SubscribeFailed,
    TransactionAborted,
    UnknownTopic,
    add_note_to,
    code_of,
    explain,
    why_unreachable,
)
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

KINDS = [
    (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "penstock topic create"),
    (KafkaError._UNKNOWN_TOPIC, UnknownTopic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "penstock topic list"),
    (KafkaError._UNKNOWN_PARTITION, UnknownTopic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition"),
    (KafkaError.UNKNOWN_TOPIC_ID, UnknownTopic, ErrorCode.UNKNOWN_TOPIC_ID, "look it up again"),
    (KafkaError._FENCED, Fenced, ErrorCode.PRODUCER_FENCED, "its own id"),
    (KafkaError.PRODUCER_FENCED, Fenced, ErrorCode.PRODUCER_FENCED, "its own id"),
    (KafkaError.INVALID_PRODUCER_EPOCH, Fenced, ErrorCode.INVALID_PRODUCER_EPOCH, "its own id"),
    (KafkaError.FENCED_INSTANCE_ID, Fenced, ErrorCode.FENCED_INSTANCE_ID, "group.instance.id"),
    (KafkaError.TRANSACTION_ABORTABLE, TransactionAborted, ErrorCode.TRANSACTION_ABORTABLE, "again"),
    (KafkaError._TRANSPORT, NotConnected, ErrorCode.NETWORK_EXCEPTION, "penstock serve"),
    (KafkaError._ALL_BROKERS_DOWN, NotConnected, ErrorCode.NETWORK_EXCEPTION, "penstock serve"),
    (KafkaError._RESOLVE, NotConnected, ErrorCode.NETWORK_EXCEPTION, "address"),
    (KafkaError.NON_EMPTY_GROUP, Busy, ErrorCode.NON_EMPTY_GROUP, "penstock group describe"),
    (KafkaError.CONCURRENT_TRANSACTIONS, Busy, ErrorCode.CONCURRENT_TRANSACTIONS, "try again"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "ask for the right"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed, ErrorCode.GROUP_AUTHORIZATION_FAILED, "refused"),
    (KafkaError._AUTHENTICATION, NotAllowed, ErrorCode.SASL_AUTHENTICATION_FAILED, "security.protocol"),
    (KafkaError._SSL, NotAllowed, ErrorCode.SASL_AUTHENTICATION_FAILED, "ssl"),
    (KafkaError.MSG_SIZE_TOO_LARGE, PublishFailed, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes"),
    (KafkaError._MSG_TIMED_OUT, PublishFailed, ErrorCode.REQUEST_TIMED_OUT, "timeout_s"),
    (KafkaError.NOT_ENOUGH_REPLICAS, PublishFailed, ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas"),
    (KafkaError.INVALID_TRANSACTION_TIMEOUT, InvalidArgument, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "shorter"),
    (KafkaError.INCONSISTENT_GROUP_PROTOCOL, PublishFailed, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "strategy"),
    (KafkaError.INVALID_SESSION_TIMEOUT, PublishFailed, ErrorCode.INVALID_SESSION_TIMEOUT, "processing_timeout_s"),
    (KafkaError._STATE, PublishFailed, ErrorCode.INVALID_TXN_STATE, "state"),
]


@pytest.mark.parametrize(("code", "kind", "expected", "advice"), KINDS, ids=lambda value: str(value)[:40])
def test_every_error_has_its_kind_its_code_and_its_advice(
    code: int, kind: type[ApiError], expected: ErrorCode, advice: str
) -> None:
    error = explain(KafkaError(code), "publishing to topic 'orders'", PublishFailed)
    assert type(error) is kind
    assert error.code is expected
    assert advice in str(error)
    assert str(error).startswith("publishing to topic 'orders': ")
    assert isinstance(error, PenstockError)


def test_a_code_that_is_newer_than_we_are_is_an_unknown_error_of_what_was_tried() -> None:
    error = explain(KafkaError(9999), "reading 'orders'", SubscribeFailed)
    assert type(error) is SubscribeFailed
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error)


def test_errors_of_librdkafka_keep_their_text() -> None:
    error = explain(KafkaError(KafkaError._UNSUPPORTED_FEATURE), "reading 'orders'", SubscribeFailed)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert str(error).startswith("reading 'orders': ")
    assert code_of(KafkaError(KafkaError._FS)) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_timeout_differs_from_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"127.0.0.1:{server.getsockname()[1]}"
        assert why_unreachable(here) is None
        slow = explain(KafkaError(KafkaError._MSG_TIMED_OUT), "publishing", PublishFailed, here)
        assert (type(slow), slow.code) == (PublishFailed, ErrorCode.REQUEST_TIMED_OUT)
    gone = explain(KafkaError(KafkaError._MSG_TIMED_OUT), "publishing", PublishFailed, here)
    assert (type(gone), gone.code) == (NotConnected, ErrorCode.NETWORK_EXCEPTION)
    assert "connection refused" in str(gone)
    assert "penstock serve" in str(gone)


def test_one_server_that_can_be_reached_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert why_unreachable(f"127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}") is None


def test_errors_in_what_was_asked_for_are_value_errors_too() -> None:
    assert issubclass(InvalidArgument, ValueError)
    assert InvalidArgument("no").code is ErrorCode.INVALID_REQUEST
    assert InvalidArgument("no", ErrorCode.INVALID_CONFIG).code is ErrorCode.INVALID_CONFIG
    assert InvalidArgument("no").message == "no"


def test_an_error_during_cleanup_is_noted_at_the_first_error() -> None:
    cause = KeyboardInterrupt()
    with add_note_to(cause):
        raise Fenced("too late")
    assert cause.__notes__ == ["during cleanup: too late"]
    with pytest.raises(Fenced), add_note_to(None):
        raise Fenced("too late")
    with pytest.raises(ZeroDivisionError), add_note_to(cause):  # a fault of ours is not hidden
        raise ZeroDivisionError
