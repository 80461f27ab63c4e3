"""How does Penstock stand next to NATS JetStream on small messages?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench import runs
from bench.frames import Shape
from bench.lab import Lab
from bench.load import Load, Sample
from bench.measure import settle
from bench.peers.nats import Nats
from bench.penstock import Penstock
from bench.report import Table, client, cores, cpu_per_gb, noise, rate, ratio
from bench.runs import Filled
from bench.talk import WrongAnswer

TITLE: Final = "Against NATS JetStream"
SIZES: Final = (("100 B", 100), ("1 KiB", 1024))
PULL_MESSAGES: Final = 1000
PULLS_IN_FLIGHT: Final = 4
FETCH_BYTES: Final = 1 << 20
SIDES: Final = ("Penstock", "NATS JetStream")
Found = dict[tuple[str, str], dict[str, list[Sample]]]


def ask(lab: Lab) -> list[Table]:
    found: Found = {(action, name): defaultdict(list) for action in ("publish", "replay") for name, _ in SIZES}
    with lab.penstock() as penstock, lab.nats() as nats:
        for number in range(lab.scale.rounds):
            for name, size in SIZES:
                lab.say(f"nats: round {number + 1}, {name}")
                shape = Shape(name=name, records=1, value_bytes=size)
                published = runs.produce(penstock, shape, -1, lab.window, lab.folder)
                found["publish", name]["Penstock"].append(replace(published, bytes_each=size))
                found["publish", name]["NATS JetStream"].append(_publish(lab, nats, size))
                found["replay", name]["Penstock"].append(_replay_penstock(lab, penstock, shape))
                found["replay", name]["NATS JetStream"].append(_replay_nats(lab, nats, size))
    return [_table(found)]


def _table(found: Found) -> Table:
    table = Table(
        slug="nats",
        title=TITLE,
        columns=(
            "load",
            *SIDES,
            "ratio",
            "broker CPU s/GB, Penstock / NATS",
            "broker cores, Penstock / NATS",
            "client busy, Penstock / NATS",
        ),
        notes=[
            f"Publish: one message a request and an acknowledgement for each, {runs.CONNECTIONS} connections with "
            f"{runs.PRODUCE_DEPTH} in flight. Penstock: Produce requests of one record, acks=all. NATS: `PUB` with a "
            "reply subject to a stream with file storage. Neither syncs before it acknowledges (NATS: every 2 "
            "minutes, its default).",
            "Replay: everything that was published so, once, from the start, over one connection. Penstock: Fetch "
            "of up to 1 MiB, one in flight. NATS: a pull consumer without acknowledgements, "
            f"{PULL_MESSAGES:,} messages a pull, {PULLS_IN_FLIGHT} pulls in flight. NATS sends messages one by one "
            "with their subjects, Penstock sends the log as it lies.",
            "CPU is per GB of message payload. No bar is set: NATS is Go and may use all cores, Penstock uses one.",
            noise(found.values()),
        ],
    )
    for (action, size), samples in found.items():
        ours, theirs = samples["Penstock"], samples["NATS JetStream"]
        _, text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
        table.rows.append(
            (
                f"{action}, {size}",
                rate(ours, single=True),
                rate(theirs, single=True),
                text,
                f"{cpu_per_gb(ours)} / {cpu_per_gb(theirs)}",
                f"{cores(ours)} / {cores(theirs)}",
                client(ours, theirs),
            )
        )
    return table


def _publish(lab: Lab, nats: Nats, size: int) -> Sample:
    settle()
    nats.make_stream()
    try:
        sample = _publish_load(nats, size, lab.window.seconds, lab.window.ramp_s).run(lab.folder, nats.pid, size)
        _check(nats, sample.answered_total)
    finally:
        nats.drop_stream()
    return sample


def _publish_load(nats: Nats, size: int, seconds: float, ramp_s: float, messages: int = 1 << 62) -> Load:
    numbers: Sequence[int] = range(runs.CONNECTIONS)
    return Load(
        port=nats.port,
        frames=[nats.publish_frame(number, size) for number in numbers],
        hellos=[nats.hello(number) for number in numbers],
        connections=runs.CONNECTIONS,
        depth=runs.PRODUCE_DEPTH,
        seconds=seconds,
        ramp_s=ramp_s,
        requests_max=messages,
        walk=False,
    )


def _check(nats: Nats, expected: int) -> None:
    found = nats.messages()
    if found != expected:
        raise WrongAnswer(f"NATS acknowledged {expected} messages and holds {found}")


def _replay_nats(lab: Lab, nats: Nats, size: int) -> Sample:
    messages = lab.scale.replay_messages
    nats.make_stream()
    try:
        _publish_load(nats, size, runs.FILL_S_MAX, 0.0, messages).run(lab.folder, nats.pid, size)
        settle()
        nats.make_consumer()
        return Load(
            port=nats.port,
            frames=[nats.pull_frame(0, PULL_MESSAGES, size)],
            hellos=[nats.hello(0)],
            connections=1,
            depth=PULLS_IN_FLIGHT,
            seconds=runs.FILL_S_MAX,
            requests_max=messages // PULL_MESSAGES,
            replies=PULL_MESSAGES,
            walk=False,
        ).run(lab.folder, nats.pid, size)
    finally:
        nats.drop_stream()


def _replay_penstock(lab: Lab, penstock: Penstock, shape: Shape) -> Sample:
    batches_each = FETCH_BYTES // shape.batch_bytes
    batches = lab.scale.replay_messages // batches_each * batches_each
    topic = penstock.make_topic(shape, 1)
    try:
        runs.append(penstock, shape, topic, batches, lab.folder, acks=-1)
        source: Filled = runs.readable(penstock, shape, topic, batches, batches_each)
        sample = runs.replay(source, lab.folder)
    finally:
        penstock.drop_topic(topic)
    return replace(sample, answered=sample.answered * source.records_each, bytes_each=shape.value_bytes)
