"""`penstock demo`: a short tour with a broker of its own, which ends by itself."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.cli.demo import queue as queue_part
from penstock.cli.demo import spark as spark_part

_COMMAND = str(Path(sys.executable).with_name("penstock"))


class Tour:
    """A broker in a folder that goes away, and commands that talk to it as a user would."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker: subprocess.Popen[str] | None = None
        self._bootstrap = ""

    def start_broker(self) -> None:
        """Start it on free ports; returns when it says that it is ready."""
        began = time.monotonic()
        listen = self._bootstrap or "127.0.0.1:0"
        arguments = ["serve", "--data-dir", str(self._folder / "data"), "--listen", listen, "--http", "127.0.0.1:0"]
        self._broker = subprocess.Popen(
            [_COMMAND, *arguments, "--log-level", "warning"], stdout=subprocess.PIPE, text=True
        )
        assert self._broker.stdout is not None
        ready = self._broker.stdout.readline()
        if "ready" not in ready:
            raise click.ClickException("the broker did not start; see above")
        self._bootstrap = ready.split("kafka ")[1].split(",")[0]
        click.echo(f"  ready after {time.monotonic() - began:.2f} s on {self._bootstrap}")

    def kill_broker(self, number: signal.Signals) -> None:
        if self._broker is not None:
            self._broker.send_signal(number)
            self._broker.wait()
            assert self._broker.stdout is not None
            self._broker.stdout.close()
            self._broker = None

    def run(self, *arguments: str, lines: Sequence[str] = (), show: int = 12) -> str:
        """Run a command, show it and the beginning of what it says."""
        click.secho(f"  $ penstock {' '.join(map(_quoted, arguments))}", fg="cyan")
        done = subprocess.run(
            [_COMMAND, *arguments],
            input="\n".join(lines) + "\n" if lines else None,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PENSTOCK_BOOTSTRAP": self._bootstrap},
        )
        said = done.stdout.splitlines()
        for line in said[:show]:
            click.echo(f"  {line}")
        if len(said) > show:
            click.echo(f"  … {len(said) - show} more lines")
        if done.returncode != 0:
            raise click.ClickException(f"that ended with code {done.returncode}")
        return done.stdout

    def work_off(self, queue: str, workers: int, poison: str | None) -> int:
        """Work off a queue by the Python API, in this process; how many messages were handled."""
        return queue_part.work_off(self._bootstrap, queue, workers, poison)

    def on_spark(self, *chapters: str) -> None:
        """The chapters that run on Spark, in this process."""
        spark_part.walk(self._bootstrap, self._folder, chapters)


def _quoted(argument: str) -> str:
    """As one types it: a condition that has single quotes is put in double ones."""
    if "'" in argument and not set(argument) & set('"\\`!'):
        return '"' + argument.replace("$", r"\$") + '"'
    return shlex.quote(argument)


@contextmanager
def _chapter(title: str) -> Iterator[None]:
    click.secho(f"\n{title}", bold=True)
    yield


@click.command()
def demo() -> None:
    """A tour: a broker of its own, a topic, a group, a crash, and nothing lost; a queue, a view, delays; then Spark.

    It takes about two minutes with Spark, and half a minute without.

    \b
    Examples:
      penstock demo
    """
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        tour = Tour(Path(folder))
        try:
            _walk(tour)
        finally:
            tour.kill_broker(signal.SIGTERM)
    click.secho("\nThat was it. Now yours: penstock serve", bold=True)


