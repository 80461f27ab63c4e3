"""The setting with the key that encrypts the secrets of access keys in the store. Pure."""

from base64 import b64decode, b64encode
from binascii import Error as InvalidBase64
from collections.abc import Mapping
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Kind, Setting

SQS_SECRET_KEY: Final = "sqs.secret.key"
KEY_BYTES: Final = 32
ADVICE: Final = f"`penstock security key FILE` makes one, for {SQS_SECRET_KEY}=${{file:FILE}} on all brokers"

ACCESS_KEY_SETTINGS: Final = (
    Setting(
        name=SQS_SECRET_KEY,
        kind=Kind.PASSWORD,
        default="",
        doc="The key that encrypts the secrets of access keys in the metadata store: 32 random bytes in base64, the "
        "same on all brokers; `penstock security key` makes one. With it, requests for queues and schemas must be "
        "signed, as with --credentials. Empty: no access keys can be created.",
    ),
)


def read_secret_key(values: Mapping[str, str]) -> bytes | None:
    """Returns the key in the broker settings; None if there is none. Raises InvalidConfig, without the key."""
    text = values.get(SQS_SECRET_KEY, "").strip()
    if not text:
        return None
    try:
        key = b64decode(text, validate=True)
    except (InvalidBase64, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidConfig(f"{SQS_SECRET_KEY} is not {KEY_BYTES} bytes in base64; {ADVICE}")
    return key


def secret_key_text(key: bytes) -> str:
    """Returns a key as the value of the setting."""
    return b64encode(key).decode()
