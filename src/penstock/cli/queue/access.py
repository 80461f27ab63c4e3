"""Shared options of `penstock queue`: endpoint, access keys, durations, and errors with advice."""

import functools
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar, cast

import click

from penstock.cli.common import Command, bootstrap_option, client_settings, json_option, run, value_parser
from penstock.client.http import Endpoint
from penstock.client.signing import AccessKeys, keys_of
from penstock.client.sqs import NO_SUCH_QUEUE, NOT_ALLOWED_CODES, SqsClient, SqsError, find_endpoints
from penstock.foundation.durations import parse_duration

T = TypeVar("T")


class SecondsRange(NamedTuple):
    """The allowed values of a duration option, in seconds, both ends inclusive."""

    least: int
    most: int


DELAY: Final = SecondsRange(0, 900)
VISIBILITY: Final = SecondsRange(0, 43_200)
QUEUE_WAIT: Final = SecondsRange(0, 20)
WAIT: Final = SecondsRange(0, 86_400)
"""Allowed values of `receive --wait`: up to a day, because the command repeats ReceiveMessage (at most 20 s each)."""
RETENTION: Final = SecondsRange(60, 3_155_760_000)


def duration_option(name: str, limits: SecondsRange, help: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds an option for a duration such as `30s` or `5m`, rounded up to whole seconds."""

    def parse(text: str) -> int:
        found = ceil(parse_duration(text))
        if not limits.least <= found <= limits.most:
            raise ValueError(f"{text!r} is out of bounds; expected {limits.least} to {limits.most} seconds")
        return found

    return click.option(name, metavar="DURATION", callback=value_parser(parse), help=help)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The SQS endpoint, and the access keys that sign requests."""

    bootstrap: str
    endpoint: Endpoint | None
    keys: AccessKeys | None

    async def find(self) -> list[Endpoint]:
        if self.endpoint is not None:
            return [self.endpoint]
        return await find_endpoints(self.bootstrap, client_settings())


def access_options(command: Command) -> Command:
    """Decorator that adds --json and the options of endpoint and access keys, passed to the command as `access`."""

    @functools.wraps(command)
    def with_access(
        *, bootstrap: str, endpoint: str | None, access_key: str | None, secret_key: str | None, **options: Any
    ) -> Any:
        try:
            access = Access(
                bootstrap=bootstrap,
                endpoint=Endpoint.parse(endpoint) if endpoint else None,
                keys=keys_of(os.environ, access_key, secret_key),
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        return command(access=access, **options)

    found: Any = with_access
    for option in (
        json_option,
        click.option("--secret-key", metavar="TEXT", help="Secret key.  [env var: AWS_SECRET_ACCESS_KEY]"),
        click.option(
            "--access-key", metavar="TEXT", help="Access key id that signs requests.  [env var: AWS_ACCESS_KEY_ID]"
        ),
        click.option(
            "--endpoint",
            metavar="URL",
            envvar="PENSTOCK_ENDPOINT",
            show_envvar=True,
            help="SQS endpoint of a broker.  [found with --bootstrap]",
        ),
        bootstrap_option,
    ):
        found = option(found)
    return cast(Command, found)


def run_sqs(access: Access, work: Callable[[SqsClient], Awaitable[T]], queue: str = "") -> T:
    """Runs `work` with an SQS client; returns its result. Raises SQS errors as click errors that say what to do."""

    async def inside() -> T:
        sqs = SqsClient(access.find, keys=access.keys)
        try:
            return await work(sqs)
        except SqsError as error:
            raise to_click_error(error, queue) from error
        finally:
            sqs.close()

    return run(inside())


def to_click_error(error: SqsError, queue: str) -> click.ClickException:
    if error.reason == NO_SUCH_QUEUE:
        return click.ClickException(
            f"there is no queue {queue!r}; create it with `penstock queue create {queue}`, or list queues with "
            "`penstock queue list`"
        )
    if error.reason in NOT_ALLOWED_CODES:
        advice = "; give --access-key and --secret-key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        return click.ClickException(f"{error.message.rstrip('.')} ({error.reason}){advice}")
    of = f"queue {queue!r}: " if queue else ""
    return click.ClickException(f"{of}{' '.join(error.message.split()).rstrip('.')} ({error.reason})")


def format_seconds(seconds: float) -> str:
    """Formats a duration with its two largest units of days, hours, minutes and seconds.

    >>> format_seconds(345_600), format_seconds(90), format_seconds(3)
    ('4d', '1m 30s', '3s')
    """
    parts = []
    left = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
