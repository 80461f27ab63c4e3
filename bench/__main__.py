"""`python -m bench [QUESTION ...] [--quick]`: ask, measure, and write bench/RESULTS.md."""

import signal
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Final

import click
from rich.console import Console

from bench import measure
from bench.blocking_client import WrongAnswer
from bench.cache import BENCH, CACHE, NotRun, scratch
from bench.lab import Lab
from bench.load import LoadFailed
from bench.process import StartFailed
from bench.questions import QUESTIONS, Question
from bench.report import Table, write_up
from bench.scale import FULL, QUICK, SHORT
from penstock.foundation.errors import PenstockError

INSTALL_S_MAX: Final = 300
FAILURES: Final = (NotRun, StartFailed, LoadFailed, WrongAnswer, PenstockError, OSError, subprocess.SubprocessError)


@click.command()
@click.argument("slugs", metavar="[QUESTION]...", nargs=-1)
@click.option("--quick", is_flag=True, help="A few minutes instead of half an hour: small sizes, one round.")
@click.option("--short", is_flag=True, help="A third of the time: the same sizes, fewer and shorter rounds.")
@click.option("--list", "only_list", is_flag=True, help="Name the questions and leave.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the results go.")
def main(slugs: tuple[str, ...], quick: bool, short: bool, only_list: bool, output: Path | None) -> None:
    """Measure Penstock against its floor and its peers.

    All questions together write bench/RESULTS.md; some of them write bench/.cache/RESULTS.md, so that every figure
    in the former is from one run. Questions about queues are apart: `python -m bench queues` asks all of them, and
    writes bench/RESULTS-queues.md.
    """
    if only_list:
        for question in QUESTIONS:
            click.echo(f"{question.slug:12} {question.title}")
        return
    known = {name: None for question in QUESTIONS for name in (question.slug, question.about) if name}
    unknown = sorted(set(slugs) - set(known))
    if unknown:
        raise click.UsageError(f"there is no question {unknown[0]!r}; there are {', '.join(known)}")
    asked = [
        question
        for question in QUESTIONS
        if question.slug in slugs or (question.about in slugs if slugs else not question.about)
    ]
    stop = StopSignal()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    console = Console(stderr=True)
    began_s = time.monotonic()
    install_requirements(console)
    scale = QUICK if quick else SHORT if short else FULL
    with scratch("run") as folder:
        lab = Lab(folder, scale, lambda text: console.print(f"[dim]{time.monotonic() - began_s:5.0f} s[/] {text}"))
        tables = ask_all(asked, lab, stop)
    command = " ".join(["python -m bench", *slugs, *([] if scale is FULL else [f"--{scale.name}"])])
    text = write_up(tables, measure.machine(), command, scale, time.monotonic() - began_s)
    output = output or _results_of(slugs)
    output.write_text(text)
    console.print(f"written: {output}")
    click.echo(text)


def _results_of(slugs: tuple[str, ...]) -> Path:
    """Where the answers to these questions belong: figures of one file are of one run."""
    if len(slugs) == 1 and any(question.about == slugs[0] for question in QUESTIONS):
        return BENCH / f"RESULTS-{slugs[0]}.md"
    return (CACHE if slugs else BENCH) / "RESULTS.md"


class StopSignal:
    """Stops the servers when this run is terminated."""

    def __init__(self) -> None:
        self.was_given = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.was_given = True
        sys.exit(f"stopped by signal {number}")


def ask_all(asked: list[Question], lab: Lab, stop: StopSignal) -> list[Table]:
    """Every question's tables. What cannot be asked here, or went wrong, is said in place of its table."""
    tables: list[Table] = []
    try:
        for number, question in enumerate(asked):
            lab.say(question.title)
            try:
                tables += question.ask(lab)
            except FAILURES as error:
                if stop.was_given:  # and this is what became of it on the way out
                    raise SystemExit("stopped by a signal") from error
                lab.say(f"{question.slug}: {error}")
                reason = str(error) or type(error).__name__
                tables.append(Table(slug=question.slug, title=question.title, columns=(), reason_not_run=reason))
            if not any(later.needs_kafka for later in asked[number + 1 :]):
                lab.close_kafka()
    finally:
        lab.close_kafka()
    return tables


def install_requirements(console: Console) -> None:
    """What only the benchmark needs, into the environment that runs it. What cannot be had is noticed later."""
    file = BENCH / "requirements.txt"
    wanted = [line.split("==") for line in file.read_text().splitlines() if "==" in line]
    if all(_is_installed(name, pinned) for name, pinned in wanted):
        return
    console.print("installing bench/requirements.txt")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(file)]
    subprocess.run(command, timeout=INSTALL_S_MAX, check=False)


def _is_installed(name: str, pinned: str) -> bool:
    try:
        return version(name) == pinned
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
