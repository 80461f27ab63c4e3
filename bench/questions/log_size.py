"""Does memory grow with what is kept?"""

import time
from typing import Final

from bench import runs
from bench.lab import Lab
from bench.measure import rss_anon_mb, rss_mb
from bench.penstock import Penstock
from bench.report import AT_MOST, Bar, Table
from bench.runs import Window
from bench.scale import GB

TITLE: Final = "Memory as the log grows"
NO_GROWTH: Final = Bar(sign=AT_MOST, value=1.1)
READ_S: Final = 2.0
REST_S: Final = 11.0
"""Receive buffers that were not used for five to ten seconds are released."""


def ask(lab: Lab) -> list[Table]:
    table = Table(
        slug="log-size",
        title=TITLE,
        columns=("when", "RssAnon", "against the smaller log", "bar", "all resident (VmRSS)"),
        notes=[
            "One partition, filled with 128 KiB batches by the generator; then batches from all over it are read "
            f"for {READ_S:g} s. VmRSS counts the page cache that the broker has mapped to send from, which the "
            "kernel takes back when it needs it.",
            f"Memory is measured {REST_S:g} s after the load has ended, when the broker has released the receive "
            "buffers that it no longer needs. It counts as not growing if it is at most a tenth more.",
        ],
    )
    shape, batches = runs.LARGE, 0
    lab.need_disk(lab.scale.log_bytes[-1])
    seen: dict[str, float] = {}
    with lab.penstock() as penstock:
        _row(table, penstock, "idle, no log", None)
        topic = penstock.make_topic(shape, 1)
        for size_bytes in lab.scale.log_bytes:
            lab.say(f"log-size: filling to {size_bytes / GB:g} GB")
            wanted = size_bytes // shape.batch_bytes
            runs.append(penstock, shape, topic, wanted - batches, lab.folder)
            batches = wanted
            when = f"{size_bytes / GB:g} GB"
            seen[f"written {when}"] = _row(table, penstock, f"{when} written", seen.get("written"))
            runs.fetch(runs.readable(penstock, shape, topic, batches), Window(seconds=READ_S, ramp_s=0), lab.folder)
            seen[f"read {when}"] = _row(table, penstock, f"{when}, after reading", seen.get("read"))
            seen.setdefault("written", seen[f"written {when}"])
            seen.setdefault("read", seen[f"read {when}"])
        lab.say("log-size: restarting")
        penstock.stop()
        penstock.start()
        _row(table, penstock, f"{when}, after a restart", seen["written"])
    return [table]


def _row(table: Table, penstock: Penstock, when: str, before_mb: float | None) -> float:
    time.sleep(REST_S)
    own_mb = rss_anon_mb(penstock.pid)
    ratio = f"**{own_mb / before_mb:.2f}**" if before_mb else ""
    verdict = table.verdict(f"RssAnon, {when}", own_mb / before_mb, NO_GROWTH) if before_mb else ""
    table.rows.append((when, f"{own_mb:.1f} MB", ratio, verdict, f"{rss_mb(penstock.pid):.0f} MB"))
    return own_mb
