"""Exceptions of the Python API, and their mapping from Kafka and librdkafka error codes.

try:
    mq.publish("orders", {"id": 1})
except penstock.NotConnected as error:
    print(error.code.name, error)
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from penstock.client.address import parse_bootstrap
from penstock.client.errors import error_code, refusal
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

_PROBE: Final = bytes.fromhex("0000000a 0012 0000 00000000 ffff")
"""Bytes of a test request (ApiVersions, version 0, without a client id), which an HTTP server answers with HTTP."""
PROBE_S: Final = 1.0
"""Timeout, in seconds, of a test connection that finds out why no broker answered."""


class ApiError(PenstockError):
    """Base class of all errors of the Python API; `code` is Kafka's error code.

    except penstock.ApiError as error:
        print(error.code.name, error)
    """

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            # The class has its most common code; the cluster may have returned a more exact one.
            self.code = code  # type: ignore[misc]


class InvalidArgument(ApiError, ValueError):
    """An argument is invalid, alone or in combination with other arguments. Nothing was done.

    mq.subscribe("orders", from_="the start")  # penstock.InvalidArgument: … give 'earliest', 'latest', …
    """

    code = ErrorCode.INVALID_REQUEST


class InvalidValue(ApiError, ValueError):
    """A value cannot be encoded as a message, or a message cannot be decoded as JSON or text.

    mq.publish("orders", {1, 2})  # penstock.InvalidValue: a set cannot be written as JSON …
    """

    code = ErrorCode.INVALID_RECORD


class Closed(ApiError):
    """The connection, subscription or transaction is closed.

    mq.close()
    mq.publish("orders", "late")  # penstock.Closed: the connection is closed; connect again
    """

    code = ErrorCode.INVALID_REQUEST


class NotConnected(ApiError):
    """No broker answers. Requests in flight may or may not have been carried out.

    penstock.connect("localhost:1")  # penstock.NotConnected: no broker answers at localhost:1 (…)
    """

    code = ErrorCode.NETWORK_EXCEPTION


class NotAllowed(ApiError):
    """Authentication failed, or the authenticated user lacks a permission for the request.

    except penstock.NotAllowed as error:
        print(error.code.name)  # TOPIC_AUTHORIZATION_FAILED
    """

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnknownTopic(ApiError):
    """The topic or partition does not exist, and is not created automatically.

    mq.publish("orders", "x", partition=99)  # penstock.UnknownTopic
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class PublishFailed(ApiError):
    """A message was rejected, or not acknowledged in time; `code` has the reason.

    except penstock.PublishFailed as error:
        if error.code.name == "MESSAGE_TOO_LARGE": ...
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class SubscribeFailed(ApiError):
    """Messages could not be read, or an offset could not be found or committed; `code` has the reason.

    mq.seek("billing", "orders", to=10**9)  # penstock.SubscribeFailed: offset 1000000000 is not there …
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class Busy(ApiError):
    """The resource is in use: a consumer group that has members, or a transactional id with an open transaction.

    mq.seek("billing", "orders", to="earliest")  # penstock.Busy, while a subscription of the group is open
    """

    code = ErrorCode.NON_EMPTY_GROUP


class TransactionAborted(ApiError):
    """The transaction was aborted: none of its messages is delivered. You can run the block again.

    except penstock.TransactionAborted:
        ...  # run the `with mq.transaction(…)` block once more
    """

    code = ErrorCode.TRANSACTION_ABORTABLE


class Fenced(ApiError):
    """Another producer or group member with the same id has taken over, or the transaction timed out.

    except penstock.Fenced:
        raise SystemExit("another process has taken over")
    """

    code = ErrorCode.PRODUCER_FENCED


