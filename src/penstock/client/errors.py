"""What can go wrong between a client and a cluster, and what to do about it."""

from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class ConnectionFailed(PenstockError):
    """No broker could be reached: nothing was asked of it."""

    code = ErrorCode.NETWORK_EXCEPTION


class ConnectionLost(ConnectionFailed):
    """The connection went after the request and before the answer: whether it was done is not known."""


class RequestTimedOut(ConnectionLost):
    """No answer in time. The connection is closed, since later answers would wait behind this one."""

    code = ErrorCode.REQUEST_TIMED_OUT


class UnsupportedByBroker(PenstockError):
    """The broker does not serve an API that is needed, or no version of it that we know."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ServerError(PenstockError):
    """The cluster refused: its error code, and what was refused and why.

    >>> ServerError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'orders' exists already").code.name
    'TOPIC_ALREADY_EXISTS'
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        # Every other error has one code for its class; this one stands for all that a server can say.
        self.code = code  # type: ignore[misc]


STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""What is known of the cluster is out of date: look again, then try again."""

TRANSIENT: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,  # whoever asks looks for the coordinator each time
        ErrorCode.CONCURRENT_TRANSACTIONS,  # the one before is just being ended
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The same request may succeed a little later."""

_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist; `penstock topic list` shows what does",
    ErrorCode.UNKNOWN_TOPIC_ID: "it was deleted, perhaps made again under the same name; look the topic up again",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader now; start the brokers that hold its replicas",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "its leader keeps moving; try again when the cluster is calm",
    ErrorCode.OFFSET_OUT_OF_RANGE: "it does not hold that offset; `penstock topic describe` shows the range",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is too large; send less at a time, or raise max.message.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not allowed; use letters, digits, '.', '_' and '-'",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already; choose another name",
    ErrorCode.POLICY_VIOLATION: "a policy forbids it; see the topic's settings with `penstock topic describe`",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync; start brokers, or lower min.insync.replicas",
    ErrorCode.KAFKA_STORAGE_ERROR: "its log is offline; the broker's own log says why, `penstock log inspect` where",
    ErrorCode.REQUEST_TIMED_OUT: "the brokers took too long; try again",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not take that compression; choose another",
    ErrorCode.INVALID_TIMESTAMP: "the timestamp is too far from the broker's clock; correct it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "access is denied; ask for the right to use it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "access is denied; ask for the right to do it",
}


def error_code(code: int) -> ErrorCode:
    """The code by its number; a number that is newer than we are is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(code: int, what: str, said: str | None = None) -> ServerError:
    """The error for a code in an answer about `what`. The server's own words are used where it has some."""
    known = error_code(code)
    name = known.name if known == code else f"error {code}"
    return ServerError(known, said or f"{what}: {_ADVICE.get(known, 'the broker refused')} ({name})")


def check(code: int, what: str, said: str | None = None) -> None:
    """Raise ServerError unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise refusal(code, what, said)
