"""The library `gssapi`, which is optional: loaded when Kerberos is first used; texts of its errors."""

from typing import Any

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.kerberos_settings import GSSAPI


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
    """Returns the text of a GSSError: that of the mechanism, such as "Clock skew too great", if it has one."""
    texts = [text.strip() for text in error.get_all_statuses(error.min_code, False)] if error.min_code else []
    told = [text for text in texts if text and text != "Success" and not text.startswith("Unknown")]
    return ": ".join(dict.fromkeys(told or error.get_all_statuses(error.maj_code, True)))
