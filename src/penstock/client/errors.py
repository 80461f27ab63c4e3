"""Client errors: lost connections, timeouts, and Kafka error codes with advice and retry classes."""

import os
import socket
import ssl
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class ConnectionFailed(PenstockError):
    """No broker could be reached; the request was not sent."""

    code = ErrorCode.NETWORK_EXCEPTION


class ConnectionLost(ConnectionFailed):
    """The connection was lost after the request was sent: the broker may or may not have carried it out."""


class RequestTimedOut(ConnectionLost):
    """No response within the timeout. The connection is closed, since later responses would wait behind this one."""

    code = ErrorCode.REQUEST_TIMED_OUT


class LoginRefused(PenstockError):
    """The broker refused the user, the password or the mechanism. Trying again does not help."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedByBroker(PenstockError):
    """The broker does not support a required API, or supports no version of it that this client knows."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ServerError(PenstockError):
    """An error response of the cluster: its error code, and a message that says what was refused and why.

    >>> ServerError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'orders' exists already").code.name
    'TOPIC_ALREADY_EXISTS'
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        # Other errors have one code per class; this one has the code of the response.
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
"""Error codes which mean that the cached metadata is out of date: refresh it, then retry."""

TRANSIENT: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,  # callers look up the coordinator before each attempt
        ErrorCode.CONCURRENT_TRANSACTIONS,  # the previous transaction is being ended
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Error codes after which the same request may succeed later."""

_ADVICE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist; `penstock topic list` lists the topics",
    ErrorCode.UNKNOWN_TOPIC_ID: "it was deleted, and perhaps created again under the same name; look it up again",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader now; start the brokers that hold its replicas",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "its leader keeps changing; try again when the cluster is stable",
    ErrorCode.OFFSET_OUT_OF_RANGE: "it does not hold that offset; `penstock topic describe` shows the range",
    ErrorCode.MESSAGE_TOO_LARGE: "the message is too large; send less at a time, or raise max.message.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is not allowed; use letters, digits, '.', '_' and '-'",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already; choose another name",
    ErrorCode.POLICY_VIOLATION: "a policy forbids it; see the topic's settings with `penstock topic describe`",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync; start brokers, or lower min.insync.replicas",
    ErrorCode.KAFKA_STORAGE_ERROR: "its log is offline; see the broker's log, and run `penstock log inspect`",
    ErrorCode.REQUEST_TIMED_OUT: "the brokers took too long; try again",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not support that compression; choose another",
    ErrorCode.INVALID_TIMESTAMP: "the timestamp is too far from the broker's clock; correct it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "access is denied; ask for the right to use it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "access is denied; ask for the right to do it",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "they are disabled; set delegation.token.secret.key on all brokers",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "it does not exist; `penstock token list` lists the tokens",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may change it; log in as one of them",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in with a password or a certificate, not with a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "access is denied; ask for the right to create tokens of others",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "it has expired; create another one",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers must be users; write them as User:NAME",
}


def error_code(code: int) -> ErrorCode:
    """Returns the ErrorCode with this number; UNKNOWN_SERVER_ERROR if this version does not know the number."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(code: int, what: str, said: str | None = None) -> ServerError:
    """Returns the ServerError for a response code. Its message is `said`, if given. Otherwise it consists of
    `what` (the failed resource or request, such as `topic 'orders'`), advice, and the name of the code."""
    known = error_code(code)
    name = known.name if known == code else f"error {code}"
    return ServerError(known, said or f"{what}: {_ADVICE.get(known, 'the broker refused')} ({name})")


def check(code: int, what: str, said: str | None = None) -> None:
    """Raises ServerError unless the code is NONE. `said`: the error message of the response, if any. `what`: the
    failed resource or request, such as `topic 'orders'`; part of the message if `said` is empty."""
    if code != ErrorCode.NONE:
        raise refusal(code, what, said)


def os_reason(error: OSError) -> str:
    """Returns the reason of a network error in words, for example `connection refused`."""
    if isinstance(error, socket.gaierror | ssl.SSLError) or not error.errno:
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()
