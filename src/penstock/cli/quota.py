"""`penstock quota`: lists, sets and removes quotas of users, client ids and addresses."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from penstock.cli.common import cluster_options, echo_list, echo_result, run_client
from penstock.cli.deletion import confirm
from penstock.client.quotas import ClientQuotas, QuotaInfo
from penstock.cluster.client_quotas import (
    CONNECTION_RATE,
    CONSUMER_RATE,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from penstock.foundation.quota_entities import CLIENT_ID, DEFAULT, IP, USER, Entity

_WORDS: Final = {USER: "user", CLIENT_ID: "client id", IP: "address"}
_NAMES: Final = (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE, MUTATION_RATE, CONNECTION_RATE)


@click.group()
def quota() -> None:
    """List, set and remove quotas: how much clients may take. Those that take more are throttled.

    \b
    Quotas of users and client ids:
      producer_byte_rate        bytes per second that they produce
      consumer_byte_rate        bytes per second that they fetch
      request_percentage        percent of the time of a broker's event loop
      controller_mutation_rate  partitions per second that they create or delete
    Of addresses:
      connection_creation_rate  connections per second that they open

    \b
    Examples:
      penstock quota set --user orders producer_byte_rate=1048576
      penstock quota set --default-user consumer_byte_rate=10485760 request_percentage=20
      penstock quota list
      penstock quota remove --user orders --yes
    """


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for kind in (IP, CLIENT_ID, USER):
        word = _WORDS[kind]
        command = click.option(f"--default-{kind}", is_flag=True, help=f"Each {word} that has no quota of its own.")(
            command
        )
        command = click.option(f"--{kind}", metavar="NAME", help=f"The {word}.")(command)
    return command


def _entity(names: Mapping[str, Any]) -> Entity:
    """Returns the entity that the options name. Raises UsageError."""
    found = []
    for kind in (CLIENT_ID, IP, USER):
        option = kind.replace("-", "_")
        name, is_default = names[option], names[f"default_{option}"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --default-{kind} exclude each other")
        if name is not None or is_default:
            found.append((kind, DEFAULT if is_default else name))
    if not found:
        raise click.UsageError("whose quotas? Give --user, --client-id, both, or --ip; or --default-user and so on")
    return tuple(found)


@quota.command(name="list")
@cluster_options
def list_(bootstrap: str, as_json: bool) -> None:
    """List quotas.

    \b
    Examples:
      penstock quota list
      penstock quota list --json
    """
    found = run_client(bootstrap, lambda client: ClientQuotas(client).all())
    rows = sorted((_title(each.entity), name, value) for each in found for name, value in each.values.items())
    echo_list(
        [_as_json(each) for each in found],
        ["CLIENTS", "QUOTA", "#VALUE"],
        [[title, name, _number(value)] for title, name, value in rows],
        as_json=as_json,
        nothing="No quotas found; set one with `penstock quota set`.",
    )


@quota.command(name="set")
@click.argument("quotas", nargs=-1, required=True, metavar="NAME=VALUE...")
@_entity_options
@cluster_options
def set_(quotas: tuple[str, ...], bootstrap: str, as_json: bool, **names: Any) -> None:
    """Set quotas. They apply at once, to connections that are open as well; all connections share them.

    A quota of a user and a client id together is stronger than that of the user, which is stronger than that of
    the client id; a named one is stronger than a default.

    \b
    Examples:
      penstock quota set --user orders producer_byte_rate=1048576 consumer_byte_rate=2097152
      penstock quota set --user orders --default-client-id request_percentage=10
      penstock quota set --client-id batch consumer_byte_rate=1048576
      penstock quota set --ip 192.0.2.7 connection_creation_rate=5
    """
    entity, values = _entity(names), dict(map(_parse, quotas))
    run_client(bootstrap, lambda client: ClientQuotas(client).change(entity, values))
    set_values = ", ".join(f"{name}={_number(value)}" for name, value in values.items())
    echo_result(
        _as_json(QuotaInfo(entity=entity, values=values)), f"set {set_values} of {_title(entity)}", as_json=as_json
    )


@quota.command()
@click.argument("quotas", nargs=-1, metavar="[NAME]...")
@_entity_options
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def remove(quotas: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool, **names: Any) -> None:
    """Remove quotas: the named ones, or all of the entity. Asks for confirmation; without a terminal, --yes is
    required.

    \b
    Examples:
      penstock quota remove --user orders --yes
      penstock quota remove --default-user request_percentage --yes
    """
    entity = _entity(names)
    known = next((each for each in run_client(bootstrap, _all) if each.entity == entity), None)
    missing = [name for name in quotas if known is None or name not in known.values]
    if known is None or missing:
        what = f"no quota {missing[0]}" if missing else "no quotas"
        raise click.ClickException(f"{_title(entity)} has {what}; `penstock quota list` lists the quotas")
    wanted = quotas or tuple(known.values)
    confirm(f"Remove {', '.join(wanted)} of {_title(entity)}?", yes, verb="remove", participle="removed")
    run_client(bootstrap, lambda client: ClientQuotas(client).change(entity, dict.fromkeys(wanted)))
    facts = {**dict(entity), "removed": list(wanted)}
    echo_result(facts, f"removed {', '.join(wanted)} of {_title(entity)}", as_json=as_json)


async def _all(client: Any) -> list[QuotaInfo]:
    return await ClientQuotas(client).all()


def _parse(text: str) -> tuple[str, float]:
    """Returns name and value of an argument such as `producer_byte_rate=1048576`."""
    name, equals, value = text.partition("=")
    if not equals or name not in _NAMES:
        raise click.UsageError(f"{text!r} is not NAME=VALUE; names are {', '.join(_NAMES)}")
    try:
        return name, float(value)
    except ValueError:
        raise click.UsageError(f"{name}={value}: {value!r} is not a number") from None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _title(entity: Entity) -> str:
    """Returns how an entity is shown, with the user first.

    >>> _title((("client-id", None), ("user", "orders")))
    'user orders, each client id'
    """
    ordered = sorted(entity, key=lambda pair: pair[0] != USER)
    return ", ".join(
        f"each {_WORDS[kind]}" if name is DEFAULT else f"{_WORDS[kind]} {name}" for kind, name in ordered
    )


def _as_json(found: QuotaInfo) -> dict[str, object]:
    """A default has null in place of a name."""
    return {**dict(found.entity), "quotas": dict(found.values)}
