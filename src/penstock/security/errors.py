"""Errors of authentication and authorization, named as in AWS."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class Refused(PenstockError):
    """Base class: the request is not authenticated or not authorized."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class MissingAuthenticationToken(Refused):
    """The request is not signed."""


class IncompleteSignature(Refused):
    """The signature is malformed."""


class InvalidClientTokenId(Refused):
    """The access key does not exist."""


class SignatureDoesNotMatch(Refused):
    """The request was signed with another secret, or changed in transit."""


class RequestExpired(Refused):
    """The request was signed too long ago, or in the future."""


class AccessDenied(Refused):
    """The key does not allow this action."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidCredentials(PenstockError):
    """A credentials file that cannot be used."""

    code = ErrorCode.INVALID_CONFIG
