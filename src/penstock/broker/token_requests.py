"""What the handlers of requests about delegation tokens (KIP-48) have in common: who may send them."""

from typing import Final

from penstock.broker.call import Call
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.security.certificate_principal import ANONYMOUS

NO_TIME: Final = -1
"""The timestamps in responses to requests that are refused."""


class TokenRequestNotAllowed(PenstockError):
    """The client has not authenticated, or only with a delegation token."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def check_client(call: Call) -> None:
    """Raises TokenRequestNotAllowed unless the client has authenticated itself: with a delegation token, it could
    prolong its own rights for ever."""
    if call.login is not None and call.login.has_token:
        raise TokenRequestNotAllowed("the client has logged in with a delegation token; log in with a password")
    if call.login is None and call.principal == ANONYMOUS:
        raise TokenRequestNotAllowed("the client has not authenticated; use a listener with SASL, or a certificate")


def principal_of(kind: str | None, name: str | None) -> str:
    return f"{kind or ''}:{name or ''}"


def split(principal: str) -> tuple[str, str]:
    """Returns type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
