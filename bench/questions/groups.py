"""How fast do groups commit, and how long do they take to share their partitions out?"""

from collections import defaultdict
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench import client_pool, coordinators, rebalances, runs
from bench.broker import KafkaBroker
from bench.commits import VERSION as COMMIT_VERSION
from bench.commits import Committers, committers
from bench.lab import Lab
from bench.load import CLIENT_BUSY_MAX, Sample
from bench.members import PROTOCOLS, SOON_S
from bench.peers.kafka import GROUP_SETTINGS, VERSION
from bench.rebalances import Rebalances, Step
from bench.report import AT_LEAST, Bar, Table, client, cores, cpu_each, is_client_bound, mark_busy, noise, ratio
from bench.runs import Window

TITLE: Final = f"Consumer groups, against Apache Kafka {VERSION}"
AS_FAST: Final = Bar(sign=AT_LEAST, value=1.0)
PARTITIONS: Final = 200
"""Of the one topic: a share for everyone, and some to move."""
WARM_WINDOW: Final = Window(seconds=1.0, ramp_s=0.0)


@dataclass(frozen=True, slots=True)
class Commit:
    groups: int
    partitions: int
    is_real: bool = False
    """By confluent-kafka, and not by requests encoded beforehand."""

    def __str__(self) -> str:
        what = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"commit {what}, {self.groups} groups{', confluent-kafka' if self.is_real else ''}"


COMMITS: Final = (Commit(16, 1), Commit(128, 1), Commit(128, 10), Commit(16, 1, is_real=True))
GROUPS_MAX: Final = max(cell.groups for cell in COMMITS)


@dataclass(frozen=True, slots=True)
class Party:
    protocol: str
    members: int

    def __str__(self) -> str:
        return f"{self.protocol}, {self.members} members"


