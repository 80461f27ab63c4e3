"""Who may use the registry: HTTP Basic authentication with access keys, and their rights on subjects."""

import hmac
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from penstock.schemas.registry.errors import RegistryError
from penstock.schemas.registry.subjects import Subject
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.credentials import AccessKey, Keys

READ: Final = "Read"
"""Read schemas and settings, look schemas up, and check their compatibility."""
WRITE: Final = "Write"
"""Register schemas."""
ADMIN: Final = "Admin"
"""Delete schemas, and change settings."""
CHALLENGE: Final = b'WWW-Authenticate: Basic realm="schema registry"\r\n'
_ACTION: Final = "schema:{}"
_SCHEME: Final = b"basic "
_NO_KEY: Final = AccessKey(access_key="", secret="there is no such key")


class Unauthorized(RegistryError):
    """User or password is missing or wrong."""

    error_code = int(HTTPStatus.UNAUTHORIZED)

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class Forbidden(RegistryError):
    """The user may not do this."""

    error_code = 40301


class Access:
    """The rights of one request."""

    def __init__(self, key: AccessKey | None) -> None:
        """`key`: None if all requests are allowed."""
        self._key = key

    def check(self, right: str, subject: str) -> None:
        """Raises Forbidden if the request may not do this with a subject or context; "": with the whole registry."""
        if not self.may(right, subject):
            what = f"Subject: {subject}" if subject else "the registry"
            raise Forbidden(f"User is denied operation {right} on {what}")

    def may(self, right: str, subject: str) -> bool:
        key = self._key
        if key is None:
            return True
        if not key.may(_ACTION.format(right)):
            return False
        # A client that reads one subject needs the settings of its context, and finds schemas in it by their ids.
        is_shared = right == READ and not Subject.parse(subject).name
        return is_shared or key.may_use_subject(subject)

    def check_any(self, right: str) -> None:
        """Raises Forbidden if the request has a right on no subject at all."""
        if self._key is not None and not self._key.may(_ACTION.format(right)):
            raise Forbidden(f"User is denied operation {right}")


class Authenticator:
    """Finds the access key that a request was sent with."""

    def __init__(self, credentials: Callable[[], Keys | None]) -> None:
        self._credentials = credentials
        self.failures = 0
        """Number of requests so far whose user or password was missing or wrong."""

    def key_name(self, headers: Mapping[bytes, bytes]) -> str:
        """Returns the access key in the header `Authorization`; "" if requests need none. Raises Unauthorized."""
        credentials = self._credentials()
        if credentials is None:
            return ""
        name, secret = _read(headers.get(b"authorization", b""))
        key = credentials.find(name) or _NO_KEY
        is_right = hmac.compare_digest(key.secret.encode(), secret)  # takes as long for a name that does not exist
        if not is_right or key is _NO_KEY:
            self.failures += 1
            raise Unauthorized
        return name

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "penstock_registry_authentication_failures",
            "Requests to the registry whose user or password was missing or wrong",
            value=self.failures,
        )

    def principal(self, key_name: str) -> str:
        """Returns whose request it is that was sent with an access key."""
        credentials = self._credentials()
        key = None if credentials is None else credentials.find(key_name)
        return f"User:{key_name}" if key is None and key_name else ANONYMOUS if key is None else key.principal

    def access(self, key_name: str) -> Access:
        """Returns the rights of an access key. Raises Unauthorized if it does not exist, or not any more."""
        credentials = self._credentials()
        if credentials is None:
            return Access(None)
        key = credentials.find(key_name)
        if key is None:
            raise Unauthorized
        return Access(key)


def claimed_key(headers: Mapping[bytes, bytes]) -> str:
    """Returns the access key that a request names, right or wrong; "" if it names none."""
    return _read(headers.get(b"authorization", b""))[0]


def _read(header: bytes) -> tuple[str, bytes]:
    """Returns user and password of a header; empty if it is none of HTTP Basic."""
    if header[: len(_SCHEME)].lower() != _SCHEME:
        return "", b""
    try:
        user, _, password = b64decode(header[len(_SCHEME) :].strip(), validate=True).partition(b":")
    except InvalidBase64:
        return "", b""
    return user.decode("latin-1"), password
