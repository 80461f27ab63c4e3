"""Shared helpers of CLI commands: options, time and offset parsing, tables, JSON lines, running async work."""

import asyncio
import contextlib
import json
import signal
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import click

from penstock.client.address import BOOTSTRAP_DEFAULT, parse_bootstrap
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.offsets import Origin, Start
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import read_properties

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
Pairs = list[tuple[str, str]]

PIPE_COLUMNS: Final = 10_000
"""Table width, in columns, if standard output is not a terminal: so large that rows are never cut or wrapped."""
_PROPERTIES: Final = "penstock.client_properties"
_SECURITY: Final = "penstock.client_security"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_FORMS: Final = "2026-01-31T12:00:00Z or @1767225600000 (ms since 1970)"


# -- options


def value_parser(parse: Callable[[Any], T]) -> Callable[[click.Context, click.Parameter, Any], T | None]:
    """Returns a click callback that parses an option's value, if given; a ValueError becomes a usage error."""

    def callback(ctx: click.Context, option: click.Parameter, value: Any) -> T | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def check_bootstrap(text: str) -> str:
    """Returns the text, if it is addresses of brokers. Raises ValueError."""
    parse_bootstrap(text)
    return text


def _read_command_config(ctx: click.Context, option: click.Parameter, file: Path | None) -> None:
    """Stores the client properties of `--command-config`, which `client_properties` returns."""
    if file is None:
        return
    try:
        properties = read_properties(file)
        ctx.meta[_PROPERTIES], ctx.meta[_SECURITY] = properties, SecuritySettings.parse(properties)
    except InvalidConfig as error:
        raise click.BadParameter(str(error)) from error


def client_properties() -> dict[str, str]:
    """Returns the properties of the running command's `--command-config`; none if it has none."""
    ctx = click.get_current_context(silent=True)
    return {} if ctx is None else ctx.meta.get(_PROPERTIES, {})


def client_settings() -> ClientSettings:
    """Returns the settings of the running command's clients, with the security of `--command-config`."""
    ctx = click.get_current_context(silent=True)
    security = PLAINTEXT if ctx is None else ctx.meta.get(_SECURITY, PLAINTEXT)
    return ClientSettings(connection=ConnectionSettings(security=security))


def bootstrap_option(command: Command) -> Command:
    """Decorator that adds --bootstrap, and --command-config, which `run_client` and `client_settings` apply."""
    command = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="PENSTOCK_COMMAND_CONFIG",
        show_envvar=True,
        expose_value=False,
        callback=_read_command_config,
        help="Kafka client properties for TLS and SASL: security.protocol, ssl.…, sasl.….",
    )(command)
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        envvar="PENSTOCK_BOOTSTRAP",
        default=BOOTSTRAP_DEFAULT,
        callback=value_parser(check_bootstrap),
        show_default=True,
        show_envvar=True,
        help="Addresses of brokers; one that is reachable is enough.",
    )(command)


