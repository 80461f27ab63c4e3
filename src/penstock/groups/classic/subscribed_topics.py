"""Which topics the members of a classic group read, as far as the coordinator understands what they say."""

from collections.abc import Iterable
from typing import Final

from penstock.foundation.errors import MalformedRequest
from penstock.wire.codec import decode
from penstock.wire.schema import Array, String, record
from penstock.wire.state import kind_of

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members are consumers of topics, and say so in a layout of Kafka's."""
_AFTER_VERSION: Final = 2


@record(versions="0", flexible="none")
class Subscription:
    """How the metadata of a consumer begins, in whatever version it is written."""

    topics: Array[String]


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that any of these consumers is subscribed to; None if one of them cannot be understood."""
    found: set[str] = set()
    try:
        for written in metadata:
            kind_of(written)  # the version: whatever it is, version 0 is a prefix of it
            found.update(decode(Subscription, 0, written, _AFTER_VERSION).topics)
    except MalformedRequest:
        return None
    return frozenset(found)
