"""`penstock publish`: messages into a topic."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import click

from penstock.cli.common import bootstrap_option, echo_json, echo_table, json_option, parse_pairs, parse_time, run
from penstock.cli.message_input import Message, read_messages
from penstock.client.accumulator import UNKNOWN_OFFSET, Published
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.partitioner import PARTITIONERS
from penstock.client.producer import Acks, Producer, ProducerSettings
from penstock.foundation.delays import (
    DELAY,
    DELIVER_AT,
    HOLDS_BACK,
    BadDelay,
    how_to_hold_back,
    is_delayed,
    parse_delivery_time,
)
from penstock.foundation.errors import PenstockError
from penstock.records.compression import Codec

WAITING_MAX: Final = 20_000
"""Messages under way before the oldest is waited for."""
ROWS_MAX: Final = 20
"""More messages than this are summed up by partition."""
_ACKS: Final = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}


def _parse_timestamp(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("topic")
@click.argument("messages", nargs=-1, metavar="[MESSAGE…]")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that is one message; with --lines, one message a line. Repeat for more.",
)
@click.option("--lines", is_flag=True, help="Each line of a --file is a message.")
@click.option("--key", help="The key of every message: equal keys go to the same partition, in order.")
@click.option("--key-separator", metavar="SEP", help="Lines and arguments are KEY SEP VALUE.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=parse_pairs,
    help="A header. Repeat for more.",
)
@click.option("--tag", help="The same as --header tag=TAG; views can select by it.")
@click.option("--partition", type=click.IntRange(0), help="The partition.  [by key, else any]")
@click.option(
    "--partitioner",
    type=click.Choice(list(PARTITIONERS)),
    default="murmur2",
    show_default=True,
    help="Which partition a key goes to: murmur2 as with Java, kafka-python, aiokafka and franz-go; consistent as "
    "with librdkafka (confluent-kafka, kcat) unless that is told otherwise.",
)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Who must have a message before it counts: nobody, its leader, all in-sync replicas.",
)
@click.option("--timestamp", metavar="TIME", callback=_parse_timestamp, help="The time of every message.  [now]")
@click.option("--delay", metavar="WHILE", help="Hold every message back: 500ms, 30s, 5m, 2h, 7d.")
@click.option("--deliver-at", metavar="TIME", callback=_parse_timestamp, help="Or until a time.")
@bootstrap_option
@json_option
def publish(
    topic: str,
    messages: tuple[str, ...],
    files: tuple[Path, ...],
    lines: bool,
    key: str | None,
    key_separator: str | None,
    headers: list[tuple[str, str]],
    tag: str | None,
    partition: int | None,
    partitioner: str,
    compression: str,
    acks: str,
    timestamp: int | None,
    delay: str | None,
    deliver_at: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Publish messages to a topic: the arguments, or the lines of standard input (also as -), or files.

    Shows where each message went; many are summed up by partition. With acks=all a message is kept once, even if it
    had to be sent again. Times are RFC 3339, or milliseconds since 1970 after an @.

    \b
    Examples:
      penstock publish orders "hello" --key 42
      penstock publish orders '{"id": 7}' --tag eu --header trace=abc
      cat orders.txt | penstock publish orders --key-separator : --compression zstd
      penstock publish orders "remind me" --delay 30s
      penstock publish orders --file photo.jpg --timestamp 2026-01-31T12:00:00Z
    """
    _check_options(messages, files, lines, key, key_separator)
    tags = [("tag", tag)] if tag is not None else []
    tags += _delays(delay, deliver_at)
    source = read_messages(
        messages,
        files,
        lines=lines,
        key=None if key is None else key.encode(errors="surrogateescape"),
        separator=None if key_separator is None else key_separator.encode(errors="surrogateescape"),
    )
    report = _Report(topic, as_json)
    settings = ProducerSettings(acks=_ACKS[acks], codec=Codec[compression.upper()], partitioner=partitioner)
    job = _Job(
        topic=topic,
        headers=[(name, value.encode(errors="surrogateescape")) for name, value in [*tags, *headers]],
        partition=partition,
        timestamp_ms=timestamp,
        report=report,
    )
    is_stream = lines or not (messages or files) or "-" in messages
    try:
        with _progress(is_stream and not (as_json and sys.stdout.isatty())) as advance:
            run(job.run(bootstrap, settings, source, advance))
    finally:
        report.end()  # what was published is told, whatever stopped the rest


