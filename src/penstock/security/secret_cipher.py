"""Encrypts the secrets of access keys in the store: AES-GCM, bound to the access key and its user."""

import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

from penstock.foundation.access_key_settings import SQS_SECRET_KEY
from penstock.foundation.errors import InvalidConfig

NONCE_BYTES: Final = 12
_FINGERPRINT_BYTES: Final = 8
_LABEL: Final = b"penstock access keys"


class SecretCipher:
    """Encrypts and decrypts secrets with one key."""

    def __init__(self, key: bytes) -> None:
        """Raises InvalidConfig if the package `cryptography` is not installed."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            raise InvalidConfig(
                f"{SQS_SECRET_KEY} needs {error.name}, which is not installed; run: pip install 'penstock[security]'"
            ) from error
        self._gcm = AESGCM(key)
        self._invalid_tag = InvalidTag
        self.fingerprint: Final = hmac.digest(key, _LABEL, "sha256")[:_FINGERPRINT_BYTES].hex()
        """Tells keys apart, and nothing about them."""

    def encrypt(self, secret: str, access_key: str, user: str) -> str:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return b64encode(nonce + self._gcm.encrypt(nonce, secret.encode(), _associated(access_key, user))).decode()

    def decrypt(self, text: str, access_key: str, user: str) -> str | None:
        """Returns the secret; None if it was encrypted with another key, or for another access key or user."""
        try:
            sealed = b64decode(text, validate=True)
            return self._gcm.decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _associated(access_key, user)
            ).decode()
        except (self._invalid_tag, ValueError):
            return None


def _associated(access_key: str, user: str) -> bytes:
    return f"{access_key}/{user}".encode("utf-8", "surrogatepass")
