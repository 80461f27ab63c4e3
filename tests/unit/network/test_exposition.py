"""The text of /metrics: as prometheus_client writes it, in pieces of bounded size."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from penstock.network.cluster_metrics import ClusterMetrics
from penstock.network.exposition import ITEMS_PER_SLICE, SAMPLES_MAX, LargeGauge, text_pieces
from penstock.network.metrics import Metrics
from penstock.replication.isr_maintenance import IsrMaintenance
from penstock.replication.throttle import Throttle
from tests.unit.replication.broker_state import NODE, World, world_at

TOPICS = 10_000


def families() -> Iterator[Metric]:
    yield GaugeMetricFamily("plain", 'help with \\ and "quotes"\nand a line', value=1)
    counter = CounterMetricFamily("counted", "counts", labels=["b", "a"])
    counter.add_metric(['quote " and \\ and \n', "é"], 2.5)
    counter.add_metric(["", "x"], 12345678)
    yield counter
    histogram = HistogramMetricFamily("spread", "seconds", labels=["api"])
    histogram.add_metric(["fetch"], [("0.1", 1), ("+Inf", 3)], 7.25)
    yield histogram
    yield GaugeMetricFamily("empty", "nothing in it", labels=["x"])


def read(text: str) -> list[tuple[str, str, str, list[Sample]]]:
    found = text_string_to_metric_families(text)
    return [(each.name, each.documentation, each.type, each.samples) for each in found]


class Families:
    def collect(self) -> Iterator[Metric]:
        return families()


def test_the_text_means_what_prometheus_own_client_writes() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    text = b"".join(text_pieces(families())).decode()
    assert read(text) == read(generate_latest(registry).decode())


def test_samples_are_made_as_they_are_written() -> None:
    made = 0

    def samples() -> Iterator[Sample]:
        nonlocal made
        for number in range(1000):
            made += 1
            yield Sample("large", {"n": str(number)}, number)

    pieces = text_pieces([None, LargeGauge("large", "many", samples())])
    assert (next(pieces), made) == (b"", 0)
    assert next(pieces).startswith(b"# HELP large many\n# TYPE large gauge\n")
    assert (next(pieces).count(b"\n"), made) == (SAMPLES_MAX, SAMPLES_MAX)
    assert sum(piece.count(b"\n") for piece in pieces) == 1000 - SAMPLES_MAX


def metrics_of(world: World) -> Metrics:
    maintenance = IsrMaintenance(
        partitions=world.partitions, metadata=world.metadata, store=world.store, clock=world.clock
    )
    cluster = ClusterMetrics(
        node_id=NODE,
        image=lambda: world.metadata.image,
        partitions=world.partitions,
        isr_maintenance=maintenance,
        sent=Throttle(lambda: 0),
        fetched=Throttle(lambda: 0),
    )
    return Metrics(world.partitions, cluster)


async def test_ten_thousand_topics_are_collected_and_written_a_few_at_a_time(tmp_path: Path) -> None:
    """They share one log: it is what is done for each that counts."""
    async with world_at(tmp_path) as world:
        await world.create("first")
        partition, partitions = world.partition("first"), world.partitions
        for number in range(1, TOPICS):
            partitions.by_name[f"topic-{number}"] = partitions.by_id[number.to_bytes(8, "big")] = {0: partition}
        pieces = list(metrics_of(world).text())
        text = b"".join(pieces).decode()
        for number in range(1, TOPICS):
            del partitions.by_name[f"topic-{number}"], partitions.by_id[number.to_bytes(8, "big")]
    assert max(piece.count(b"\n") for piece in pieces) <= max(SAMPLES_MAX, 3)
    assert pieces.count(b"") >= 3 * (TOPICS // ITEMS_PER_SLICE), "what has no lines is looked at in steps, too"
    samples = {family.name: family.samples for family in text_string_to_metric_families(text)}
    for name in ("penstock_log_bytes", "penstock_log_end_offset", "penstock_log_segments"):
        assert len({sample.labels["topic"] for sample in samples[name]}) == TOPICS
    assert samples["penstock_leaders"][0].value == TOPICS


async def test_a_topic_that_is_deleted_while_metrics_are_written_is_passed_over(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        for name in ("one", "two", "three"):
            await world.create(name)
        text = b""
        for piece in metrics_of(world).text():
            text += piece
            if b"# TYPE penstock_log_bytes" in piece:
                await world.delete("two")
        assert b'penstock_log_bytes{topic="three"}' in text
        assert b'penstock_log_segments{topic="two"}' not in text