def _walk(tour: Tour) -> None:
    with _chapter("1. One process is a broker"):
        tour.start_broker()
    with _chapter("2. A topic with three partitions"):
        tour.run("topic", "create", "orders", "--partitions", "3")
    with _chapter("3. Publish: with a key and a tag, then a thousand lines from a pipe"):
        tour.run("publish", "orders", '{"id": 1, "item": "valve"}', "--key", "customer-42", "--tag", "eu")
        lines = [f'customer-{number % 50}:{{"id": {number}, "item": "pipe"}}' for number in range(2, 1002)]
        tour.run("publish", "orders", "--key-separator", ":", "--compression", "zstd", lines=lines, show=4)
    with _chapter("4. Read from the beginning, as often as you like"):
        tour.run("subscribe", "orders", "--from", "earliest", "--max", "5")
    with _chapter("5. Read as a group: it keeps its place, and its members share the partitions"):
        first = tour.run("subscribe", "orders", "--group", "billing", "--max", "400", "--json", show=2)
        tour.run("group", "describe", "billing")
        rest = tour.run("subscribe", "orders", "--group", "billing", "--json", show=2)
        together = {line for part in (first, rest) for line in part.splitlines()}
        if len(first.splitlines()) != 400 or len(together) != 1001:
            raise click.ClickException(f"expected 400 and then the other 601 messages, found {len(together)} in all")
        click.secho("  400 came to the first member, the other 601 to the next one", fg="green")
        tour.run("group", "reset", "billing", "--topic", "orders", "--to", "earliest")
    with _chapter("6. Kill the broker with -9 and start it again: what was acknowledged is there"):
        tour.kill_broker(signal.SIGKILL)
        tour.start_broker()
        found = tour.run("subscribe", "orders", "--from", "earliest", "--json", show=2).splitlines()
        if len(found) != 1001:
            raise click.ClickException(f"expected 1001 messages, found {len(found)}")
        click.secho("  1001 messages were acknowledged, 1001 are there", fg="green")
    with _chapter("7. What a topic looks like, and its settings"):
        tour.run("topic", "alter", "orders", "--config", "retention.ms=3600000")
        tour.run("topic", "describe", "orders")
    with _chapter("8. Trim what nobody needs any more"):
        tour.run("topic", "trim", "orders", "--before", "end", "--yes")
    _walk_queues(tour)
    _walk_beyond_kafka(tour)
    _walk_on_spark(tour)


def _walk_queues(tour: Tour) -> None:
    with _chapter("9. A queue: each message goes to one worker, and stays until that is done with it"):
        tour.run("queue", "create", "jobs-dead")
        tour.run("queue", "create", "jobs", "--dead-letter", "jobs-dead", "--max-receives", "2")
        tour.run("queue", "send", "jobs", lines=[f"job {number}" for number in range(1, 100)] + ["poison"])
        if tour.work_off("jobs", 2, "poison") != 99:
            raise click.ClickException("expected 99 jobs to be done")
    with _chapter("10. What failed twice is a dead letter; once its cause is mended, it goes back"):
        tour.run("queue", "list")
        tour.run("queue", "receive", "jobs-dead", "--visibility", "0s")
        tour.run("queue", "redrive", "jobs-dead")
        if tour.work_off("jobs", 1, None) != 1:
            raise click.ClickException("expected the dead letter to be done")
        tour.run("queue", "list")
        click.secho("  100 messages were sent, 100 were done, each by one worker", fg="green")


def _walk_beyond_kafka(tour: Tour) -> None:
    with _chapter("11. A view: any Kafka client reads it like a topic, and is sent only what matches"):
        tour.run("topic", "create", "parcels")
        for tag, count in (("us", 900), ("eu", 9)):
            lines = [f'{{"parcel": {number}, "kg": {number % 30}}}' for number in range(count)]
            tour.run("publish", "parcels", "--tag", tag, lines=lines, show=2)
        tour.run("view", "create", "heavy-eu", "--of", "parcels", "--where", "tag = 'eu' AND $.kg >= 5")
        found = tour.run("subscribe", "heavy-eu").splitlines()
        if len(found) != 4:
            raise click.ClickException(f"expected 4 of 909 messages, found {len(found)}")
        click.secho("  4 of 909 messages match", fg="green")
    with _chapter("12. Delayed messages: acknowledged at once, delivered when they are due, unless cancelled"):
        tour.run("topic", "create", "reminders", "--config", "delayed.messages=true")
        tour.run("publish", "reminders", "in two seconds", "--delay", "2s")
        tour.run("publish", "reminders", "next year", "--key", "renewal", "--delay", "364d")
        tour.run("publish", "reminders", "at once")
        tour.run("delayed", "list", "reminders")
        tour.run("delayed", "cancel", "reminders", "--key", "renewal")
        found = tour.run("subscribe", "reminders", "--from", "earliest", "--follow", "--max", "2").splitlines()
        if found != ["at once", "in two seconds"]:
            raise click.ClickException(f"expected what was due, in the order of that, found {found}")


def _walk_on_spark(tour: Tour) -> None:
    reason = spark_part.why_not()
    if reason is not None:
        click.secho(f"\nThe tour goes on with Spark where that is installed; here {reason}", bold=True)
        return
    with _chapter("13. A shop whose orders come at a steady rate"):
        tour.run("topic", "create", "shop", "--partitions", "3")
        tour.run("topic", "create", "totals")
    tour.on_spark(
        "14. Streaming SQL: orders and revenue of each item, exactly once into a topic",
        "15. Everything into a Delta table",
        "16. An audit proves that nothing was lost or doubled",
        "17. What went through, as tables and as a page",
    )
