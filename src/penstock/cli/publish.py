"""`penstock publish`: sends messages to a topic and prints their partitions and offsets."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import (
    Pairs,
    cluster_options,
    echo_json,
    echo_table,
    pairs_option,
    parse_time,
    run_client,
    value_parser,
)
from penstock.cli.message_input import Message, read_messages
from penstock.client.accumulator import UNKNOWN_OFFSET, Published
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.partitioner import PARTITIONERS
from penstock.client.producer import Acks, Producer, ProducerSettings
from penstock.foundation.delays import (
    DELAY,
    DELAYED_MESSAGES_SETTING,
    DELIVER_AT,
    BadDelay,
    delays_disabled_message,
    is_delayed,
    parse_delivery_time,
)
from penstock.foundation.errors import PenstockError
from penstock.records.compression import Codec

WAITING_MAX: Final = 20_000
"""Maximum number of unacknowledged messages; at this number, the command waits until the oldest is acknowledged."""
ROWS_MAX: Final = 20
"""Maximum number of messages that are listed one by one; more are summarised per partition."""
_TIME: Final = value_parser(parse_time)
_ACKS: Final = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}


@click.command()
@click.argument("topic")
@click.argument("messages", nargs=-1, metavar="[MESSAGE…]")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this file as one message, or with --lines as one message per line. Repeatable.",
)
@click.option("--lines", is_flag=True, help="Send each line of a --file as a message.")
@click.option("--key", help="Key of all messages; messages with the same key stay in order in one partition.")
@click.option("--key-separator", metavar="SEP", help="Split each line or argument into KEY SEP VALUE.")
@pairs_option("--header", "headers", help="Add a header to all messages. Repeatable.")
@click.option("--tag", help="Same as --header tag=TAG, which views can filter by.")
@click.option("--partition", type=click.IntRange(0), help="Send to this partition.  [chosen by key, else any]")
@click.option(
    "--partitioner",
    type=click.Choice(list(PARTITIONERS)),
    default="murmur2",
    show_default=True,
    help="How a key selects a partition: murmur2 as in Java, kafka-python, aiokafka and franz-go; consistent as in "
    "librdkafka (confluent-kafka, kcat) by default.",
)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    help="Compression of record batches.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Acknowledgement to wait for: 0 none, 1 the leader, all the in-sync replicas.",
)
@click.option("--timestamp", metavar="TIME", callback=_TIME, help="Timestamp of all messages.  [now]")
@click.option("--delay", metavar="DURATION", help="Deliver after a delay: 500ms, 30s, 5m, 2h, 7d.")
@click.option("--deliver-at", metavar="TIME", callback=_TIME, help="Deliver at this time.")
@cluster_options
def publish(
    topic: str,
    messages: tuple[str, ...],
    files: tuple[Path, ...],
    lines: bool,
    key: str | None,
    key_separator: str | None,
    headers: Pairs,
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
    """Publish messages to a topic. Messages are arguments, lines of standard input (default, or -), or files.

    Prints the partition and offset of each message, or a summary per partition if there are many. With --acks all a
    message is stored exactly once, even after retries. TIME is RFC 3339, or @ and milliseconds since 1970.

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
    tags += _delay_headers(delay, deliver_at)
    source = read_messages(
        messages,
        files,
        lines=lines,
        key=None if key is None else key.encode(errors="surrogateescape"),
        separator=None if key_separator is None else key_separator.encode(errors="surrogateescape"),
    )
    report = _Report(topic, as_json)
    settings = ProducerSettings(acks=_ACKS[acks], codec=Codec[compression.upper()], partitioner=partitioner)
    job = _PublishJob(
        topic=topic,
        headers=tuple((name, value.encode(errors="surrogateescape")) for name, value in [*tags, *headers]),
        partition=partition,
        timestamp_ms=timestamp,
        report=report,
    )
    is_stream = lines or not (messages or files) or "-" in messages
    try:
        with _progress(is_stream and not (as_json and sys.stdout.isatty())) as advance:
            run_client(bootstrap, lambda client: job.run(client, settings, source, advance))
    finally:
        report.end()  # also after an error: these messages were published


