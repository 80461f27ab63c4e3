"""Do three brokers with three replicas keep up with three of Apache Kafka's?"""

import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench import clients, runs
from bench.clusters import Cluster, start_kafka, start_penstock
from bench.frames import Shape
from bench.lab import Lab
from bench.load import Sample
from bench.peers.kafka import VERSION
from bench.report import AT_LEAST, AT_MOST, Bar, Table, client, mark_busy, noise, rate, ratio
from bench.runs import Window
from bench.scale import MB

TITLE: Final = f"Three brokers, three replicas, acks=all, against Apache Kafka {VERSION}"
AS_FAST: Final = Bar(sign=AT_LEAST, value=1.0)
NO_WORSE: Final = Bar(sign=AT_MOST, value=1.0)
BYTES_MAX: Final = 500 * MB
"""Of one run: it is written three times."""
RATE_PER_S: Final = 2000
PARTITIONS: Final = 6
ALL: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """A run, and what followers, or all brokers, spent on it."""

    sample: Sample
    cpu_s: float

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.sample.answered_total * self.sample.bytes_each / 1e9)


Found = dict[str, list[Replicated]]


def ask(lab: Lab) -> list[Table]:
    with ExitStack() as stack:
        lab.say("cluster: starting three brokers of each")
        servers = []
        for start, name in ((start_penstock, "penstock-cluster"), (start_kafka, "kafka-cluster")):
            servers.append(start(lab.fresh_folder(name)))
            stack.callback(servers[-1].stop)
        _warm(lab, servers[1])
        produced: dict[Shape, Found] = {shape: defaultdict(list) for shape in runs.SHAPES}
        delayed: Found = defaultdict(list)
        spread: Found = defaultdict(list)
        for number in range(lab.scale.rounds):
            for shape, found in produced.items():
                lab.say(f"cluster: round {number + 1}, {shape}")
                for server in servers:
                    found[server.name].append(_produce(lab, server, shape, _window(lab)))
        for number in range(lab.scale.latency_rounds):
            for server in servers:
                lab.say(f"cluster: round {number + 1}, latency of {server.name}")
                delayed[server.name].append(
                    _produce(
                        lab,
                        server,
                        runs.SINGLE,
                        Window(seconds=lab.scale.latency_s, ramp_s=1.0, rate_per_s=RATE_PER_S),
                    )
                )
                lab.say(f"cluster: round {number + 1}, confluent-kafka against {server.name}")
                spread[server.name].append(_write_spread(lab, server))
    return [_speed_table(lab, produced), _latency_table(lab, delayed), _spread_table(lab, spread)]


def _window(lab: Lab) -> Window:
    return Window(seconds=lab.scale.window_s, ramp_s=lab.scale.ramp_s, bytes_max=BYTES_MAX)


def _warm(lab: Lab, kafka: Cluster) -> None:
    end_s = time.monotonic() + lab.scale.warm_s
    window = Window(seconds=min(2.0, lab.scale.warm_s / 15), ramp_s=0.0, bytes_max=BYTES_MAX)
    while (left_s := end_s - time.monotonic()) > 0:
        lab.say(f"warming Kafka, three brokers: {left_s:.0f} s left")
        for shape in runs.SHAPES:
            runs.produce(kafka, shape, ALL, window, lab.folder)


def _produce(lab: Lab, server: Cluster, shape: Shape, window: Window) -> Replicated:
    before_s = server.follower_cpu_s()
    sample = runs.produce(server, shape, ALL, window, lab.folder)
    return Replicated(sample=sample, cpu_s=server.follower_cpu_s() - before_s)


def _write_spread(lab: Lab, server: Cluster) -> Replicated:
    topic = server.make_spread_topic(PARTITIONS)
    before_s = server.all_cpu_s()
    sample = clients.run("produce", server.port, topic, PARTITIONS, lab.scale.client_messages, server.pid)
    used_s = server.all_cpu_s() - before_s
    server.drop_topic(topic)
    return Replicated(sample=sample, cpu_s=used_s)


def _samples(found: Found) -> dict[str, list[Sample]]:
    return {name: [each.sample for each in side] for name, side in found.items()}


def _middle(side: list[Replicated]) -> str:
    return f"{median(each.cpu_s_per_gb for each in side):.2f}"


