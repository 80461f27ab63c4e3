"""The library `gssapi`, which is optional: loaded when Kerberos is first used; texts of its errors."""

from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.kerberos_settings import GSSAPI

UNSPECIFIED: Final = 13 << 16
"""GSS_S_FAILURE: the code of the mechanism tells what has failed."""


def load_gssapi() -> Any:
    """Returns the module `gssapi`. Raises InvalidConfig if it is not installed."""
    try:
        import gssapi
    except ImportError as error:
        raise InvalidConfig(
            f"{GSSAPI} needs the Python package gssapi ({error}); install MIT Kerberos (on Debian: libkrb5-dev and "
            "gcc), and run: pip install 'penstock[kerberos]'"
        ) from error
    return gssapi


def reason_of(error: Any) -> str:
    """Returns the text of a GSSError, such as "Clock skew too great"."""
    texts: list[str] = []
    if error.maj_code & (0xFFFF << 16) != UNSPECIFIED or not error.min_code:
        texts += error.get_all_statuses(error.maj_code, True)
    if error.min_code:
        texts += error.get_all_statuses(error.min_code, False)
    return ": ".join(dict.fromkeys(text.strip() for text in texts))
