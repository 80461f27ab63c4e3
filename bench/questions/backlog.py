"""What does a million of waiting messages cost?"""

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Final

from bench.blocking_client import WrongAnswer
from bench.lab import Lab
from bench.load import Sample
from bench.measure import rss_anon_mb, settle
from bench.penstock import Penstock
from bench.report import AT_MOST, Bar, Table, client, noise, ratio
from bench.runs import FILL_S_MAX, Window
from bench.sqs import runs
from bench.sqs.blocking_client import SqsBlockingClient
from bench.sqs.runs import Cell

TITLE: Final = "Messages that wait"
FEW: Final = 1000
MORE_MB: Final = Bar(sign=AT_MOST, value=100, unit=" MB")
NO_SLOWER: Final = Bar(sign=AT_MOST, value=1.5)
RATE_PER_S: Final = 500
CONNECTIONS: Final = 16
FILLING: Final = Cell(32, 10)
REST_S: Final = 11.0
"""After a load: receive buffers that are no longer needed are released within ten seconds."""


def ask(lab: Lab) -> list[Table]:
    many = lab.scale.waiting_messages
    latencies: dict[int, list[Sample]] = defaultdict(list)
    memory: dict[str, float] = {}
    with lab.penstock() as penstock:
        with SqsBlockingClient(penstock.http_port) as connection:
            queues = {FEW: connection.make_queue(), many: connection.make_queue()}
        _fill(lab, penstock, queues[FEW], FEW)
        _work(lab, penstock, queues[FEW], 1.0)
        memory[f"{FEW:,} waiting"] = _memory_mb(penstock)
        lab.say(f"backlog: sending {many:,} messages")
        _fill(lab, penstock, queues[many], many)
        memory[f"{many:,} waiting"] = _memory_mb(penstock)
        for number in range(lab.scale.latency_rounds):
            for waiting, url in queues.items():
                lab.say(f"backlog: round {number + 1}, {waiting:,} waiting")
                latencies[waiting].append(_work(lab, penstock, url, lab.scale.latency_s))
        memory[f"{many:,} waiting, after receiving"] = _memory_mb(penstock)
        with SqsBlockingClient(penstock.http_port) as connection:
            if connection.messages_in(queues[many]) < many:
                raise WrongAnswer("messages were lost though none was deleted")
    return [_memory_table(memory), _latency_table(lab, latencies)]


def _fill(lab: Lab, penstock: Penstock, url: str, messages: int) -> None:
    runs.send(penstock, url, FILLING, Window(seconds=FILL_S_MAX, ramp_s=0.0), lab.folder, messages)
    settle()


def _work(lab: Lab, penstock: Penstock, url: str, seconds: float) -> Sample:
    """Receive by the clock. As much is sent meanwhile, so that as many wait at the end as at the beginning."""
    window = Window(seconds=seconds, ramp_s=1.0, rate_per_s=RATE_PER_S)
    cell = Cell(CONNECTIONS, 1)
    with ThreadPoolExecutor(1) as other:
        sending = other.submit(runs.send, penstock, url, cell, window, lab.fresh_folder("sending"))
        sample = runs.receive(penstock, url, cell, window, runs.MESSAGES_MAX, lab.folder)
        sending.result()
    return sample


def _memory_mb(penstock: Penstock) -> float:
    time.sleep(REST_S)
    return rss_anon_mb(penstock.pid)


def _memory_table(memory: dict[str, float]) -> Table:
    table = Table(
        slug="backlog-memory",
        title="Memory of messages that wait",
        columns=("when", "RssAnon", "more than with the first", "bar"),
        notes=[
            "One broker with two queues, one of which has few messages. Messages of 100 characters, sent ten in a "
            f"request. Memory is looked at {REST_S:g} s after the load has ended.",
        ],
    )
    first_mb = next(iter(memory.values()))
    for at, (when, size_mb) in enumerate(memory.items()):
        more = size_mb - first_mb
        cells = (f"{more:.1f} MB", table.verdict(when, more, MORE_MB)) if at else ("", "")
        table.rows.append((when, f"{size_mb:.1f} MB", *cells))
    return table


def _latency_table(lab: Lab, found: dict[int, list[Sample]]) -> Table:
    (few, few_samples), (many, many_samples) = found.items()
    table = Table(
        slug="backlog-latency",
        title=f"Receiving with {many:,} messages waiting, against {few:,}",
        columns=("load", f"µs with {few:,}", f"µs with {many:,}", "ratio", "bar", "client busy"),
        notes=[
            f"ReceiveMessage, {RATE_PER_S} a second by the clock over {CONNECTIONS} connections, and as many "
            "SendMessage beside it from another process; what is received is in flight then. Latency counts from "
            f"when a request should have been sent. Rounds: {lab.scale.latency_rounds} of {lab.scale.latency_s:g} s, "
            "the two queues in turn; figures are medians.",
            noise([{"few": few_samples, "many": many_samples}]),
        ],
    )
    for name in ("p50_us", "p99_us"):
        sides = [[getattr(sample, name) for sample in side] for side in (many_samples, few_samples)]
        middle, text = ratio(*sides)
        what = f"receive, {name.removesuffix('_us')}"
        table.rows.append(
            (
                what,
                f"{median(sides[1]):,.0f}",
                f"{median(sides[0]):,.0f}",
                text,
                table.verdict(what, middle, NO_SLOWER) if name == "p99_us" else "",
                client(few_samples, many_samples),
            )
        )
    return table
