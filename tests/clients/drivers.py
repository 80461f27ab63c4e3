"""One small interface for all client libraries: each has a driver."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pytest

from penstock.foundation.codes import ErrorCode

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS: Final = time.time_ns() // 1_000_000
"""A time for messages: those of long ago would be gone with the next look of retention."""
LINGER_MS: Final = 1000
"""For a producer whose `flush` ends the wait: what is sent at once is one batch, however busy the machine is."""
Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be sent. No timestamp: the client's own."""

    key: bytes | None = None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Message(NamedTuple):
    """A message as it was read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Driver(Protocol):
    """One client library. Consuming needs no group: partitions are assigned by hand."""

    name: str
    compressions: tuple[str, ...]

    def create_topic(self, topic: str, partitions: int = 1) -> None: ...

    def produce(
        self, topic: str, messages: Sequence[Outgoing], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        """Send all of them and wait for the acknowledgement of each, from all replicas."""

    def consume(self, topic: str, start: int, count: int, partition: int = 0) -> list[Message]:
        """The next `count` messages from an offset on."""

    def consume_from_start(self, topic: str, count: int, partition: int = 0) -> list[Message]: ...

    def consume_from_time(self, topic: str, timestamp_ms: int, count: int) -> list[Message]: ...

    def consume_new(self, topic: str, count: int, when_ready: Callable[[], None]) -> list[Message]:
        """Stand at the end, call `when_ready`, and read what comes then."""

    def range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset, and the one after the last."""

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset at or after a time; None if there is none."""


class AdminDriver(Driver, Protocol):
    """A client library that can administer too. (kcat cannot.)"""

    error: type[Exception]
    """What the library raises when the broker refuses something."""

    def code_of(self, error: Exception) -> int:
        """Kafka's number of an error that the library raised."""

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def config(self, topic: str, name: str) -> tuple[str, int]:
        """A setting's value, and the number of its source in DescribeConfigs."""

    def trim(self, topic: str, before_offset: int) -> int:
        """Delete the records before an offset; the first offset that is left."""

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        """The cluster's id, its controller, and its brokers as (id, host, port)."""


@contextmanager
def refused(driver: AdminDriver, code: ErrorCode) -> Iterator[None]:
    """What happens inside is refused by the broker with this code, as the client library shows it."""
    with pytest.raises(driver.error) as caught:
        yield
    assert ErrorCode(driver.code_of(caught.value)) is code
