"""Errors of a schema registry, with the advice what to do next."""

from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
LEVEL_NOT_CONFIGURED: Final = 40408
MODE_NOT_CONFIGURED: Final = 40409
INCOMPATIBLE: Final = 409
TOO_LARGE: Final = 422
"""Error code of a result that is too large, and of a malformed request."""
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
STORE_FAILED: Final = 50001

URL_ADVICE: Final = "check the registry's URL: that of a Penstock broker ends in /registry"
_ADVICE: Final = {
    401: "give user and password in the registry's URL: http://USER:PASSWORD@HOST:PORT",
    403: "ask for the right to do this",
    404: URL_ADVICE,
    SUBJECT_NOT_FOUND: "`penstock schema list --deleted` lists the subjects, also soft-deleted ones",
    VERSION_NOT_FOUND: "`penstock schema versions SUBJECT --deleted` lists the versions, also soft-deleted ones",
    SCHEMA_NOT_FOUND: "`penstock schema list` lists what is registered",
    SUBJECT_SOFT_DELETED: "`penstock schema delete SUBJECT --permanent` deletes it for good",
    VERSION_SOFT_DELETED: "`penstock schema delete SUBJECT --version N --permanent` deletes it for good",
    LEVEL_NOT_CONFIGURED: "that of its context or of the whole registry applies",
    MODE_NOT_CONFIGURED: "that of its context or of the whole registry applies",
    INCOMPATIBLE: "change the schema, or the level with `penstock schema compatibility SUBJECT LEVEL`",
    REFERENCE_EXISTS: "delete the schemas that refer to it first; `penstock schema show` lists their ids",
    50002: "try again",
    50003: "try again; `penstock topic describe _schemas` shows the broker that leads the registry",
    50004: "start the brokers that have replicas of its topic; `penstock topic describe _schemas` shows them",
}
_IMPORT_ADVICE: Final = "delete the subjects first, or keep them with `penstock schema mode IMPORT --force`"
_MODE_ADVICE: Final = "`penstock schema mode` shows and changes the mode"


class RegistryError(PenstockError):
    """An error response of a schema registry.

    >>> error = RegistryError(404, 40401, "Subject 'orders' not found.")
    >>> error.reason
    "Subject 'orders' not found."
    """

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, status: int, error_code: int, message: str, advice: str | None = None) -> None:
        """`advice`: replaces that of the error code."""
        self.status = status
        """The HTTP status."""
        self.error_code = error_code
        """Confluent's error code, such as 40401; the HTTP status if the response has none."""
        self.reason = message
        """The registry's own text."""
        self.advice = _advice(error_code, message) if advice is None else advice
        """What to do next; may be empty."""
        suffix = f"; {self.advice}" if self.advice else ""
        super().__init__(f"{message.rstrip('.')}{suffix} (error {error_code})")

    def __reduce__(self) -> tuple[type["RegistryError"], tuple[int, int, str, str]]:
        return type(self), (self.status, self.error_code, self.reason, self.advice)

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500 or self.status == 429


def _advice(code: int, message: str) -> str:
    if code == NOT_PERMITTED and message.startswith("Cannot import"):
        return _IMPORT_ADVICE
    if code == NOT_PERMITTED and "mode" in message:
        return _MODE_ADVICE
    return _ADVICE.get(code, "")
