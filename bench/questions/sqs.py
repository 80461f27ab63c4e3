"""How does the SQS API stand next to ElasticMQ, and next to moto's server?"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from bench.lab import Lab
from bench.load import Sample
from bench.peers import elasticmq, moto
from bench.peers.elasticmq import ElasticMq
from bench.peers.moto import Moto
from bench.penstock import Penstock
from bench.report import AT_LEAST, Bar, Table, client, cpu_each, is_client_bound, noise, ratio
from bench.runs import Window
from bench.sqs import boto
from bench.sqs.blocking_client import CREDENTIALS, SqsServer
from bench.sqs.profile import OTHER, PACKAGES, Watched
from bench.sqs.runs import CELLS, Cell, cycle

TITLE: Final = f"The SQS API, against ElasticMQ {elasticmq.VERSION} and moto {moto.VERSION}"
SINGLES: Final = Bar(sign=AT_LEAST, value=1.0)
BATCHES: Final = Bar(sign=AT_LEAST, value=1.5)
MOTO: Final = Bar(sign=AT_LEAST, value=10.0)
NAMES: Final = (Penstock.name, ElasticMq.name, Moto.name)
CHECKED: Final = Cell(32, 1)
"""How the load comes where signatures are checked."""
WARM_S: Final = 1.0
Found = dict[tuple[Cell, str], dict[str, list[Sample]]]


def ask(lab: Lab) -> list[Table]:
    found: Found = defaultdict(lambda: defaultdict(list))
    by_boto: Found = defaultdict(lambda: defaultdict(list))
    checked: Found = defaultdict(lambda: defaultdict(list))
    window = Window(seconds=lab.scale.window_s, ramp_s=lab.scale.ramp_s)
    with ExitStack() as stack:
        servers: list[SqsServer] = [
            stack.enter_context(lab.penstock()),
            stack.enter_context(lab.running("elasticmq", ElasticMq)),
            stack.enter_context(lab.running("moto", Moto)),
        ]
        careful = stack.enter_context(lab.penstock(credentials=CREDENTIALS))
        _warm(lab, servers[1])
        for number in range(lab.scale.coordinator_rounds):
            for cell in CELLS:
                lab.say(f"sqs: round {number + 1}, {cell}")
                for server in servers:
                    _add(found, cell, server.name, cycle(server, cell, window, lab.folder))
            lab.say(f"sqs: round {number + 1}, boto3, and signatures checked")
            for each in (1, 10):
                for server in servers:
                    _add(by_boto, Cell(1, each), server.name, boto.run(server, each, lab.scale.coordinator_s))
            for server, name in ((servers[0], "passed over"), (careful, "checked")):
                _add(checked, CHECKED, name, cycle(server, CHECKED, window, lab.folder))
    lab.say("sqs: where the time goes")
    with lab.running("watched", Watched) as watched:
        shares = watched.shares(lab.folder)
    return [_table(lab, found), _boto_table(lab, by_boto), _checked_table(checked), _where_table(shares)]


def _add(found: Found, cell: Cell, name: str, samples: Mapping[str, Sample]) -> None:
    for action, sample in samples.items():
        found[cell, action][name].append(sample)


def _warm(lab: Lab, server: SqsServer) -> None:
    """The JIT compiles what it sees often."""
    end_s = time.monotonic() + lab.scale.warm_s
    while (left_s := end_s - time.monotonic()) > 0:
        lab.say(f"warming {server.name}: {left_s:.0f} s left")
        for cell in CELLS:
            cycle(server, cell, Window(seconds=WARM_S, ramp_s=0.0), lab.folder)


def _per_s(samples: Iterable[Sample]) -> str:
    return f"{median(sample.per_s for sample in samples):,.0f}/s"


def _each(sides: Sequence[Sequence[Sample]]) -> str:
    return " / ".join(cpu_each(side) for side in sides)


def _cores(sides: Sequence[Sequence[Sample]]) -> str:
    return " / ".join(f"{median(sample.broker_busy for sample in side):.2f}" for side in sides)


def _table(lab: Lab, found: Found) -> Table:
    table = Table(
        slug="sqs",
        title=TITLE,
        columns=(
            "load",
            "messages/s, Penstock",
            "ElasticMQ",
            "ratio",
            "bar",
            "moto",
            "ratio",
            "bar",
            "broker CPU µs a message, Penstock / ElasticMQ / moto",
            "broker cores, the same",
            "client busy, the same",
        ),
        notes=[
            "AWS JSON 1.0, messages of 100 characters, requests signed beforehand, one in flight on each connection. "
            "All messages of a run are sent to a new standard queue, then received, then deleted by the receipts "
            "that came; afterwards the queue is asked what it still has (moto is not held to it: of many deletions "
            "at a time it forgets some). No server checks signatures here (see below).",
            "Penstock appends messages and deliveries to logs on disk before it answers; ElasticMQ and moto "
            "have all in memory and lose it with the process.",
            f"Rounds: {lab.scale.coordinator_rounds}, the three in turn for every load; of {lab.scale.window_s:g} s, "
            "or 100,000 messages; moto, which hangs up after every answer, is connected to again. ElasticMQ was "
            "warmed with these same loads for "
            f"{lab.scale.warm_s:g} s; it may use all cores, Penstock and moto use one.",
            noise(found.values()),
        ],
    )
    for (cell, action), samples in found.items():
        sides = [samples[name] for name in NAMES]
        table.rows.append(
            (
                f"{action}, {cell}",
                _per_s(sides[0]),
                _per_s(sides[1]),
                *_judged(table, f"{action}, {cell}, ElasticMQ", *sides[:2], SINGLES if cell.each == 1 else BATCHES),
                _per_s(sides[2]),
                *_judged(table, f"{action}, {cell}, moto", sides[0], sides[2], MOTO),
                _each(sides),
                _cores(sides),
                client(*sides),
            )
        )
    return table


def _judged(table: Table, what: str, ours: list[Sample], theirs: list[Sample], bar: Bar) -> tuple[str, str]:
    speed, text = ratio([each.per_s for each in ours], [each.per_s for each in theirs])
    return text, "client's ⚠" if is_client_bound(ours) else table.verdict(what, speed, bar)


def _boto_table(lab: Lab, found: Found) -> Table:
    table = Table(
        slug="sqs-boto3",
        title="The same with boto3",
        columns=(
            "load",
            "messages/s, Penstock",
            "ElasticMQ",
            "ratio",
            "moto",
            "ratio",
            "broker CPU µs a message, Penstock / ElasticMQ / moto",
            "client busy, the same",
        ),
        notes=[
            "One client in a process of its own, one request after another, all settings its own. What it takes for "
            "a request is most of the time that goes by: no bar applies where ⚠ stands. "
            f"Rounds: {lab.scale.coordinator_rounds} of {lab.scale.coordinator_s:g} s.",
            noise(found.values()),
        ],
    )
    for (cell, action), samples in found.items():
        sides = [samples[name] for name in NAMES]
        what = "single" if cell.each == 1 else f"batches of {cell.each}"
        table.rows.append(
            (
                f"{action}, {what}",
                _per_s(sides[0]),
                _per_s(sides[1]),
                ratio([each.per_s for each in sides[0]], [each.per_s for each in sides[1]])[1],
                _per_s(sides[2]),
                ratio([each.per_s for each in sides[0]], [each.per_s for each in sides[2]])[1],
                _each(sides),
                client(*sides),
            )
        )
    return table


def _checked_table(found: Found) -> Table:
    table = Table(
        slug="sqs-signatures",
        title="What checking signatures costs",
        columns=(
            "load",
            "messages/s, passed over",
            "checked",
            "ratio",
            "broker CPU µs a message, passed over / checked",
            "client busy, passed over / checked",
        ),
        notes=["Penstock with `--credentials` against Penstock without, the same requests."],
    )
    for (cell, action), samples in found.items():
        sides = [samples["passed over"], samples["checked"]]
        table.rows.append(
            (
                f"{action}, {cell}",
                _per_s(sides[0]),
                _per_s(sides[1]),
                ratio([each.per_s for each in sides[1]], [each.per_s for each in sides[0]])[1],
                _each(sides),
                client(*sides),
            )
        )
    return table


def _where_table(shares: Mapping[str, Mapping[str, float]]) -> Table:
    columns = (*PACKAGES, OTHER)
    table = Table(
        slug="sqs-where",
        title="Where a request's time goes",
        columns=("single", *columns),
        notes=[
            "Of what Penstock does from the moment that a request was read from its socket until the answer is given "
            "to the kernel, by package, as Python's profiler sees it: that makes every call dearer than it is, above "
            "all in packages of many small functions. `network` has the system call that sends. To read from the "
            "socket, and to wait for it, comes on top.",
        ],
    )
    for action, found in shares.items():
        table.rows.append((action, *(f"{found.get(name, 0.0):.0%}" for name in columns)))
    return table
