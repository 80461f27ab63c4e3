"""The setting with the keys that encrypt the secrets of access keys in the store. Pure."""

from base64 import b64decode, b64encode
from binascii import Error as InvalidBase64
from collections.abc import Mapping
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Kind, Setting

SQS_SECRET_KEY: Final = "sqs.secret.key"
KEY_BYTES: Final = 32
SECRET_KEYS_MAX: Final = 5
ADVICE: Final = f"`penstock security key FILE` makes one, for {SQS_SECRET_KEY}=${{file:FILE}} on all brokers"

ACCESS_KEY_SETTINGS: Final = (
    Setting(
        name=SQS_SECRET_KEY,
        kind=Kind.PASSWORD,
        default="",
        doc="The key that encrypts the secrets of access keys in the metadata store: 32 random bytes in base64, the "
        "same on all brokers; `penstock security key` makes one. With it, requests for queues and schemas must be "
        "signed, as with --credentials. Empty: no access keys can be created. Several, with commas: the first one "
        "encrypts, the others only decrypt, until `penstock user access-key reencrypt`.",
    ),
)


def read_secret_keys(values: Mapping[str, str]) -> tuple[bytes, ...]:
    """Returns the keys in the broker settings. Raises InvalidConfig, without the keys."""
    text = values.get(SQS_SECRET_KEY, "").strip()
    if not text:
        return ()
    keys = tuple(_read(each.strip()) for each in text.split(","))
    if len(keys) > SECRET_KEYS_MAX:
        raise InvalidConfig(f"{SQS_SECRET_KEY} has {len(keys)} keys, at most {SECRET_KEYS_MAX} are allowed")
    return keys


def _read(text: str) -> bytes:
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
