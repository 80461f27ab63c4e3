"""How does Penstock stand next to NATS JetStream on small messages?"""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from bench import runs
from bench.blocking_client import WrongAnswer
from bench.frames import Shape
from bench.lab import Lab
from bench.load import Load, Sample
from bench.measure import settle
from bench.peers.nats import Nats
from bench.penstock import Penstock
from bench.report import Table, client, cores, cpu_per_gb, noise, rate, ratio
from bench.runs import Filled

TITLE: Final = "Against NATS JetStream"
SIZES: Final = (("100 B", 100), ("1 KiB", 1024))
PULL_MESSAGES: Final = 1000
PULLS_IN_FLIGHT: Final = 4
FETCH_BYTES: Final = 1 << 20
PUBLISHED: Final = "PUBLISHED"
SIDES: Final = ("Penstock", "NATS JetStream")
Found = dict[tuple[str, str], dict[str, list[Sample]]]


def ask(lab: Lab) -> list[Table]:
    found: Found = {(action, name): defaultdict(list) for action in ("publish", "replay") for name, _ in SIZES}
    with ExitStack() as stack:
        penstock, nats = stack.enter_context(lab.penstock()), stack.enter_context(lab.nats())
        sources, streams = {}, {}
        for name, size in SIZES:
            lab.say(f"nats: publishing {lab.scale.replay_messages:,} messages of {name} to replay")
            sources[size] = _source(lab, penstock, Shape(name=name, records=1, value_bytes=size))
            streams[size] = _stream(lab, nats, size)
        for number in range(lab.scale.rounds):
            for name, size in SIZES:
                lab.say(f"nats: round {number + 1}, {name}")
                shape = Shape(name=name, records=1, value_bytes=size)
                published = runs.produce(penstock, shape, -1, lab.window, lab.folder)
                found["publish", name]["Penstock"].append(replace(published, bytes_each=size))
                found["publish", name]["NATS JetStream"].append(_publish(lab, nats, size))
                found["replay", name]["Penstock"].append(_replay_penstock(lab, sources[size], size))
                found["replay", name]["NATS JetStream"].append(_replay_nats(lab, nats, streams[size], size))
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
            "Replay: everything that was published so, from the start, over one connection. Penstock: Fetch of up "
            "to 1 MiB, one in flight, and from the start again till time is up. NATS: once, with a pull consumer "
            f"that acknowledges nothing, {PULL_MESSAGES:,} messages a pull, {PULLS_IN_FLIGHT} pulls in flight. NATS "
            "sends messages one by one with their subjects, Penstock sends the log as it lies.",
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


# -- NATS


def _publish(lab: Lab, nats: Nats, size: int) -> Sample:
    settle()
    nats.make_stream(PUBLISHED)
    try:
        load = _publish_load(nats, PUBLISHED, size)
        sample = replace(load, seconds=lab.window.seconds, ramp_s=lab.window.ramp_s).run(lab.folder, nats.pid, size)
        _check(nats, PUBLISHED, sample.answered_total)
    finally:
        nats.drop_stream(PUBLISHED)
    return sample


def _publish_load(nats: Nats, stream: str, size: int) -> Load:
    return Load(
        port=nats.port,
        frames=[nats.publish_frame(stream, number, size) for number in range(runs.CONNECTIONS)],
        hellos=[nats.hello(number) for number in range(runs.CONNECTIONS)],
        connections=runs.CONNECTIONS,
        depth=runs.PRODUCE_DEPTH,
        walk=False,
    )


def _check(nats: Nats, stream: str, expected: int) -> None:
    found = nats.messages(stream)
    if found != expected:
        raise WrongAnswer(f"NATS acknowledged {expected} messages and holds {found}")


def _stream(lab: Lab, nats: Nats, size: int) -> str:
    """A stream to replay."""
    stream, messages = f"REPLAY{size}", lab.scale.replay_messages
    nats.make_stream(stream)
    load = replace(_publish_load(nats, stream, size), seconds=runs.FILL_S_MAX, requests_max=messages)
    load.run(lab.folder, nats.pid, size)
    _check(nats, stream, messages)
    return stream


def _replay_nats(lab: Lab, nats: Nats, stream: str, size: int) -> Sample:
    settle()
    nats.make_consumer(stream)
    try:
        return Load(
            port=nats.port,
            frames=[nats.pull_frame(stream, 0, PULL_MESSAGES, size)],
            hellos=[nats.hello(0)],
            connections=1,
            depth=PULLS_IN_FLIGHT,
            seconds=runs.FILL_S_MAX,
            requests_max=lab.scale.replay_messages // PULL_MESSAGES,
            replies=PULL_MESSAGES,
            walk=False,
        ).run(lab.folder, nats.pid, size)
    finally:
        nats.drop_consumer(stream)


# -- Penstock


def _source(lab: Lab, penstock: Penstock, shape: Shape) -> Filled:
    """A topic to replay."""
    batches_each = FETCH_BYTES // shape.batch_bytes
    batches = lab.scale.replay_messages // batches_each * batches_each
    topic = penstock.make_topic(shape, 1)
    runs.append(penstock, shape, topic, batches, lab.folder, acks=-1)
    return runs.readable(penstock, shape, topic, batches, batches_each)


def _replay_penstock(lab: Lab, source: Filled, size: int) -> Sample:
    """Records instead of requests."""
    sample = runs.replay(source, lab.window, lab.folder)
    return replace(sample, answered=sample.answered * source.records_each, bytes_each=size)
