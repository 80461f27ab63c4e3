"""`penstock demo`: a tour of topics, groups, queues, views, delays, schemas and Spark on a temporary broker."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from penstock.cli.demo import queue as queue_part
from penstock.cli.demo import spark as spark_part
from penstock.cli.supervisor import PENSTOCK

PAYMENTS: Final = """\
{"type": "record", "name": "Payment", "namespace": "shop",
 "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}]}
"""
PAYMENTS_WITH_CURRENCY: Final = PAYMENTS.replace("]}", ', {"name": "currency", "type": "string"}]}')


class Tour:
    """Runs a broker in a temporary folder, and `penstock` commands with that broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker: subprocess.Popen[str] | None = None
        self._bootstrap = ""
        self._http = ""

    def start_broker(self) -> None:
        """Starts the broker on a free port, or on its previous port after a restart; returns when it is ready."""
        began = time.monotonic()
        listen = self._bootstrap or "127.0.0.1:0"
        arguments = ["serve", "--data-dir", str(self._folder / "data"), "--listen", listen, "--http", "127.0.0.1:0"]
        self._broker = subprocess.Popen(
            [PENSTOCK, *arguments, "--log-level", "warning"], stdout=subprocess.PIPE, text=True
        )
        assert self._broker.stdout is not None
        ready = self._broker.stdout.readline()
        if "ready" not in ready:
            raise click.ClickException("the broker did not start; see above")
        self._bootstrap = ready.split("kafka ")[1].split(",")[0]
        self._http = ready.split("http ")[1].split(",")[0]
        click.echo(f"  ready after {time.monotonic() - began:.2f} s on {self._bootstrap}")

    def kill_broker(self, number: signal.Signals) -> None:
        if self._broker is not None:
            self._broker.send_signal(number)
            self._broker.wait()
            assert self._broker.stdout is not None
            self._broker.stdout.close()
            self._broker = None

    def write_file(self, name: str, text: str) -> None:
        """Writes a file for commands of the tour, which run in the folder of these files."""
        (self._folder / name).write_text(text)

    def run(self, *arguments: str, lines: Sequence[str] = (), show: int = 12, must_fail: bool = False) -> str:
        """Runs a `penstock` command with `lines` as input and returns its output; prints the first `show` lines. With
        `must_fail`, the command must exit with code 1."""
        click.secho(f"  $ penstock {' '.join(map(_quoted, arguments))}", fg="cyan")
        done = subprocess.run(
            [PENSTOCK, *arguments],
            input="\n".join(lines) + "\n" if lines else None,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            cwd=self._folder,
            env={**os.environ, "PENSTOCK_BOOTSTRAP": self._bootstrap},
        )
        output = done.stdout.splitlines()
        for line in output[:show]:
            click.echo(f"  {line}")
        if len(output) > show:
            click.echo(f"  … {len(output) - show} more lines")
        if done.returncode != int(must_fail):
            raise click.ClickException(f"the command exited with code {done.returncode}")
        return done.stdout

    def process_queue(self, queue: str, workers: int, poison: str | None) -> int:
        """Runs worker threads until the queue is idle; returns how many messages they handled. Handling a message
        whose body is `poison` always fails."""
        return queue_part.process_queue(self._bootstrap, queue, workers, poison)

    def run_spark_chapters(self, *chapters: str) -> None:
        """Runs the Spark chapters of the tour in this process. `chapters`: their headings, in order."""
        registry = f"http://{self._http}/registry"
        spark_part.run_chapters(self._bootstrap, registry, self._folder, chapters)


def _quoted(argument: str) -> str:
    """Returns an argument quoted for the shell, in double quotes if it contains single quotes."""
    if "'" in argument and not set(argument) & set('"\\`!'):
        return '"' + argument.replace("$", r"\$") + '"'
    return shlex.quote(argument)


@contextmanager
def _chapter(title: str) -> Iterator[None]:
    click.secho(f"\n{title}", bold=True)
    yield


@click.command()
def demo() -> None:
    """Show a guided tour of the features. It runs on a temporary broker.

    Takes about two minutes with Spark, and half a minute without.

    \b
    Examples:
      penstock demo
    """
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        tour = Tour(Path(folder))
        try:
            _run_chapters(tour)
        finally:
            tour.kill_broker(signal.SIGTERM)
    click.secho("\nEnd of the tour. Start your own broker with: penstock serve", bold=True)


def _run_chapters(tour: Tour) -> None:
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
    with _chapter("5. Read as a group: it commits its offsets, and its members share the partitions"):
        first = tour.run("subscribe", "orders", "--group", "billing", "--max", "400", "--json", show=2)
        tour.run("group", "describe", "billing")
        rest = tour.run("subscribe", "orders", "--group", "billing", "--json", show=2)
        together = {line for part in (first, rest) for line in part.splitlines()}
        if len(first.splitlines()) != 400 or len(together) != 1001:
            raise click.ClickException(f"expected 400 and then the other 601 messages, found {len(together)} in all")
        click.secho("  400 came to the first member, the other 601 to the next one", fg="green")
        tour.run("group", "reset", "billing", "--topic", "orders", "--to", "earliest")
    with _chapter("6. Kill the broker with -9 and restart it: no acknowledged message is lost"):
        tour.kill_broker(signal.SIGKILL)
        tour.start_broker()
        found = tour.run("subscribe", "orders", "--from", "earliest", "--json", show=2).splitlines()
        if len(found) != 1001:
            raise click.ClickException(f"expected 1001 messages, found {len(found)}")
        click.secho("  1001 messages were acknowledged, 1001 are there", fg="green")
    with _chapter("7. Describe a topic and change its settings"):
        tour.run("topic", "alter", "orders", "--config", "retention.ms=3600000")
        tour.run("topic", "describe", "orders")
    with _chapter("8. Delete old messages"):
        tour.run("topic", "trim", "orders", "--before", "end", "--yes")
    _run_queue_chapters(tour)
    _run_beyond_kafka_chapters(tour)
    _run_schema_chapter(tour)
    _run_spark_chapters(tour)


def _run_queue_chapters(tour: Tour) -> None:
    with _chapter("9. A queue: each message goes to one worker, and stays until the worker deletes it"):
        tour.run("queue", "create", "jobs-dead")
        tour.run("queue", "create", "jobs", "--dead-letter", "jobs-dead", "--max-receives", "2")
        tour.run("queue", "send", "jobs", lines=[f"job {number}" for number in range(1, 100)] + ["poison"])
        if tour.process_queue("jobs", 2, "poison") != 99:
            raise click.ClickException("expected 99 jobs to be processed")
    with _chapter("10. A message that failed twice is dead-lettered; redrive moves it back to its queue"):
        tour.run("queue", "list")
        tour.run("queue", "receive", "jobs-dead", "--visibility", "0s")
        tour.run("queue", "redrive", "jobs-dead")
        if tour.process_queue("jobs", 1, None) != 1:
            raise click.ClickException("expected the dead letter to be processed")
        tour.run("queue", "list")
        click.secho("  100 messages were sent, 100 were processed, each by one worker", fg="green")


def _run_beyond_kafka_chapters(tour: Tour) -> None:
    with _chapter("11. A view: any Kafka client reads it like a topic, and gets only matching messages"):
        tour.run("topic", "create", "shipments")
        for tag, count in (("us", 900), ("eu", 9)):
            lines = [f'{{"shipment": {number}, "kg": {number % 30}}}' for number in range(count)]
            tour.run("publish", "shipments", "--tag", tag, lines=lines, show=2)
        tour.run("view", "create", "heavy-eu", "--of", "shipments", "--where", "tag = 'eu' AND $.kg >= 5")
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
            raise click.ClickException(f"expected the messages that are due, in order of delivery, found {found}")


def _run_schema_chapter(tour: Tour) -> None:
    with _chapter(
        "13. A registered schema: messages without it are refused, and so are schemas that break consumers"
    ):
        tour.write_file("payment.avsc", PAYMENTS)
        tour.write_file("with-currency.avsc", PAYMENTS_WITH_CURRENCY)
        tour.run("schema", "register", "payments-value", "payment.avsc")
        tour.run("topic", "create", "payments", "--config", "schema.validation=true")
        tour.run("publish", "payments", "no schema", must_fail=True)
        tour.run("schema", "check", "payments-value", "with-currency.avsc", must_fail=True)


def _run_spark_chapters(tour: Tour) -> None:
    reason = spark_part.find_missing_requirement()
    if reason is not None:
        click.secho(f"\nThe Spark part of the tour is skipped: {reason}", bold=True)
        return
    with _chapter("14. A shop that publishes orders at a steady rate"):
        tour.run("topic", "create", "shop", "--partitions", "3")
        tour.run("topic", "create", "totals")
    tour.run_spark_chapters(
        "15. Streaming SQL: orders and revenue per item, exactly once into a topic",
        "16. A SQL table over a topic: its columns are those of the registered schema",
        "17. Archive the topic into a Delta table",
        "18. An audit proves that nothing was lost or duplicated",
        "19. Insights: traffic of the topics, as tables and as a web page",
    )
