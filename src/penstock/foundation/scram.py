"""SCRAM (RFC 5802, RFC 7677) as Kafka uses it: credentials, messages, proofs and signatures. Pure.

The server never learns a password. It keeps a StoredKey, with which it can check a client's proof, and a ServerKey,
with which it proves to the client that it knows the user. Passwords are UTF-8 text as given, without normalization.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from penstock.foundation.errors import PenstockError

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""The iterations that Kafka allows, for both mechanisms."""
SALT_BYTES: Final = 32
_NAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D|[^\x00-\x7F])+"
_NONCE: Final = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_EXTENSIONS: Final = r"(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>[^,]*)|v=(?P<signature>{_BASE64}))(?:,.*)?")


class ScramMessageInvalid(PenstockError):
    """A SCRAM message that does not have the form of RFC 5802."""


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, with their numbers in Kafka's requests."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Returns the name of the SASL mechanism.

        >>> ScramMechanism.SHA_256.sasl_name
        'SCRAM-SHA-256'
        """
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def hash_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Returns the key that is derived from a password (PBKDF2): this takes milliseconds, on purpose."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a user's password, for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_salted_password(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        client_key = mechanism.hmac(salted, b"Client Key")
        return cls(
            salt=salt,
            stored_key=mechanism.hash(client_key),
            server_key=mechanism.hmac(salted, b"Server Key"),
            iterations=iterations,
        )

    def is_of(self, mechanism: ScramMechanism, password: str) -> bool:
        """Returns whether this is the credential of a password. Takes milliseconds."""
        salted = mechanism.salted_password(password, self.salt, self.iterations)
        return hmac.compare_digest(mechanism.hash(mechanism.hmac(salted, b"Client Key")), self.stored_key)


def mechanism_of(sasl_name: str) -> ScramMechanism | None:
    """Returns the SCRAM mechanism with this SASL name; None if there is none."""
    return next((each for each in ScramMechanism if each.sasl_name == sasl_name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The first message of a client."""

    user: str
    authzid: str
    nonce: str
    header: str
    """The part about channel binding, which the client repeats in its final message."""
    bare: str
    extensions: dict[str, str]

    @classmethod
    def parse(cls, data: bytes) -> "ClientFirst":
        """Raises ScramMessageInvalid."""
        found = _match(_CLIENT_FIRST, data, "first message of the client")
        text = found.string
        return cls(
            user=_unescaped(found["user"]),
            authzid=_unescaped(found["authzid"] or ""),
            nonce=found["nonce"],
            header=found["header"],
            bare=text[len(found["header"]) :],
            extensions=dict(_pair(part) for part in found["extensions"].split(",")[1:]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    """The first message of a server."""

    nonce: str
    salt: bytes
    iterations: int
    text: str

    @classmethod
    def parse(cls, data: bytes) -> "ServerFirst":
        """Raises ScramMessageInvalid."""
        found = _match(_SERVER_FIRST, data, "first message of the server")
        return cls(
            nonce=found["nonce"],
            salt=b64decode(found["salt"]),
            iterations=int(found["iterations"]),
            text=found.string,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    """The final message of a client, with the proof that it knows the password."""

    binding: str
    nonce: str
    proof: bytes
    unproved: str
    """The message without its proof."""

    @classmethod
    def parse(cls, data: bytes) -> "ClientFinal":
        """Raises ScramMessageInvalid."""
        found = _match(_CLIENT_FINAL, data, "final message of the client")
        return cls(
            binding=b64decode(found["binding"]).decode("latin-1"),
            nonce=found["nonce"],
            proof=b64decode(found["proof"]),
            unproved=found["unproved"],
        )


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={b64encode(salt).decode()},i={iterations}"


def server_signature_of(data: bytes) -> bytes:
    """Returns the signature in the final message of a server. Raises ScramMessageInvalid if it has none."""
    found = _match(_SERVER_FINAL, data, "final message of the server")
    if found["error"] is not None:
        raise ScramMessageInvalid(f"the server refused the proof: {found['error']}")
    return b64decode(found["signature"])


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    client_key = mechanism.hmac(salted, b"Client Key")
    signature = mechanism.hmac(mechanism.hash(client_key), auth_message)
    return _xor(client_key, signature)


def is_proof(mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes) -> bool:
    """Returns whether a proof shows that the client knows the password. Takes the same time for all proofs."""
    if len(proof) != mechanism.hash_bytes:
        return False
    client_key = _xor(proof, mechanism.hmac(credential.stored_key, auth_message))
    return hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)


def escaped(name: str) -> str:
    """Returns a user name in the form of SCRAM messages.

    >>> escaped("a=b,c")
    'a=3Db=2Cc'
    """
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name, value


def _match(pattern: re.Pattern[str], data: bytes, what: str) -> re.Match[str]:
    try:
        found = pattern.fullmatch(data.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ScramMessageInvalid(f"the {what} does not have the form of SCRAM")
    return found