def store_config_option(command: Command) -> Command:
    """Decorator that adds --store-config; the command receives a StoreSecurity."""
    from penstock.coordination.store_security import StoreSecurity

    return click.option(
        "--store-config",
        "store_security",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=lambda ctx, option, file: StoreSecurity.read(file),
        help="Properties for TLS and a login at the store: security.protocol, ssl.…, sasl.username, sasl.password.",
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")(command)


def cluster_options(command: Command) -> Command:
    """Decorator that adds the options --bootstrap and --json to a command."""
    return bootstrap_option(json_option(command))


def pairs_option(*names: str, help: str, metavar: str = "NAME=VALUE") -> Callable[[Command], Command]:
    """Returns a decorator that adds a repeatable NAME=VALUE option; the command receives a list of pairs."""
    return click.option(*names, multiple=True, metavar=metavar, callback=_parse_pairs, help=help)


def _parse_pairs(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> Pairs:
    """Parses repeated `NAME=VALUE` options; raises click.BadParameter."""
    pairs = []
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not name=value")
        pairs.append((name, value))
    return pairs


# -- times and offsets


def parse_time(text: str) -> int:
    """Parses `2026-01-31T12:00:00Z` or `@1767225600000` to milliseconds since 1970; raises ValueError.

    >>> parse_time("2026-01-01T00:00:00Z")
    1767225600000
    """
    if text.startswith("@"):
        if not text[1:].isdecimal():
            raise ValueError(f"{text!r} is not a valid time; expected {_TIME_FORMS}")
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a valid time; expected {_TIME_FORMS}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; expected {_TIME_FORMS}")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def format_time(timestamp_ms: int) -> str:
    """Formats a timestamp as RFC 3339 in UTC; as `@MILLISECONDS` if datetime cannot represent it.

    >>> format_time(1767225600000)
    '2026-01-01T00:00:00.000Z'
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"@{timestamp_ms}"
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_start(text: str) -> Start:
    """Parses a start position: earliest, latest, an offset, -N (N before the end), RFC 3339, or `@MILLISECONDS`."""
    if text in (Origin.EARLIEST.value, Origin.LATEST.value):
        return Start(Origin(text))
    if text.isdecimal():
        return Start(Origin.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Start(Origin.BACK, int(text[1:]))
    try:
        return Start(Origin.TIME, parse_time(text))
    except ValueError as error:
        raise ValueError(f"{error}, earliest, latest, an offset, or -N for the last N") from error


def format_bytes(count: int) -> str:
    """Formats a number of bytes with one decimal and a binary unit, up to TiB; below 1024 as whole bytes.

    >>> format_bytes(1536)
    '1.5 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# -- output


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def echo_result(facts: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Prints the result of a command: as a JSON object, or as text."""
    if as_json:
        echo_json(facts)
    else:
        click.echo(text)


def echo_list(
    objects: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]] | None = None,
    *,
    as_json: bool,
    nothing: str | None = None,
) -> None:
    """Prints one JSON object per line if `as_json`, else a table; `nothing` replaces the table of an empty list.

    Default of `rows`: the first values of each object, one per column, with yes and no for True and False.
    """
    if as_json:
        for each in objects:
            echo_json(each)
    elif objects or nothing is None:
        cells = [map(_yes_no, each.values()) for each in objects]
        echo_table(columns, [list(islice(row, len(columns))) for row in cells] if rows is None else rows)
    else:
        click.echo(nothing, err=True)


def _yes_no(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def echo_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Prints a table, on standard error if `err`. Columns whose name starts with `#` are right-aligned numbers."""
    from rich.console import Console  # imported here: it is slow to import
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    width = None if (sys.stderr if err else sys.stdout).isatty() else PIPE_COLUMNS
    console = Console(width=width, stderr=err)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), err=err)


# -- running


class Terminated(KeyboardInterrupt):
    """Raised when the process receives SIGTERM; the command ends as on Ctrl-C."""


_sigterm_received = threading.Event()
"""Whether SIGTERM has arrived. `run` checks this flag because an exception raised by a signal handler is lost when
it interrupts a destructor, a garbage-collector callback or an import."""


def is_terminated() -> bool:
    """Returns whether SIGTERM arrived inside the latest `sigterm_raises` block."""
    return _sigterm_received.is_set()


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Context manager that makes the first SIGTERM inside its block raise Terminated; ignores later SIGTERMs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _sigterm_received.clear()

    def terminate(number: int, frame: FrameType | None) -> None:
        if not _sigterm_received.is_set():
            _sigterm_received.set()
            # The exception may come between the call of a coroutine function and the first `await`.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_client(bootstrap: str, work: Callable[[KafkaClient], Awaitable[T]]) -> T:
    """Calls `work` with a client connected to the cluster; returns its result. Ctrl-C and SIGTERM cancel `work`."""
    settings = client_settings()

    async def inside() -> T:
        async with KafkaClient(bootstrap, settings=settings) as client:
            return await work(client)

    return run(inside())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on uvloop; returns its result. Ctrl-C and SIGTERM cancel the coroutine, which can clean up."""
    import uvloop

    is_cancelled = False

    async def cancel_on_sigterm() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal is_cancelled
            if not is_cancelled:
                is_cancelled = True
                task.cancel()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        if _sigterm_received.is_set():
            terminate()
        return await work

    # An exception while the event loop is created would leave a loop that complains as it is deallocated.
    before = signal.signal(signal.SIGTERM, lambda *_: _sigterm_received.set())
    try:
        return uvloop.run(cancel_on_sigterm())
    except asyncio.CancelledError:
        if is_cancelled:
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)  # the event loop has restored the default handler
