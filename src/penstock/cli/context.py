"""`penstock context`: names for clusters, so that commands need no addresses and files of options."""

import os
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import check_bootstrap, echo_list, echo_result, json_option, value_parser
from penstock.cli.contexts import CONTEXT_VARIABLE, VARIABLES, Contexts
from penstock.client.security import SecuritySettings
from penstock.foundation.properties import read_properties

_COLUMNS: Final = ("in use", "context", "bootstrap", "command config", "endpoint", "registry", "aws profile")


@click.group()
def context() -> None:
    """Name clusters, and choose the one that commands use.

    A context has options for commands: addresses, and the file with security settings. What is given on the command
    line or in the environment goes before it. It holds no passwords: these are in the file of --command-config.

    \b
    Examples:
      penstock context create prod --bootstrap queue.example.org:9093 --command-config prod.properties
      penstock context use prod
      penstock topic list
      penstock --context staging topic list
      penstock context list
    """


@context.command()
@click.argument("name")
@click.option(
    "--bootstrap", metavar="HOST:PORT[,…]", callback=value_parser(check_bootstrap), help="Addresses of brokers."
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=True),
    help="Kafka client properties for TLS and SASL.",
)
@click.option("--endpoint", metavar="URL", help="SQS endpoint of a broker.")
@click.option("--registry", metavar="URL[,…]", help="URL of the schema registry.")
@click.option("--aws-profile", metavar="NAME", help="Profile in ~/.aws/credentials that signs requests of queues.")
@click.option("--use", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="Replace the context if it exists.")
@json_option
def create(
    name: str, use: bool, replace: bool, as_json: bool, command_config: Path | None, **options: str | None
) -> None:
    """Create a context.

    \b
    Examples:
      penstock context create local --bootstrap 127.0.0.1:9092 --use
      penstock context create prod --bootstrap queue.example.org:9093 --command-config prod.properties
    """
    if not name.isprintable() or not name.strip():
        raise click.UsageError("the name of a context must not be empty")
    contexts = Contexts.load()
    if name in contexts.by_name and not replace:
        raise click.ClickException(f"context {name!r} exists; give --replace to replace it")
    if command_config is not None:
        SecuritySettings.parse(read_properties(command_config))
    found = {**options, "command_config": None if command_config is None else str(command_config)}
    given = {option: found[option] or "" for option in VARIABLES if found.get(option)}
    if not given:
        raise click.UsageError("a context needs at least one option, for example --bootstrap")
    contexts.by_name[name] = given
    if use:
        contexts.current = name
    contexts.save()
    echo_result(
        _facts(contexts, name), f"created context {name}{', which is in use' if use else ''}", as_json=as_json
    )


@context.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """List the contexts.

    \b
    Examples:
      penstock context list
    """
    contexts = Contexts.load()
    echo_list(
        [_facts(contexts, name) for name in sorted(contexts.by_name)],
        _COLUMNS,
        as_json=as_json,
        nothing="no contexts; create one with `penstock context create`",
    )


@context.command()
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use no context.")
def use(name: str | None, is_none: bool) -> None:
    """Choose the context that commands use from now on.

    \b
    Examples:
      penstock context use prod
      penstock context use --none
    """
    if (name is None) != is_none:
        raise click.UsageError("give the name of a context, or --none")
    contexts = Contexts.load()
    if name is not None:
        contexts.find(name)
    contexts.current = name or ""
    contexts.save()
    click.echo(f"context {name} is in use" if name else "no context is in use")


@context.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a context. The cluster is not touched.

    \b
    Examples:
      penstock context delete staging
    """
    contexts = Contexts.load()
    contexts.find(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    contexts.save()
    click.echo(f"deleted context {name}")


def _facts(contexts: Contexts, name: str) -> dict[str, object]:
    in_use = os.environ.get(CONTEXT_VARIABLE, contexts.current)
    options = contexts.by_name[name]
    return {"in_use": name == in_use, "context": name, **{option: options.get(option, "") for option in VARIABLES}}
