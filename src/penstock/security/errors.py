"""Why a request is refused, by AWS's names for it."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class Refused(PenstockError):
    """Base: the request is not carried out, whatever it asks for."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class MissingAuthenticationToken(Refused):
    """It is not signed at all."""


class IncompleteSignature(Refused):
    """It is signed, and the signature cannot be read."""


class InvalidClientTokenId(Refused):
    """Nobody has this access key."""


class SignatureDoesNotMatch(Refused):
    """It was signed with another secret, or changed on its way."""


class RequestExpired(Refused):
    """It was signed too long ago, or too far in the future."""


class AccessDenied(Refused):
    """Who signed it may not do this."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidCredentials(PenstockError):
    """A file of credentials that cannot be used."""

    code = ErrorCode.INVALID_CONFIG