def _check_options(
    messages: tuple[str, ...], files: tuple[Path, ...], lines: bool, key: str | None, separator: str | None
) -> None:
    if key is not None and separator is not None:
        raise click.UsageError("--key and --key-separator both set the key: give one of them")
    if separator == "":
        raise click.UsageError("--key-separator needs at least one character")
    if lines and not files:
        raise click.UsageError("--lines needs --file; standard input is always read line by line")
    if not messages and not files and sys.stdin.isatty():
        click.echo("Type messages, one per line; Ctrl-D ends.", err=True)


def _delay_headers(delay: str | None, deliver_at: int | None) -> list[tuple[str, str]]:
    """Returns the record header that delays messages, as a list; an empty list if neither argument is given."""
    if delay is not None and deliver_at is not None:
        raise click.UsageError("--delay and --deliver-at both set the delivery time: give one of them")
    if deliver_at is not None:
        return [(DELIVER_AT, str(deliver_at))]
    if delay is None:
        return []
    try:
        parse_delivery_time(DELAY, delay.encode(errors="replace"))
    except BadDelay as error:
        raise click.UsageError(f"--delay: {error}") from error
    return [(DELAY, delay)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishJob:
    """Sends all messages, and reports each acknowledged message in the order of sending."""

    topic: str
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    timestamp_ms: int | None
    report: "_Report"

    async def run(
        self,
        client: KafkaClient,
        settings: ProducerSettings,
        source: AsyncIterator[Message],
        advance: Callable[[], None],
    ) -> None:
        answers: deque[asyncio.Future[Published]] = deque()
        await client.topic(self.topic)  # fail on a wrong name before reading input
        if is_delayed(self.headers):
            await self._check_delays(Admin(client))
        async with Producer(client, settings) as producer:
            async for message in source:
                answer = await producer.send(
                    self.topic,
                    message.value,
                    key=message.key,
                    headers=self.headers,
                    timestamp_ms=self.timestamp_ms,
                    partition=self.partition,
                )
                answers.append(answer)
                advance()
                while answers and (answers[0].done() or len(answers) > WAITING_MAX):
                    await self._report_answer(answers.popleft())
            with contextlib.suppress(PenstockError):  # reported by each message's answer
                await producer.flush()
            while answers:
                await self._report_answer(answers.popleft())

    async def _check_delays(self, admin: Admin) -> None:
        configs = {entry.name: entry.value for entry in await admin.configs(self.topic)}
        if configs.get(DELAYED_MESSAGES_SETTING) != "true":
            raise click.ClickException(delays_disabled_message(self.topic))

    async def _report_answer(self, answer: "asyncio.Future[Published]") -> None:
        try:
            self.report.add(await answer)
        except PenstockError as error:
            number = self.report.count + 1
            raise click.ClickException(
                f"message {number} was not published ({number - 1} before it were): {error}"
            ) from error


class _Report:
    """Prints partition and offset of each message: as JSON lines immediately, or as a table at the end."""

    def __init__(self, topic: str, as_json: bool) -> None:
        self._topic = topic
        self._as_json = as_json
        self.count = 0
        self._first: list[Published] = []
        self._spans: dict[int, tuple[int, int, int]] = {}

    def add(self, published: Published) -> None:
        self.count += 1
        partition, offset = published
        if self._as_json:
            known = offset if offset != UNKNOWN_OFFSET else None
            echo_json({"topic": self._topic, "partition": partition, "offset": known})
            return
        if len(self._first) < ROWS_MAX:
            self._first.append(published)
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
    """Yields a function to call for each message. If `is_wanted`, it shows a count on standard error, provided
    that standard error is a terminal and standard input is not."""
    if not is_wanted or not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} messages"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publishing", total=None)
        yield lambda: progress.advance(task)
