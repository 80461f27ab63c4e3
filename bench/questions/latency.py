"""How long does a message wait for its acknowledgement when the broker is not busy?"""

from collections import defaultdict
from statistics import median
from typing import Final

from bench import runs
from bench.lab import Lab
from bench.load import Sample
from bench.report import AT_MOST, Bar, Table, client, noise, ratio
from bench.runs import Window

RATE_PER_S: Final = 2000
TITLE: Final = f"Latency at {RATE_PER_S:,} messages/s, against Apache Kafka"
NO_WORSE: Final = Bar(sign=AT_MOST, value=1.0)


def ask(lab: Lab) -> list[Table]:
    kafka = lab.kafka()
    window = Window(seconds=lab.scale.latency_s, ramp_s=1.0, rate_per_s=RATE_PER_S)
    found: dict[int, dict[str, list[Sample]]] = {1: defaultdict(list), -1: defaultdict(list)}
    with lab.penstock() as penstock:
        for number in range(lab.scale.latency_rounds):
            for acks, samples in found.items():
                lab.say(f"latency: round {number + 1}, acks={acks}")
                for server in (penstock, kafka):
                    samples[server.name].append(runs.produce(server, runs.SINGLE, acks, window, lab.folder))
    table = Table(
        slug="latency",
        title=TITLE,
        columns=(
            "load",
            "p50 µs, Penstock / Kafka",
            "p99 µs, Penstock / Kafka",
            "p99 ratio",
            "bar",
            "p99.9 µs, Penstock / Kafka",
            "broker cores, Penstock / Kafka",
            "generator late p99 µs",
            "client busy, Penstock / Kafka",
        ),
        notes=[
            f"One-record requests of 100 B, {RATE_PER_S:,} a second over {runs.CONNECTIONS} connections, sent by the "
            f"clock for {lab.scale.latency_s:g} s a round. Latency counts from when a request should have been sent, "
            "so that a stall is charged for every message it holds up.",
            "The generator's own lateness is part of the latency, the same for both.",
            noise(found.values()),
        ],
    )
    for acks, samples in found.items():
        ours, theirs = samples["Penstock"], samples["Kafka"]
        name = f"produce, acks={'all' if acks < 0 else acks}"
        middle, text = ratio([each.p99_us for each in ours], [each.p99_us for each in theirs])
        table.rows.append(
            (
                name,
                _pair(ours, theirs, "p50_us"),
                _pair(ours, theirs, "p99_us"),
                text,
                table.verdict(f"p99, {name}", middle, NO_WORSE),
                _pair(ours, theirs, "p999_us"),
                _pair(ours, theirs, "broker_busy", 2),
                _pair(ours, theirs, "late_p99_us"),
                client(ours, theirs),
            )
        )
    return [table]


def _pair(ours: list[Sample], theirs: list[Sample], name: str, digits: int = 0) -> str:
    return " / ".join(f"{median(getattr(sample, name) for sample in side):,.{digits}f}" for side in (ours, theirs))