class UnknownQueue(ApiError):
    """The queue does not exist. Only create_queue creates queues.

    mq.queue("jbos").send("hello")  # penstock.UnknownQueue: there is no queue 'jbos'; …
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class QueueFailed(ApiError):
    """A queue rejected a request; `reason` is the SQS error code: OverLimit, QueueAlreadyExists, …

    except penstock.QueueFailed as error:
        if error.reason == "OverLimit": ...
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None, *, reason: str = "") -> None:
        super().__init__(message, code)
        self.reason = reason


class JobLost(QueueFailed):
    """The visibility timeout expired, and another consumer has received or deleted the message.

    except penstock.JobLost:
        ...  # it was done twice, or is about to be; a longer visibility helps
    """

    code = ErrorCode.INVALID_REQUEST


_LIBRDKAFKA_CODES: Final = {
    KafkaError._TRANSPORT: ErrorCode.NETWORK_EXCEPTION,
    KafkaError._ALL_BROKERS_DOWN: ErrorCode.NETWORK_EXCEPTION,
    KafkaError._RESOLVE: ErrorCode.NETWORK_EXCEPTION,
    KafkaError._UNKNOWN_BROKER: ErrorCode.NETWORK_EXCEPTION,
    KafkaError._SSL: ErrorCode.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
    KafkaError._MSG_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE: ErrorCode.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    KafkaError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_GROUP: ErrorCode.GROUP_ID_NOT_FOUND,
    KafkaError._INVALID_ARG: ErrorCode.INVALID_REQUEST,
    KafkaError._STATE: ErrorCode.INVALID_TXN_STATE,
    KafkaError._FENCED: ErrorCode.PRODUCER_FENCED,
    KafkaError._AUTO_OFFSET_RESET: ErrorCode.OFFSET_OUT_OF_RANGE,
    KafkaError._NO_OFFSET: ErrorCode.OFFSET_NOT_AVAILABLE,
    KafkaError._BAD_MSG: ErrorCode.CORRUPT_MESSAGE,
    KafkaError._BAD_COMPRESSION: ErrorCode.CORRUPT_MESSAGE,
    KafkaError._UNSUPPORTED_FEATURE: ErrorCode.UNSUPPORTED_VERSION,
}

