"""Errors of authentication and authorization, named as in AWS."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


class Refused(PenstockError):
    """Base class of errors for requests that are not authenticated or not authorized."""

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
    """The caller may not perform this action, or not on this queue."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def __init__(self, message: str, *, operation: str = "", topic: str = "") -> None:
        """`operation` and `topic`: what no ACL allows; empty if access keys or policies refuse the request."""
        super().__init__(message)
        self.operation = operation
        self.topic = topic


class LoginFailed(PenstockError):
    """A SASL login that failed. The client gets the message; `reason` is for the log of the broker."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED

    def __init__(self, message: str, reason: str, challenge: bytes = b"") -> None:
        """`challenge`: what the client must answer before it is told that the login has failed; if any."""
        super().__init__(message)
        self.reason = reason
        self.challenge = challenge


class TokensNotChecked(LoginFailed):
    """No token can be checked at the moment. Clients try again, as they would not after another failed login."""

    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self) -> None:
        super().__init__("The broker cannot read the keys of the issuer of tokens; try again", "no keys are known")


class PrincipalRefused(PenstockError):
    """A Kerberos principal that is not a user: it is malformed, or no rule applies to it."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class InvalidCredentials(PenstockError):
    """The credentials file is invalid or cannot be read."""

    code = ErrorCode.INVALID_CONFIG
