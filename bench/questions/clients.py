"""Does a real client do as well against Penstock as against Apache Kafka?"""

from collections import defaultdict
from typing import Final

from bench import clients, runs
from bench.lab import Lab
from bench.load import Sample
from bench.measure import settle
from bench.report import AT_LEAST, AT_MOST, Bar, Table, client, cores, cpu_per_gb, is_client_bound, noise, rate, ratio

TITLE: Final = "The same confluent-kafka producer and consumer, against Apache Kafka"
AS_FAST: Final = Bar(sign=AT_LEAST, value=1.0)
NO_MORE: Final = Bar(sign=AT_MOST, value=1.0)
ACTIONS: Final = ("produce", "consume")


def ask(lab: Lab) -> list[Table]:
    kafka = lab.kafka()
    found: dict[str, dict[str, list[Sample]]] = {action: defaultdict(list) for action in ACTIONS}
    messages = lab.scale.client_messages
    with lab.penstock() as penstock:
        for number in range(-1, lab.scale.rounds):  # the first warms both, and is not counted
            for server in (penstock, kafka):
                settle()
                topic = server.make_topic(runs.MEDIUM, runs.PARTITIONS)
                for action in ACTIONS:
                    lab.say(f"clients: round {number + 1}, {action} against {server.name}")
                    sample = clients.run(action, server.port, topic, runs.PARTITIONS, messages, server.pid)
                    if number >= 0:
                        found[action][server.name].append(sample)
                server.drop_topic(topic)
    table = Table(
        slug="clients",
        title=TITLE,
        columns=(
            "load",
            "Penstock",
            "Kafka",
            "ratio",
            "bar",
            "broker CPU s/GB, Penstock / Kafka",
            "ratio",
            "bar",
            "broker cores, Penstock / Kafka",
            "client cores, Penstock / Kafka",
        ),
        notes=[
            f"{messages:,} messages of 1 KiB to {runs.PARTITIONS} partitions with acks=all and linger.ms=5, all else "
            "confluent-kafka's default; then all of them read by manual assignment and compared with what was sent.",
            "The client is Python and takes more than its core: where ⚠ stands, the throughput is the client's and "
            "no bar applies to it; what the broker spent is still the broker's.",
            noise(found.values()),
        ],
    )
    for action, samples in found.items():
        ours, theirs = samples["Penstock"], samples["Kafka"]
        speed, speed_text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        cost, cost_text = ratio(
            [each.broker_cpu_s_per_gb for each in ours], [each.broker_cpu_s_per_gb for each in theirs]
        )
        table.rows.append(
            (
                action,
                rate(ours, single=True),
                rate(theirs, single=True),
                speed_text,
                "client's ⚠" if is_client_bound(ours) else table.verdict(action, speed, AS_FAST),
                f"{cpu_per_gb(ours)} / {cpu_per_gb(theirs)}",
                cost_text,
                table.verdict(f"{action}, CPU", cost, NO_MORE),
                f"{cores(ours)} / {cores(theirs)}",
                client(ours, theirs),
            )
        )
    return [table]
