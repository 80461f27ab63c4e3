"""What can go wrong for a user of the Python API: one small tree. Each error has Kafka's code, and says what to do.

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
"""ApiVersions, version 0, without a client id."""
PROBE_S: Final = 1.0
"""How long to look whether somebody listens at an address, when it is to be told why nobody answered."""


class ApiError(PenstockError):
    """Base of what the Python API raises; `code` is Kafka's.

    except penstock.ApiError as error:
        print(error.code.name, error)
    """

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            # A class has the code that is meant most often; the cluster may have said it more exactly.
            self.code = code  # type: ignore[misc]


class InvalidArgument(ApiError, ValueError):
    """An argument that makes no sense, alone or with the others: nothing was done.

    mq.subscribe("orders", from_="the start")  # penstock.InvalidArgument: … give 'earliest', 'latest', …
    """

    code = ErrorCode.INVALID_REQUEST


class InvalidValue(ApiError, ValueError):
    """A value that cannot be written as a message, or a message that is not what it was read as.

    mq.publish("orders", {1, 2})  # penstock.InvalidValue: a set cannot be written as JSON …
    """

    code = ErrorCode.INVALID_RECORD


class Closed(ApiError):
    """The connection, the subscription or the transaction was closed before.

    mq.close()
    mq.publish("orders", "late")  # penstock.Closed: the connection is closed; connect again
    """

    code = ErrorCode.INVALID_REQUEST


class NotConnected(ApiError):
    """No broker answers. What was under way may have been done, or not.

    penstock.connect("localhost:1")  # penstock.NotConnected: no broker answers at localhost:1 (…)
    """

    code = ErrorCode.NETWORK_EXCEPTION


class NotAllowed(ApiError):
    """The cluster knows who asks, and says no; or it does not believe who asks.

    except penstock.NotAllowed as error:
        print(error.code.name)  # TOPIC_AUTHORIZATION_FAILED
    """

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class UnknownTopic(ApiError):
    """The topic, or that partition of it, does not exist, and is not made by being asked for.

    mq.publish("orders", "x", partition=99)  # penstock.UnknownTopic
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class PublishFailed(ApiError):
    """A message was refused, or nobody has acknowledged it in time; `code` says why.

    except penstock.PublishFailed as error:
        if error.code.name == "MESSAGE_TOO_LARGE": ...
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class SubscribeFailed(ApiError):
    """Messages could not be read, or an offset could not be found or set; `code` says why.

    mq.seek("billing", "orders", to=10**9)  # penstock.SubscribeFailed: offset 1000000000 is not there …
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class Busy(ApiError):
    """Somebody uses it now: a group that has members, a transactional id whose transaction is open.

    mq.seek("billing", "orders", to="earliest")  # penstock.Busy, while a subscription of the group is open
    """

    code = ErrorCode.NON_EMPTY_GROUP


class TransactionAborted(ApiError):
    """Nothing of the transaction counts. Its block can be run again.

    except penstock.TransactionAborted:
        ...  # run the `with mq.transaction(…)` block once more
    """

    code = ErrorCode.TRANSACTION_ABORTABLE


class Fenced(ApiError):
    """Another one with the same id has taken over, or the transaction took too long. This one can do no more.

    except penstock.Fenced:
        raise SystemExit("another process has taken over")
    """

    code = ErrorCode.PRODUCER_FENCED


class UnknownQueue(ApiError):
    """There is no queue of this name, and none is made by being asked for.

    mq.queue("jbos").send("hello")  # penstock.UnknownQueue: there is no queue 'jbos'; …
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class QueueFailed(ApiError):
    """A queue has refused; `reason` has its word for it: OverLimit, QueueAlreadyExists, …

    except penstock.QueueFailed as error:
        if error.reason == "OverLimit": ...
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None, *, reason: str = "") -> None:
        super().__init__(message, code)
        self.reason = reason


class JobLost(QueueFailed):
    """The message is not ours any more: its time was over, and somebody else has received it or finished it.

    except penstock.JobLost:
        ...  # it was done twice, or is about to be; a longer visibility helps
    """

    code = ErrorCode.INVALID_REQUEST


