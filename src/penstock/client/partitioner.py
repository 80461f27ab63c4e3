"""Partitioners compatible with Kafka's clients: murmur2, CRC32 (librdkafka's default), and sticky."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final
from zlib import crc32

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns Kafka's 32-bit MurmurHash2 as an unsigned number.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Returns the partition of a key by the Java client's default partitioner (librdkafka: `murmur2_random`)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_key_by_crc(key: bytes, partitions: int) -> int:
    """Returns the partition of a key by librdkafka's default partitioner (`consistent_random`).

    >>> partition_of_key_by_crc(b"42", 3), partition_of_key(b"42", 3)
    (2, 1)
    """
    return crc32(key) % partitions


PARTITIONERS: Final[Mapping[str, Callable[[bytes, int], int]]] = {
    "murmur2": partition_of_key,
    "consistent": partition_of_key_by_crc,
}
"""Functions that map a key to a partition, by librdkafka's names for them."""


class StickyPartitioner:
    """Chooses partitions for records without a key: the same until a batch is full, then another (KIP-480)."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._current = -1

    def choose(self, partitions: Sequence[int]) -> int:
        if self._current not in partitions:
            self.move_on(partitions)
        return self._current

    def move_on(self, partitions: Sequence[int]) -> None:
        """Switches to another partition, because the batch is full or the partition does not exist."""
        others = [number for number in partitions if number != self._current]
        self._current = self._rng.choice(others or list(partitions))
