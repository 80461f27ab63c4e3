"""Checks the tokens that clients log in with by OAUTHBEARER: JSON Web Tokens (JWT) of one issuer."""

from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt.exceptions import PyJWTError

from penstock.foundation.oauth_settings import TokenRules
from penstock.security.errors import LoginFailed
from penstock.security.issuer_keys import IssuerKeys

TOKEN_CHARS_MAX: Final = 64 << 10
NAME_CHARS_MAX: Final = 1024
KEY_ID_CHARS_MAX: Final = 1024
_REASON_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedToken:
    """What a token proves."""

    user: str
    expires_s: float
    """The end of its lifetime, in seconds since the epoch."""


class BearerTokens:
    """Checks tokens by the rules of a listener."""

    def __init__(self, rules: TokenRules, keys: IssuerKeys) -> None:
        self._rules = rules
        self._keys = keys

    async def check(self, token: str) -> CheckedToken:
        """Returns what a token proves. Raises LoginFailed if it proves nothing."""
        if len(token) > TOKEN_CHARS_MAX:
            raise _invalid(f"the token has more than {TOKEN_CHARS_MAX:,} characters")
        algorithm, key_id = self._header(token)
        key = await self._keys.find(key_id, algorithm)
        rules = self._rules
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=rules.audiences,
                issuer=rules.issuer,
                leeway=rules.skew_s,
                options={"require": ["exp", "iat", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except (PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise _invalid(str(error)) from error
        return CheckedToken(user=self._user(claims), expires_s=float(claims["exp"]))

    def _header(self, token: str) -> tuple[str, str | None]:
        """Returns the algorithm and the id of the key that a token names, unproven."""
        try:
            header = jwt.get_unverified_header(token)
        except (PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _invalid(str(error)) from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            raise _invalid("its algorithm is not allowed")
        if "crit" in header:
            raise _invalid("it has critical extensions, of which none is known")
        if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= KEY_ID_CHARS_MAX):
            raise _invalid("the id of its key is not valid")
        return algorithm, key_id

    def _user(self, claims: dict[str, Any]) -> str:
        name = claims.get(self._rules.subject_claim)
        if not isinstance(name, str) or not name.strip() or len(name) > NAME_CHARS_MAX:
            raise _invalid(f"its claim {self._rules.subject_claim} is not the name of a user")
        return name


def _invalid(reason: str) -> LoginFailed:
    return LoginFailed("the token is not valid", reason[:_REASON_CHARS])