_LOCAL: Final = {
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
"""What librdkafka finds out by itself, as the code that Kafka has for the like."""

_KINDS: Final[dict[ErrorCode, type[ApiError]]] = {
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
"""Codes that mean the same whatever was tried; the others are failures of what was tried."""

_FENCED: Final = (
    "another producer with the same transactional id has taken over, or the transaction took longer than its "
    "timeout; give every process an id of its own, or a longer transaction_timeout_s, and start again"
)
_NEXT: Final = {
    ErrorCode.NETWORK_EXCEPTION: (
        "the brokers cannot be reached; see that one runs (`penstock serve`) and that the address is right"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is no such topic or partition; `penstock topic list` shows what there is, "
        "`penstock topic create` makes one"
    ),
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.FENCED_INSTANCE_ID: "another member with the same group.instance.id has taken over; give each its own",
    ErrorCode.SASL_AUTHENTICATION_FAILED: (
        "the broker did not accept who this is; check security.protocol and the sasl.* and ssl.* options"
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        "the group has members; close its subscriptions first (`penstock group describe` names them)"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "an earlier transaction of this id is being ended; try again in a moment",
    ErrorCode.TRANSACTION_ABORTABLE: "nothing of the transaction counts; run its block again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "the broker does not allow so long a transaction; give a shorter transaction_timeout_s"
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "no answer in time, and whether it was done is not known; try again, or give a longer timeout_s"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker does not allow so short or so long a session (group.min.session.timeout.ms, 6 s if nobody has "
        "changed it); give a processing_timeout_s above that, or another 'session.timeout.ms' in options"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's other members assign partitions in another way; give this one the same "
        "'partition.assignment.strategy' in options"
    ),
}


def code_of(error: KafkaError) -> ErrorCode:
    """Kafka's code for an error of librdkafka.

    >>> code_of(KafkaError(KafkaError._MSG_TIMED_OUT)).name
    'REQUEST_TIMED_OUT'
    """
    number = error.code()
    return _LOCAL[number] if number in _LOCAL else error_code(number)


def kafka_error(error: KafkaException) -> KafkaError:
    """What an exception of confluent-kafka carries."""
    found: KafkaError = error.args[0]
    return found


def explain(error: KafkaError, doing: str, otherwise: type[ApiError], servers: str = "") -> ApiError:
    """The error to raise for one of librdkafka. With servers given, a timeout is told from nobody being there.

    >>> explain(KafkaError(3), "publishing to topic 'orders'", PublishFailed).code.name
    'UNKNOWN_TOPIC_OR_PARTITION'
    """
    code = code_of(error)
    if servers and code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION):
        reason = why_unreachable(servers)
        if reason:
            return NotConnected(f"{doing}: {nobody_at(servers, reason)}")
    if code in _NEXT:
        message = f"{doing}: {_NEXT[code]} ({code.name})"
    elif error.code() < 0:
        message = f"{doing}: {error.str()}"
    else:
        message = str(refusal(error.code(), doing))
    return _KINDS.get(code, otherwise)(message, code)


@contextmanager
def aside(error: BaseException | None) -> Iterator[None]:
    """On the way out of a block: what goes wrong here does not take the place of what went wrong there.

    Else a Ctrl-C in the block could leave it as an error that is caught, and tried again.
    """
    try:
        yield
    except ApiError as failure:
        if error is None:
            raise
        error.add_note(f"on the way out: {failure}")


def nobody_at(servers: str, reason: str) -> str:
    return f"no broker answers at {servers} ({reason}); start one with `penstock serve`, or correct the address"


def why_unreachable(servers: str) -> str | None:
    """Why none of the addresses can be reached; None if one can."""
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
    """The first of the addresses that answers a Kafka request with HTTP; None if none does."""
    for address in parse_bootstrap(servers):
        with suppress(OSError), socket.create_connection(address, PROBE_S) as probe:
            probe.settimeout(PROBE_S)
            probe.sendall(_PROBE)
            if probe.recv(4) == b"HTTP":
                return str(address)
    return None
