"""MD5 digests of message bodies and attributes, by which SDKs detect corruption (MD5OfMessageBody).

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html#sqs-attributes-md5-message-digest-calculation
"""

from collections.abc import Iterable
from hashlib import md5
from struct import Struct
from typing import Final, NamedTuple

_LENGTH: Final = Struct(">I").pack
_STRING: Final = b"\x01"
_BINARY: Final = b"\x02"


class Attribute(NamedTuple):
    """One message attribute: its name, its type with an optional custom label, its value in bytes."""

    name: str
    type: str
    value: bytes

    @property
    def is_binary(self) -> bool:
        return self.type.startswith("Binary")

    @property
    def size(self) -> int:
        """The attribute's contribution to the message size, in bytes."""
        return len(self.name.encode()) + len(self.type.encode()) + len(self.value)


def md5_of_body(body: bytes) -> str:
    """Returns the MD5 digest of a message body as hexadecimal text.

    >>> md5_of_body(b"hello")
    '5d41402abc4b2a76b9719d911017c592'
    """
    return md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Iterable[Attribute]) -> str:
    """Returns the MD5 digest over name, type, transport type and value of each attribute, sorted by name."""
    found = md5(usedforsecurity=False)
    for attribute in sorted(attributes):
        name, kind = attribute.name.encode(), attribute.type.encode()
        found.update(_LENGTH(len(name)) + name + _LENGTH(len(kind)) + kind)
        found.update(_BINARY if attribute.is_binary else _STRING)
        found.update(_LENGTH(len(attribute.value)) + attribute.value)
    return found.hexdigest()