_ERROR_CLASSES: Final[dict[ErrorCode, type[ApiError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
    ErrorCode.PRODUCER_FENCED: Fenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: Fenced,
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAborted,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: InvalidArgument,
    ErrorCode.NETWORK_EXCEPTION: NotConnected,
    ErrorCode.BROKER_NOT_AVAILABLE: NotConnected,
    ErrorCode.NON_EMPTY_GROUP: Busy,
    ErrorCode.CONCURRENT_TRANSACTIONS: Busy,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAllowed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAllowed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAllowed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAllowed,
    ErrorCode.SASL_AUTHENTICATION_FAILED: NotAllowed,
}
"""Error classes by error code, for codes that mean the same in every operation."""

_FENCED_ADVICE: Final = (
    "another producer with the same transactional id has taken over, or the transaction took longer than its "
    "timeout; give every process its own id, or a longer transaction_timeout_s, and start again"
)
_ADVICE: Final = {
    ErrorCode.NETWORK_EXCEPTION: (
        "the brokers cannot be reached; check that one runs (`penstock serve`) and that the address is right"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is no such topic or partition; `penstock topic list` lists the topics, "
        "`penstock topic create` creates one"
    ),
    ErrorCode.PRODUCER_FENCED: _FENCED_ADVICE,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED_ADVICE,
    ErrorCode.FENCED_INSTANCE_ID: "another member with the same group.instance.id has taken over; give each its own",
    ErrorCode.SASL_AUTHENTICATION_FAILED: (
        "authentication failed; check security.protocol and the sasl.* and ssl.* options"
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        "the group has members; close its subscriptions first (`penstock group describe` lists them)"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "an earlier transaction of this id is being ended; try again in a moment",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction was aborted; run its block again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "the broker does not allow so long a transaction; give a shorter transaction_timeout_s"
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "no answer in time; it may have been carried out; try again, or give a longer timeout_s"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker does not allow so short or so long a session (group.min.session.timeout.ms, by default 6 s); "
        "give a processing_timeout_s above that, or another 'session.timeout.ms' in options"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's other members assign partitions in another way; give this one the same "
        "'partition.assignment.strategy' in options"
    ),
}


NO_KERBEROS: Final = "No provider for SASL mechanism GSSAPI"
"""What librdkafka says if it was built without Kerberos."""
_KERBEROS_ADVICE: Final = (
    "confluent-kafka was built without Kerberos (GSSAPI), as its wheels are; install librdkafka with its headers and "
    "libsasl2 (on Debian: librdkafka-dev, libsasl2-modules-gssapi-mit), and build it: pip install --no-binary "
    "confluent-kafka confluent-kafka"
)


def code_of(error: KafkaError) -> ErrorCode:
    """Returns Kafka's error code for an error of librdkafka.

    >>> code_of(KafkaError(KafkaError._MSG_TIMED_OUT)).name
    'REQUEST_TIMED_OUT'
    """
    number = error.code()
    return _LIBRDKAFKA_CODES[number] if number in _LIBRDKAFKA_CODES else error_code(number)


def kafka_error(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found


def explain(error: KafkaError, doing: str, otherwise: type[ApiError], servers: str = "") -> ApiError:
    """Converts an error of librdkafka in the operation `doing` to an ApiError, of class `otherwise` if its code has
    no class. With `servers`, a timeout becomes NotConnected if no server accepts connections.

    >>> explain(KafkaError(3), "publishing to topic 'orders'", PublishFailed).code.name
    'UNKNOWN_TOPIC_OR_PARTITION'
    """
    code = code_of(error)
    if servers and code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION):
        reason = why_unreachable(servers)
        if reason:
            return NotConnected(f"{doing}: {unreachable_message(servers, reason)}")
    if code in _ADVICE:
        message = f"{doing}: {_ADVICE[code]} ({code.name})"
    elif NO_KERBEROS in error.str():
        message = f"{doing}: {_KERBEROS_ADVICE}"
    elif error.code() < 0:
        message = f"{doing}: {error.str()}"
    else:
        message = str(refusal(error.code(), doing))
    return _ERROR_CLASSES.get(code, otherwise)(message, code)


def with_message_number(error: ApiError, number: int) -> ApiError:
    """Returns an error of the same class and code whose text says that message `number` of publish_many failed."""
    return type(error)(f"message {number} was not published (the {number} before it were): {error}", error.code)


@contextmanager
def add_note_to(error: BaseException | None) -> Iterator[None]:
    """Context manager for cleanup: adds an ApiError raised in it to `error` as a note; raises it if `error` is None.

    The ApiError must not replace `error`: a caller that retries after ApiErrors would then miss Ctrl-C.
    """
    try:
        yield
    except ApiError as failure:
        if error is None:
            raise
        error.add_note(f"during cleanup: {failure}")


def unreachable_message(servers: str, reason: str) -> str:
    return f"no broker answers at {servers} ({reason}); start one with `penstock serve`, or correct the address"


def why_unreachable(servers: str) -> str | None:
    """Returns why none of the server addresses accepts connections; None if an address does."""
    reason = "no address"
    for address in parse_bootstrap(servers):
        try:
            socket.create_connection(address, PROBE_S).close()
        except OSError as error:
            reason = f"{address}: {(error.strerror or str(error)).lower()}"
        else:
            return None
    return reason


def speaks_http(servers: str) -> str | None:
    """Returns the first address that answers a Kafka request with HTTP; None if no address does."""
    for address in parse_bootstrap(servers):
        with suppress(OSError), socket.create_connection(address, PROBE_S) as probe:
            probe.settimeout(PROBE_S)
            probe.sendall(_PROBE)
            if probe.recv(4) == b"HTTP":
                return str(address)
    return None
