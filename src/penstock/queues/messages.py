"""Message ids, receipt handles, and the record headers that Penstock uses itself."""

import struct
from binascii import Error, a2b_base64, b2a_base64
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.queues.errors import InvalidReceipt
from penstock.queues.records import KEY_ERRORS

OWN_PREFIX: Final = "penstock-"
"""Prefix of Penstock's own record headers, which are not shown as message attributes."""
ATTRIBUTE_TYPES: Final = "penstock-attribute-types"
DEDUPLICATION_ID: Final = "penstock-deduplication-id"
DELAY_MS: Final = "penstock-delay-ms"
MESSAGE_ID: Final = "penstock-message-id"
SOURCE_ARN: Final = "penstock-source-arn"
RECEIVE_COUNT: Final = "penstock-receive-count"
SENT_AT: Final = "penstock-sent-at"
SENDER: Final = "penstock-sender"
TRACE: Final = "penstock-trace"

GROUP_BYTES_MAX: Final = 1024
RECEIPT_VERSION: Final = 1
_RECEIPT: Final = struct.Struct(">B16siq")  # version, topic id, partition, offset; the rest is the holder
_ID_FIELDS: Final = struct.Struct(">16siq")
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


def message_id(topic_id: bytes, partition: int, offset: int) -> str:
    """Returns the id of the message at an offset: a UUID that is derived from topic, partition and offset.

    >>> message_id(bytes(16), 0, 0) == message_id(bytes(16), 0, 0) != message_id(bytes(16), 0, 1)
    True
    """
    text = blake2b(_ID_FIELDS.pack(topic_id, partition, offset), digest_size=16).hexdigest()
    # Version 8 is for custom ids (RFC 9562).
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{'89ab'[int(text[16], 16) & 3]}{text[17:20]}-{text[20:]}"


def message_group(key: bytes | None) -> str:
    """Returns the message group of a record in a FIFO queue: the record's key. Records without a key share one group.

    >>> message_group(b"customer-7"), message_group(None)
    ('customer-7', '')
    """
    if not key:
        return ""
    if len(key) > GROUP_BYTES_MAX:  # SQS allows 128 characters; keys of Kafka records have no limit
        key = key[: GROUP_BYTES_MAX - 32] + blake2b(key, digest_size=16).hexdigest().encode()
    return key.decode(errors=KEY_ERRORS)


class Receipt(NamedTuple):
    """Identifies one delivery of one message, as encoded in an SQS receipt handle."""

    topic_id: bytes
    partition: int
    offset: int
    holder: str

    def to_handle(self) -> str:
        data = _RECEIPT.pack(RECEIPT_VERSION, self.topic_id, self.partition, self.offset) + self.holder.encode()
        return _for_urls(data).decode()

    @classmethod
    def of(cls, handle: str) -> "Receipt":
        """Parses a receipt handle. Raises InvalidReceipt."""
        try:
            text = handle.encode("ascii")
            data = a2b_base64(text.translate(_FROM_URL))
            version, topic_id, partition, offset = _RECEIPT.unpack_from(data)
            holder = data[_RECEIPT.size :].decode()
        except (Error, struct.error, UnicodeError) as error:
            raise InvalidReceipt(f"receipt handle {handle[:40]!r} cannot be parsed; pass it unchanged") from error
        # Base64 has several encodings of the same bytes, and Python skips invalid characters: accept only our own.
        if version != RECEIPT_VERSION or partition < 0 or offset < 0 or not holder or _for_urls(data) != text:
            raise InvalidReceipt(f"receipt handle {handle[:40]!r} was not issued here; pass it unchanged")
        return cls(topic_id, partition, offset, holder)


def _for_urls(data: bytes) -> bytes:
    """Same as base64.urlsafe_b64encode, in half the time: it runs for every message received."""
    return b2a_base64(data, newline=False).translate(_TO_URL)
