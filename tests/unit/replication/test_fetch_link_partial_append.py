"""A follower that can append only the first batches of a response flushes those, and fetches the others again."""

from penstock.log.memory import MemoryDisk
from penstock.replication.fetch_link import BACKOFF_MIN_MS, FetchLink
from penstock.replication.partition import Partition

from ..log.builders import NOW_MS, FullDisk, batch, open_at, values_in
from .test_fetch_link_throttle import NODE, answer, asked, follower

BOTH_BATCHES = bytes(batch(b"one") + batch(b"two", base_offset=1))


def test_batches_before_an_error_are_flushed_and_the_partition_is_fetched_again() -> None:
    disk = FullDisk(MemoryDisk())
    one = follower(log=open_at(disk, flush="group"))
    flushes: list[Partition] = []
    one.on_append = flushes.append
    link = FetchLink(NODE, uses_sessions=False)
    link.put(one)
    assert asked(link, NOW_MS) == {0: link.fetch_bytes}

    disk.free_bytes = len(BOTH_BATCHES) * 3 // 4
    link.apply(answer(0, BOTH_BATCHES), NOW_MS)
    assert values_in(one.log) == [b"one"]
    assert flushes == [one]
    assert not one.is_durable

    one.log.sync()
    disk.free_bytes = 1 << 20
    now_ms = NOW_MS + BACKOFF_MIN_MS
    assert asked(link, now_ms) == {0: link.fetch_bytes}
    link.apply(answer(0, bytes(batch(b"two", base_offset=1))), now_ms)
    assert values_in(one.log) == [b"one", b"two"]