def _speed_table(lab: Lab, produced: dict[Shape, Found]) -> Table:
    table = Table(
        slug="cluster",
        title=TITLE,
        columns=(
            "load",
            "Penstock",
            "Kafka",
            "ratio",
            "bar",
            "leader CPU s/GB, Penstock / Kafka",
            "both followers' CPU s/GB, Penstock / Kafka",
            "ratio",
            "client busy, Penstock / Kafka",
        ),
        notes=[
            "Both clusters are up all the time, three processes each on one machine, and are loaded in turn; "
            "Penstock's is kept in one etcd, Kafka's in its own KRaft quorum, warmed for "
            f"{lab.scale.warm_s:g} s with these same loads. `min.insync.replicas=2`, all else is the defaults.",
            f"{runs.CONNECTIONS} connections with {runs.PRODUCE_DEPTH} produce requests in flight on each, to "
            f"{runs.PARTITIONS} partitions of one leader, so that its followers are the other two brokers. Every run "
            "ends when 500 MB are written (three times).",
            "Followers' CPU is taken over the whole run, its check included.",
            noise(_samples(found) for found in produced.values()),
        ],
    )
    for shape, found in produced.items():
        ours, theirs = (_samples(found)[name] for name in ("Penstock", "Kafka"))
        speed, speed_text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        _, cost_text = ratio(
            [each.cpu_s_per_gb for each in found["Penstock"]], [each.cpu_s_per_gb for each in found["Kafka"]]
        )
        leader = (median(each.broker_cpu_s_per_gb for each in side) for side in (ours, theirs))
        table.rows.append(
            (
                f"produce, {shape}",
                rate(ours, shape.is_single),
                rate(theirs, shape.is_single),
                speed_text,
                table.verdict(f"produce, {shape}", speed, AS_FAST),
                " / ".join(f"{each:.2f}" for each in leader),
                f"{_middle(found['Penstock'])} / {_middle(found['Kafka'])}",
                cost_text,
                client(ours, theirs),
            )
        )
    return table


def _latency_table(lab: Lab, delayed: Found) -> Table:
    table = Table(
        slug="cluster-latency",
        title=f"Latency of three replicas at {RATE_PER_S:,} messages/s, against Apache Kafka",
        columns=("load", "p50 µs, Penstock / Kafka", "p99 µs, Penstock / Kafka", "p99 ratio", "bar"),
        notes=[
            f"One-record requests of 100 B with acks=all, by the clock for {lab.scale.latency_s:g} s a round, to the "
            "same clusters: each is answered when the brokers in sync have it.",
            noise([_samples(delayed)]),
        ],
    )
    ours, theirs = (_samples(delayed)[name] for name in ("Penstock", "Kafka"))
    middle, text = ratio([each.p99_us for each in ours], [each.p99_us for each in theirs])
    table.rows.append(
        (
            "produce, acks=all",
            " / ".join(f"{median(each.p50_us for each in side):,.0f}" for side in (ours, theirs)),
            " / ".join(f"{median(each.p99_us for each in side):,.0f}" for side in (ours, theirs)),
            text,
            table.verdict("p99 with three replicas", middle, NO_WORSE),
        )
    )
    return table


def _spread_table(lab: Lab, spread: Found) -> Table:
    table = Table(
        slug="cluster-clients",
        title="The same confluent-kafka producer with three replicas, against Apache Kafka",
        columns=(
            "load",
            "Penstock",
            "Kafka",
            "ratio",
            "CPU s/GB of all brokers, Penstock / Kafka",
            "client cores, Penstock / Kafka",
        ),
        notes=[
            f"{lab.scale.client_messages:,} messages of 1 KiB to {PARTITIONS} partitions that all three brokers "
            "lead, acks=all, idempotence and all else as confluent-kafka has it, linger.ms=5. No bar is set: three "
            "brokers and a client share two cores, so the figure is of what all of them cost together.",
            noise([_samples(spread)]),
        ],
    )
    ours, theirs = (_samples(spread)[name] for name in ("Penstock", "Kafka"))
    _, text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
    busy = (median(each.client_busy for each in side) for side in (ours, theirs))
    table.rows.append(
        (
            "produce",
            f"{median(each.per_s for each in ours):,.0f}/s",
            f"{median(each.per_s for each in theirs):,.0f}/s",
            text,
            f"{_middle(spread['Penstock'])} / {_middle(spread['Kafka'])}",
            " / ".join(mark_busy(share) for share in busy),
        )
    )
    return table
