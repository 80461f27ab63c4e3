"""`penstock schema compatibility|mode`: shows and changes the settings of subjects, contexts and the registry."""

import json
from typing import Final

import click

from penstock.cli.common import echo_result
from penstock.cli.schema.access import RegistryAccess, optional, registry_options, run_registry
from penstock.cli.schema.emptiness import confirm_import
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import (
    LEVEL_NOT_CONFIGURED,
    MODE_NOT_CONFIGURED,
    SUBJECT_NOT_FOUND,
)
from penstock.client.schema_registry_models import LEVELS, MODES, RegistryConfig

_LEVEL: Final = "compatibility"


def _split(values: tuple[str | None, str | None], known: tuple[str, ...], what: str) -> tuple[str, str | None]:
    """Returns the subject ("" for the whole registry), and the value to set (None: show it). A single argument that
    is a known value is one for the whole registry."""
    first, second = values
    if second is None and first is not None and first.upper() in known:
        return "", first.upper()
    if second is not None and second.upper() not in known:
        raise click.UsageError(f"{second!r} is not a {what}; expected {', '.join(known)}")
    return first or "", None if second is None else second.upper()


def _check_reset(reset: bool, value: str | None) -> None:
    if reset and value is not None:
        raise click.UsageError("give a value to set, or --reset, not both")


def _result(name: str, value: str | None, *, is_inherited: bool) -> str:
    return f"{name or 'the registry'}: {value}{' (inherited)' if is_inherited else ''}"


@click.command()
@click.argument("subject", required=False)
@click.argument("level", required=False)
@click.option("--reset", is_flag=True, help="Remove all settings of the subject, so that the registry's apply.")
@registry_options
def compatibility(subject: str | None, level: str | None, reset: bool, access: RegistryAccess, as_json: bool) -> None:
    """Show or set the compatibility level of a subject, of a context such as :.staging:, or of the whole registry.

    \b
    NONE      every schema is accepted
    BACKWARD  readers with the new schema can read data of the latest version: fields may be removed or get a default
    FORWARD   readers with the latest version can read new data: fields may be added
    FULL      both
    BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE and FULL_TRANSITIVE compare with all versions, not only the latest.

    \b
    Examples:
      penstock schema compatibility
      penstock schema compatibility FULL
      penstock schema compatibility orders-value BACKWARD_TRANSITIVE
      penstock schema compatibility orders-value --reset
    """
    name, value = _split((subject, level), LEVELS, "compatibility level")
    _check_reset(reset, value)

    async def work(client: SchemaRegistryClient) -> tuple[RegistryConfig, bool]:
        if value is not None:
            return await client.set_config({_LEVEL: value}, name), False
        if reset:
            await optional(client.delete_config(name), SUBJECT_NOT_FOUND)
        own = await optional(client.config(name), LEVEL_NOT_CONFIGURED)
        return (await client.config(name, inherited=True), True) if own is None else (own, False)

    found, is_inherited = run_registry(access, work)
    others = {key: each for key, each in found.settings.items() if key != _LEVEL}
    facts = {"subject": name or None, "level": found.level, "inherited": is_inherited, "settings": others}
    suffix = "".join(f", {key}={json.dumps(each)}" for key, each in others.items())
    echo_result(facts, _result(name, found.level, is_inherited=is_inherited) + suffix, as_json=as_json)


@click.command()
@click.argument("subject", required=False)
@click.argument("mode", required=False)
@click.option("--reset", is_flag=True, help="Remove the mode of the subject, so that the registry's applies.")
@click.option("--force", is_flag=True, help="Set IMPORT although there are schemas, which stay.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@registry_options
def mode(
    subject: str | None, mode: str | None, reset: bool, force: bool, yes: bool, access: RegistryAccess, as_json: bool
) -> None:
    """Show or set the mode of a subject, of a context such as :.staging:, or of the whole registry.

    \b
    READWRITE          schemas can be registered and deleted
    READONLY           no changes
    READONLY_OVERRIDE  as READONLY
    IMPORT             clients choose ids and versions; no schema is compared with others

    IMPORT removes soft-deleted schemas permanently, and asks for confirmation if there are any.

    \b
    Examples:
      penstock schema mode
      penstock schema mode READONLY
      penstock schema mode orders-value READONLY
      penstock schema mode orders-value --reset
    """
    name, value = _split((subject, mode), MODES, "mode")
    _check_reset(reset, value)
    if value == "IMPORT" and not force:
        confirm_import(access, name, yes)

    async def work(client: SchemaRegistryClient) -> tuple[str, bool]:
        if value is not None:
            return await client.set_mode(value, name, force=force), False
        if reset:
            await optional(client.delete_mode(name), SUBJECT_NOT_FOUND)
        own = await optional(client.mode(name), MODE_NOT_CONFIGURED)
        return (await client.mode(name, inherited=True), True) if own is None else (own, False)

    found, is_inherited = run_registry(access, work)
    facts = {"subject": name or None, "mode": found, "inherited": is_inherited}
    echo_result(facts, _result(name, found, is_inherited=is_inherited), as_json=as_json)
