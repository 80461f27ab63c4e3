"""Errors of the transaction coordinator, with their Kafka error codes."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class InvalidProducerIdMapping(PenstockError):
    """The transactional id is unknown, or belongs to another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerFenced(PenstockError):
    """A newer producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED


class ConcurrentTransactions(PenstockError):
    """The previous transaction is still being ended; retry."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidTransactionState(PenstockError):
    """The request is not allowed in the current state of the transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(PenstockError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TwoPhaseCommitRefused(PenstockError):
    """Kafka's error for a producer that wants two-phase commit, which is not supported here (KIP-939)."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class UnsupportedVersion(PenstockError):
    code = ErrorCode.UNSUPPORTED_VERSION


class NeedsProducerId(PenstockError):
    """Not a failure: the epochs of a producer id are used up. Repeat the command with a new producer id."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class SetTooLarge(PenstockError):
    """A CommitSet with more transactions than one record batch can hold."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class TooManyQueries(PenstockError):
    """The limit of remembered Spark queries is reached."""

    code = ErrorCode.POLICY_VIOLATION