PARTIES: Final = tuple(Party(protocol, members) for protocol in PROTOCOLS for members in (10, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A broker with a topic and groups that are ready."""

    server: KafkaBroker
    ready: Committers
    small_topic: str
    """For real consumers, who ask about every partition that they get."""

    def commit(self, lab: Lab, cell: Commit, window: Window) -> Sample:
        if cell.is_real:
            words = (self.small_topic, runs.PARTITIONS, cell.groups, cell.partitions)
            return client_pool.run(self.server, "commit", *words, window)
        return self.ready.commit(cell.groups, cell.partitions, window, lab.folder)

    def rebalance(self, party: Party, seed: int) -> Rebalances:
        return rebalances.run(self.server, party.protocol, party.members, self.ready.topic, PARTITIONS, seed)


def ask(lab: Lab) -> list[Table]:
    def loads(server: KafkaBroker) -> Generator[object, None, None]:
        with ExitStack() as stack:
            side = _enter(server, stack)
            for cell, party in zip(COMMITS, PARTIES, strict=True):
                yield side.commit(lab, cell, WARM_WINDOW)
                yield side.rebalance(party, seed=0)

    kafka = lab.warm_kafka("groups", loads)
    commits: dict[Commit, dict[str, list[Sample]]] = {cell: defaultdict(list) for cell in COMMITS}
    parties: dict[Party, dict[str, list[Rebalances]]] = {party: defaultdict(list) for party in PARTIES}
    window = Window(seconds=lab.scale.coordinator_s, ramp_s=lab.scale.ramp_s)
    with ExitStack() as stack:
        penstock = stack.enter_context(lab.penstock(GROUP_SETTINGS))
        alike = coordinators.check_alike(coordinators.GROUPS, penstock, kafka)
        sides = [_enter(server, stack) for server in (penstock, kafka)]
        for number in range(lab.scale.coordinator_rounds):
            for cell, samples in commits.items():
                lab.say(f"groups: round {number + 1}, {cell}")
                for side in sides:
                    samples[side.server.name].append(side.commit(lab, cell, window))
        for number in range(lab.scale.rounds):
            for party, seen in parties.items():
                lab.say(f"groups: round {number + 1}, {party}")
                for side in sides:
                    seen[side.server.name].append(side.rebalance(party, seed=number + 1))
    settings = ", ".join(f"`{name}={value}`" for name, value in GROUP_SETTINGS.items())
    alike += f" Kafka was warmed for {lab.scale.warm_s:g} s with these same loads. Set on both sides: {settings}."
    return [_commit_table(lab, commits, alike), _rebalance_table(lab, parties, alike)]


def _enter(server: KafkaBroker, stack: ExitStack) -> Side:
    topic, small_topic = (server.make_topic(runs.SINGLE, count) for count in (PARTITIONS, runs.PARTITIONS))
    for each in (topic, small_topic):
        stack.callback(server.drop_topic, each)
    coordinators.make_ready(server, coordinators.GROUPS)
    ready = stack.enter_context(committers(server, topic, GROUPS_MAX))
    return Side(server=server, ready=ready, small_topic=small_topic)


# -- commits


def _commit_table(lab: Lab, found: dict[Commit, dict[str, list[Sample]]], alike: str) -> Table:
    table = Table(
        slug="groups-commits",
        title=f"Commits of groups, against Apache Kafka {VERSION}",
        columns=(
            "load",
            "Penstock",
            "Kafka",
            "ratio",
            "bar",
            "broker CPU µs a commit, Penstock / Kafka",
            "ratio",
            "p50 ms, Penstock / Kafka",
            "broker cores, Penstock / Kafka",
            "client busy, Penstock / Kafka",
        ),
        notes=[
            "Groups of one classic member each, each over a connection of its own with one OffsetCommit in flight "
            f"(v{COMMIT_VERSION}), as members commit; their names spread them over all coordinators. Afterwards the "
            "records in `__consumer_offsets` are counted, and OffsetFetch is asked what was committed last.",
            "confluent-kafka: as many consumers, threads of one Python process, each alone in its group; "
            "`commit(asynchronous=False)` over and over. Where ⚠ stands, the throughput is the client's and no bar "
            "applies to it; what the broker spent is still the broker's.",
            f"Rounds: {lab.scale.coordinator_rounds} of {lab.scale.coordinator_s:g} s. {alike}",
            "Kafka's coordinators write down in one go what has come while they were busy, on 4 threads "
            "(`group.coordinator.append.linger.ms=-1`, `group.coordinator.threads=4`, its defaults); Penstock writes "
            "each commit by itself.",
            noise(found.values()),
        ],
    )
    for cell, samples in found.items():
        ours, theirs = samples["Penstock"], samples["Kafka"]
        speed, speed_text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        _, cost_text = ratio([each.broker_cpu_us_each for each in ours], [each.broker_cpu_us_each for each in theirs])
        waits = " / ".join(f"{median(each.p50_us for each in side) / 1000:.1f}" for side in (ours, theirs))
        table.rows.append(
            (
                str(cell),
                f"{median(each.per_s for each in ours):,.0f}/s",
                f"{median(each.per_s for each in theirs):,.0f}/s",
                speed_text,
                "client's ⚠" if is_client_bound(ours) else table.verdict(str(cell), speed, AS_FAST),
                f"{cpu_each(ours)} / {cpu_each(theirs)}",
                cost_text,
                "" if cell.is_real else waits,
                f"{cores(ours)} / {cores(theirs)}",
                client(ours, theirs),
            )
        )
    return table


# -- rebalances


def _rebalance_table(lab: Lab, found: dict[Party, dict[str, list[Rebalances]]], alike: str) -> Table:
    table = Table(
        slug="groups-rebalances",
        title=f"Groups that come together and lose a member, against Apache Kafka {VERSION}",
        columns=(
            "what",
            "ms, Penstock",
            "Kafka",
            "Kafka's time / Penstock's",
            "bar",
            "broker CPU ms, Penstock / Kafka",
            "ratio",
            "client busy, Penstock / Kafka",
        ),
        notes=[
            "All join: from the first request until all members are of one generation and hold every partition of a "
            f"topic with {PARTITIONS} once; they are connected before. One leaves: from its request until that is so "
            "for the others, all of whom are heard of as soon as it is gone.",
            "Members speak by our own codec from one process, each over a connection of its own. They hear of "
            f"changes when they are heard of, every {SOON_S * 1000:g} ms while shares move, a fifth more or less "
            "(real ones: every 3 or 5 s); in the newer protocol (KIP-848) shares move in several such steps. Classic "
            "members use ranges, the coordinator of the newer protocol shares out uniformly.",
            f"Rounds: {lab.scale.rounds}. {alike} Kafka's `group.consumer.assignment.interval.ms` is 0 too: Penstock "
            "has no such thing, and a second's wait (KIP-1263) would be all there is to see.",
            "Where ⚠ stands, the time is mostly the members' own and no bar applies to it.",
        ],
    )
    for party, samples in found.items():
        for name, what in (("join", "all join"), ("leave", "one leaves")):
            ours: list[Step] = [getattr(each, name) for each in samples["Penstock"]]
            theirs: list[Step] = [getattr(each, name) for each in samples["Kafka"]]
            table.rows.append(_step_row(table, f"{party}: {what}", ours, theirs))
    return table


def _step_row(table: Table, what: str, ours: list[Step], theirs: list[Step]) -> tuple[str, ...]:
    speed, speed_text = ratio([each.seconds for each in theirs], [each.seconds for each in ours])
    _, cost_text = ratio([each.broker_cpu_s for each in ours], [each.broker_cpu_s for each in theirs])
    busy = [median(each.client_busy for each in side) for side in (ours, theirs)]
    return (
        what,
        f"{median(each.seconds for each in ours) * 1000:,.0f}",
        f"{median(each.seconds for each in theirs) * 1000:,.0f}",
        speed_text,
        "client's ⚠" if busy[0] > CLIENT_BUSY_MAX else table.verdict(what, speed, AS_FAST),
        " / ".join(f"{median(each.broker_cpu_s for each in side) * 1000:,.1f}" for side in (ours, theirs)),
        cost_text,
        " / ".join(mark_busy(share) for share in busy),
    )
