"""`penstock audit`: shows the audit log of a broker."""

import json
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.common import echo_list, json_option
from penstock.foundation.durations import parse_duration
from penstock.security.audit_file import PREFIX, SUFFIX

DEFAULT_FOLDER: Final = Path("penstock-data")
EVENTS: Final = ("denied", "allowed", "login", "login_failed", "change", "change_failed", "lost")


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="The data folder of the broker.",
)
@click.option("--event", "events", type=click.Choice(EVENTS), multiple=True, help="Only these events. Repeatable.")
@click.option("--user", "users", multiple=True, metavar="NAME", help="Only events of these users. Repeatable.")
@click.option("--since", metavar="DURATION", help="Only events since then: 15m, 2h, 1d.")
@click.option("--max", "most", type=click.IntRange(1), default=100, show_default=True, help="The newest ones.")
@json_option
def audit(
    data_dir: Path, events: tuple[str, ...], users: tuple[str, ...], since: str | None, most: int, as_json: bool
) -> None:
    """Show the audit log of a broker: denied requests, logins and changes, the newest last.

    A broker writes one if it has an authorizer (`penstock acl`), or the setting audit.events. Each broker of a
    cluster has its own, as files of JSON lines in its data folder. Events that repeat within a minute are one line,
    with their number.

    \b
    Examples:
      penstock audit --event denied
      penstock audit --event denied --event login_failed --since 1h
      penstock audit --user orders --max 20 --json
    """
    begin = datetime.now(UTC) - timedelta(seconds=_seconds(since)) if since else None
    folder, principals = data_dir / "audit", {_principal(user) for user in users}
    matching = (
        each
        for each in _events(folder)
        if (not events or each.get("event") in events)
        and (not users or each.get("principal") in principals)
        and (begin is None or datetime.fromisoformat(each["time"]) >= begin)
    )
    found = list(deque(matching, most))
    echo_list(
        found,
        ["TIME", "EVENT", "PRINCIPAL", "HOST", "OPERATION", "NAME", "#COUNT"],
        [
            [
                each["time"][:23],
                each["event"],
                each.get("principal"),
                each.get("host"),
                each.get("operation", each.get("mechanism")),
                _name(each),
                each["count"],
            ]
            for each in found
        ],
        as_json=as_json,
        nothing=f"No events found in {folder}.",
    )


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from None


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _name(event: dict[str, Any]) -> str | None:
    """Returns the resource of an event, or the reason of a login that failed."""
    name: str | None = event.get("name", event.get("reason"))
    kind = event.get("type")
    return name if kind is None or kind == "cluster" else f"{kind} {name}"


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of all files, the oldest first. A line that was cut off when the broker ended is omitted."""
    for file in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    continue
                yield event
