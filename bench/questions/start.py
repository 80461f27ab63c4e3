"""How soon is a broker ready, and what does it take while it is idle?"""

import shutil
import signal
import sysconfig
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench import runs
from bench.broker import KafkaBroker
from bench.cache import BENCH, NotRun
from bench.lab import Lab
from bench.measure import forget_files, rss_anon_mb, rss_mb
from bench.peers.kafka import ApacheKafka
from bench.penstock import Penstock
from bench.report import AT_MOST, Bar, Table, ratio
from bench.scale import GB

TITLE: Final = "Start and idle memory"
READY: Final = Bar(sign=AT_MOST, value=2.0, unit=" s")
IDLE: Final = Bar(sign=AT_MOST, value=80.0, unit=" MB")
LESS: Final = Bar(sign=AT_MOST, value=1.0)
IDLE_S: Final = 5.0


def ask(lab: Lab) -> list[Table]:
    table = Table(
        slug="start",
        title=TITLE,
        columns=("what", "Penstock", "bar", "Kafka", "ratio", "bar"),
        notes=[
            "From the spawn of the process to the first answered ApiVersions request, probed every 2 ms, and, for "
            "Penstock, its ready line too. Kafka's storage is formatted beforehand.",
            "Cold: the interpreter's library, the environment and Penstock's own files are dropped from the page "
            "cache first, as far as no other process uses them. All other starts find them cached.",
            f"Idle: {IDLE_S:g} s after the first answer, no connections, an empty data folder.",
        ],
    )
    ours = _starts(lab, Penstock, lab.scale.starts)
    try:
        theirs = _starts(lab, ApacheKafka, max(1, lab.scale.starts - 2))
    except NotRun as reason:
        theirs = {}
        table.notes.append(f"Kafka was not run: {reason}")
    _row(table, "start, new folder", ours["start"], READY, theirs.get("start"), " s", 2)
    cold = [_cold_start(lab) for _ in range(lab.scale.starts)]
    _row(table, "start, new folder, cold", cold, READY, None, " s", 2)
    for what, seconds in _starts_with_log(lab).items():
        _row(table, what, seconds, READY, None, " s", 2)
    _row(table, "idle, RssAnon", ours["anon"], IDLE, theirs.get("anon"), " MB", 1)
    _row(table, "idle, all resident (VmRSS)", ours["all"], IDLE, theirs.get("all"), " MB", 1)
    return [table]


def _row(
    table: Table, what: str, ours: list[float], bar: Bar, theirs: list[float] | None, unit: str, digits: int
) -> None:
    figure = median(ours)
    row = [what, f"**{figure:.{digits}f}{unit}**", table.verdict(what, figure, bar)]
    if theirs:
        middle, text = ratio([figure], [median(theirs)])
        row += [f"{median(theirs):.{digits}f}{unit}", text, table.verdict(f"{what}, against Kafka", middle, LESS)]
    else:
        row += ["", "", ""]
    table.rows.append(row)


def _starts(lab: Lab, kind: type[KafkaBroker], count: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"start": [], "anon": [], "all": []}
    for number in range(count):
        lab.say(f"start: {kind.name}, {number + 1} of {count}")
        folder = lab.fresh_folder("start")
        server = kind(folder)
        try:
            server.start()
            found["start"].append(server.ready_s)
            time.sleep(IDLE_S if number == 0 else 0)
            if number == 0:
                found["anon"].append(rss_anon_mb(server.pid))
                found["all"].append(rss_mb(server.pid))
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _cold_start(lab: Lab) -> float:
    lab.say("start: cold")
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("platlib"), BENCH.parent / "src"):
        forget_files(Path(folder))
    with lab.penstock() as server:
        return server.ready_s


def _starts_with_log(lab: Lab) -> dict[str, list[float]]:
    """Starts on a log of some size, after a clean stop and after the process was killed in the middle of a write."""
    size = f"{lab.scale.start_log_bytes / GB:g} GB of log"
    found: dict[str, list[float]] = {f"start, {size}": [], f"start, {size}, after kill -9": []}
    clean, killed = found
    with lab.penstock() as server:
        topic = server.make_topic(runs.MEDIUM, 1)
        lab.say(f"start: writing {size}")
        runs.append(server, runs.MEDIUM, topic, lab.scale.start_log_bytes // runs.MEDIUM.batch_bytes, lab.folder)
        for _ in range(lab.scale.starts):
            lab.say(f"start: with {size}")
            server.stop()
            server.start()
            found[clean].append(server.ready_s)
            runs.append(server, runs.MEDIUM, topic, 1000, lab.folder)
            server.stop(signal.SIGKILL)
            server.start()
            found[killed].append(server.ready_s)
    return found
