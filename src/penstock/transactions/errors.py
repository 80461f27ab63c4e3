"""Why the coordinator refuses something."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class InvalidProducerIdMapping(PenstockError):
    """The transactional id is not known, or belongs to another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerFenced(PenstockError):
    """Another life of the producer has taken over."""

    code = ErrorCode.PRODUCER_FENCED


class ConcurrentTransactions(PenstockError):
    """The transaction before this one is still being ended; ask again."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidTransactionState(PenstockError):
    """What is asked for cannot follow what was done."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(PenstockError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TwoPhaseCommitRefused(PenstockError):
    """What Kafka says to a producer that wants a transaction of its own making to outlive it (KIP-939)."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class UnsupportedVersion(PenstockError):
    code = ErrorCode.UNSUPPORTED_VERSION


class NeedsProducerId(PenstockError):
    """Nothing is wrong: the epochs of a producer id are used up. Ask again with an id that nobody has had."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class SetTooLarge(PenstockError):
    """More transactions than one batch of records can decide about."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class TooManyQueries(PenstockError):
    """No other query can be remembered."""

    code = ErrorCode.POLICY_VIOLATION
