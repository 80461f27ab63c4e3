"""Internal topics: what a client sends to them, and what stands in them, must not hold up the event loop."""

from collections.abc import Callable

from penstock.foundation.codes import ErrorCode
from penstock.groups.offsets.committed import Committed
from penstock.records.build import Record, build_batch, build_pairs
from penstock.records.compression import Codec
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.restore_state import RestoreStateRequest, StateEntry
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.raw_members import find_coordinator
from tests.clients.waiting import wait_until
from tests.damaged_internal_topics import NOW_MS, OFFSETS, append_to_logs

from .probe import LOOP_CPU_MAX_S, Probe, histograms_of, worst_of

GROUP = "a"


def test_a_decompression_bomb_is_refused_closed(target: BrokerProcess, probe: Probe) -> None:
    bomb = build_batch([Record(key=b"k", value=bytes(100 << 20), timestamp_ms=NOW_MS)], codec=Codec.ZSTD)
    with RawClient(target.address) as raw:
        find_coordinator(raw, GROUP)
        with probe.watch("100 MiB in a compressed batch for __consumer_offsets"):
            for _ in range(20):
                assert raw.produce(OFFSETS, bytearray(bomb)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_largest_request_to_restore_state_is_cheap(target: BrokerProcess, probe: Probe) -> None:
    """RestoreState is refused unless coordinators are paused; a refusal costs next to nothing."""
    entries = [StateEntry(key=b"\x00\x02" + bytes(100), value=bytes(3000))] * 500
    request = RestoreStateRequest(topic=OFFSETS, partitions=50, partition=0, entries=entries)
    with RawClient(target.address) as raw:
        find_coordinator(raw, GROUP)
        with probe.watch("RestoreState of 1.5 MB while nothing is paused"):
            for _ in range(20):
                assert raw.ask(request, 0).error_code == ErrorCode.INVALID_REQUEST


def test_loading_large_batches_leaves_the_loop_to_others(own_target: Callable[..., BrokerProcess]) -> None:
    """A batch of 1 MiB was applied in one go: 120 ms of offsets, 440 ms of records that cannot be read."""
    target = own_target({"offsets.topic.num.partitions": 1})
    with RawClient(target.address) as raw:
        find_coordinator(raw, GROUP)
    target.kill()
    commits = [Committed(7, 0, "", NOW_MS).to_record(f"group-{n % 500}", "orders", n // 500) for n in range(18_000)]
    batch = build_pairs([(record.key, record.value) for record in commits], NOW_MS)
    append_to_logs(target.data_dir, OFFSETS, [batch, build_pairs([(b"x", b"x")] * 90_000, NOW_MS), batch])
    target.start()
    with RawClient(target.address) as raw:
        wait_until(lambda: raw.ask(ListGroupsRequest(), 5).error_code == ErrorCode.NONE, "all is loaded", 120)
        assert len(raw.ask(ListGroupsRequest(), 5).groups) == 500
    assert target.metric("penstock_coordinator_skipped_records_total") == 90_000
    cpu = histograms_of(target)["_cpu"]
    assert worst_of(dict.fromkeys(cpu, 0.0), cpu) <= 2 * LOOP_CPU_MAX_S  # with all that a start takes
