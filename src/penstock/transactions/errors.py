"""Errors of the transaction coordinator, with their Kafka error codes."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class InvalidProducerIdMapping(PenstockError):
    """The transactional id does not exist, or belongs to another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerFenced(PenstockError):
    """A newer producer with the same transactional id has taken over."""

    code = ErrorCode.PRODUCER_FENCED


class ConcurrentTransactions(PenstockError):
    """The markers of the previous transaction are still being written; the client has to retry."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidTransactionState(PenstockError):
    """The request is not allowed in the current state of the transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(PenstockError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TwoPhaseCommitRefused(PenstockError):
    """Kafka's error for a producer that requests two-phase commit, which is not supported here (KIP-939)."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class UnsupportedVersion(PenstockError):
    code = ErrorCode.UNSUPPORTED_VERSION


class NeedsProducerId(PenstockError):
    """Not a failure: the producer id has no epoch left. The caller repeats the command with a new producer id."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class SetTooLarge(PenstockError):
    """A CommitSet (atomic commit of a Spark batch's transactions) has too many transactions for one record batch."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class TooManyQueries(PenstockError):
    """The coordinator stores the last committed batch of QUERIES_MAX Spark queries, and cannot store that of
    another."""

    code = ErrorCode.POLICY_VIOLATION