def _check_options(
    messages: tuple[str, ...], files: tuple[Path, ...], lines: bool, key: str | None, separator: str | None
) -> None:
    if key is not None and separator is not None:
        raise click.UsageError("--key and --key-separator both say what the key is: give one of them")
    if separator == "":
        raise click.UsageError("--key-separator needs at least one character")
    if lines and not files:
        raise click.UsageError("--lines is for --file; standard input is read by lines anyway")
    if not messages and not files and sys.stdin.isatty():
        click.echo("Type messages, one a line; Ctrl-D ends.", err=True)


def _delays(delay: str | None, deliver_at: int | None) -> list[tuple[str, str]]:
    """The header that says when messages are delivered, if they are delayed."""
    if delay is not None and deliver_at is not None:
        raise click.UsageError("--delay and --deliver-at both say when messages are delivered: give one of them")
    if deliver_at is not None:
        return [(DELIVER_AT, str(deliver_at))]
    if delay is None:
        return []
    try:
        parse_delivery_time(DELAY, delay.encode(errors="replace"))
    except BadDelay as error:
        raise click.UsageError(f"--delay: {error}") from error
    return [(DELAY, delay)]


class _Job:
    """Sends everything and reports every answer, in order."""

    def __init__(
        self,
        *,
        topic: str,
        headers: list[tuple[str, bytes]],
        partition: int | None,
        timestamp_ms: int | None,
        report: "_Report",
    ) -> None:
        self._topic = topic
        self._headers = tuple(headers)
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._report = report

    async def run(
        self,
        bootstrap: str,
        settings: ProducerSettings,
        source: AsyncIterator[Message],
        advance: Callable[[], None],
    ) -> None:
        answers: deque[asyncio.Future[Published]] = deque()
        async with KafkaClient(bootstrap, rng=Random()) as client:
            await client.topic(self._topic)  # a wrong name is noticed before anything is read
            if is_delayed(self._headers):
                await self._check_delays(Admin(client))
            async with Producer(client, settings) as producer:
                async for message in source:
                    answer = await producer.send(
                        self._topic,
                        message.value,
                        key=message.key,
                        headers=self._headers,
                        timestamp_ms=self._timestamp_ms,
                        partition=self._partition,
                    )
                    answers.append(answer)
                    advance()
                    while answers and (answers[0].done() or len(answers) > WAITING_MAX):
                        await self._settle(answers.popleft())
                with contextlib.suppress(PenstockError):  # the answers tell it one by one
                    await producer.flush()
                while answers:
                    await self._settle(answers.popleft())

    async def _check_delays(self, admin: Admin) -> None:
        configs = {entry.name: entry.value for entry in await admin.configs(self._topic)}
        if configs.get(HOLDS_BACK) != "true":
            raise click.ClickException(how_to_hold_back(self._topic))

    async def _settle(self, answer: "asyncio.Future[Published]") -> None:
        try:
            self._report.add(await answer)
        except PenstockError as error:
            number = self._report.count + 1
            raise click.ClickException(
                f"message {number} was not published ({number - 1} before it were): {error}"
            ) from error


class _Report:
    """Shows where messages went: one by one as JSON, or as a table at the end."""

    def __init__(self, topic: str, as_json: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self.count = 0
        self._first: list[Published] = []
        self._spans: dict[int, tuple[int, int, int]] = {}

    def add(self, place: Published) -> None:
        self.count += 1
        partition, offset = place
        if self._as_json:
            known = offset if offset != UNKNOWN_OFFSET else None
            echo_json({"topic": self._topic, "partition": partition, "offset": known})
            return
        if len(self._first) < ROWS_MAX:
            self._first.append(place)
        count, first, _ = self._spans.get(partition, (0, offset, offset))
        self._spans[partition] = count + 1, first, offset

    def end(self) -> None:
        if self._as_json or not self.count:
            return
        if self.count <= ROWS_MAX:
            rows = [(self._topic, partition, _shown(offset)) for partition, offset in self._first]
            echo_table(["TOPIC", "#PARTITION", "#OFFSET"], rows)
            return
        echo_table(
            ["TOPIC", "#PARTITION", "#MESSAGES", "#FIRST OFFSET", "#LAST OFFSET"],
            [
                (self._topic, partition, count, _shown(first), _shown(last))
                for partition, (count, first, last) in sorted(self._spans.items())
            ],
        )


def _shown(offset: int) -> int | None:
    return None if offset == UNKNOWN_OFFSET else offset


@contextlib.contextmanager
def _progress(is_wanted: bool) -> Iterator[Callable[[], None]]:
    """Counts messages on standard error, where that is a terminal and nobody types into the same one."""
    if not is_wanted or not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} messages"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publishing", total=None)
        yield lambda: progress.advance(task)
