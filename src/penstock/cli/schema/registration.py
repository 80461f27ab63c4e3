"""`penstock schema register|check`: schemas from files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from penstock.cli.common import Command, echo_json, echo_result, value_parser
from penstock.cli.schema.access import RegistryAccess, registry_options, run_registry
from penstock.cli.schema.versions import parse_version
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import INCOMPATIBLE, RegistryError
from penstock.client.schema_registry_models import (
    AVRO,
    JSON_SCHEMA,
    LATEST,
    PROTOBUF,
    Compatibility,
    RegisteredSchema,
    Schema,
    SchemaReference,
)

_TYPES: Final = {"avro": AVRO, "json": JSON_SCHEMA, "protobuf": PROTOBUF}
_SUFFIXES: Final = {".avsc": AVRO, ".json": JSON_SCHEMA, ".proto": PROTOBUF}
_ALL: Final = "all"
_STDIN: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaInput:
    """A schema on the command line; references with `latest` are not resolved yet."""

    schema: Schema
    normalize: bool

    async def resolved(self, client: SchemaRegistryClient) -> Schema:
        """Returns the schema with the version of each reference."""
        references = [
            replace(each, version=(await client.latest(each.subject)).version) if each.version == LATEST else each
            for each in self.schema.references
        ]
        return replace(self.schema, references=tuple(references))


def _parse_references(texts: Sequence[str]) -> tuple[SchemaReference, ...]:
    return tuple(map(parse_reference, texts))


def parse_reference(text: str) -> SchemaReference:
    """Parses `NAME=SUBJECT:VERSION`. Raises ValueError.

    >>> parse_reference("acme.Customer=:.staging:customer-value:latest")
    SchemaReference(name='acme.Customer', subject=':.staging:customer-value', version=-1)
    """
    name, equals, target = text.rpartition("=")  # names may be URLs with a query
    subject, colon, version = target.rpartition(":")
    if not name or not equals or not subject or not colon:
        raise ValueError(f"{text!r} is not NAME=SUBJECT:VERSION, such as acme.Customer=customer-value:1")
    return SchemaReference(name, subject, parse_version(version))


def schema_options(command: Command) -> Command:
    """Decorator that adds the argument FILE and the options of a schema in a file."""
    for option in (
        click.option(
            "--normalize",
            is_flag=True,
            help="Ignore differences of order and layout that have no meaning: such schemas are the same version.",
        ),
        click.option(
            "--reference",
            "references",
            multiple=True,
            metavar="NAME=SUBJECT:VERSION",
            callback=value_parser(_parse_references),
            help="A schema that this one refers to; VERSION may be latest. Repeatable.",
        ),
        click.option(
            "--type",
            "kind",
            type=click.Choice(list(_TYPES)),
            help="Type of the schema.  [by the file's name: .avsc, .json, .proto]",
        ),
        click.argument("file", type=click.Path(dir_okay=False, allow_dash=True)),
    ):
        command = option(command)
    return command


def _read(file: str, kind: str | None, references: tuple[SchemaReference, ...], normalize: bool) -> SchemaInput:
    """Reads a schema from a file, or from standard input for `-`."""
    suffix = Path(file).suffix.lower()
    found = _TYPES[kind] if kind is not None else _SUFFIXES.get(suffix)
    if found is None:
        what = "standard input has no name" if file == _STDIN else f"{file!r} does not end in .avsc, .json or .proto"
        raise click.UsageError(f"the type of the schema is not known, because {what}: give --type avro|json|protobuf")
    try:
        with click.open_file(file, "rb") as source:
            text = source.read().decode()
    except OSError as error:
        raise click.ClickException(f"cannot read {file!r}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file!r} is not a schema: byte {error.start} is not UTF-8") from error
    return SchemaInput(schema=Schema(text=text, type=found, references=references), normalize=normalize)


@click.command()
@click.argument("subject")
@schema_options
@registry_options
def register(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[SchemaReference, ...],
    normalize: bool,
    access: RegistryAccess,
    as_json: bool,
) -> None:
    """Register a schema from a file as the next version of a subject. FILE may be - for standard input.

    Registering a schema again does nothing, and shows the version that it has. A schema that is not compatible with
    earlier versions is refused; `penstock schema compatibility` shows and changes the rule.

    \b
    Examples:
      penstock schema register orders-value orders.avsc
      penstock schema register orders-value orders.proto --reference customer.proto=customer-value:1
      penstock schema register orders-key - --type avro < key.avsc
    """
    given = _read(file, kind, references, normalize)

    async def work(client: SchemaRegistryClient) -> RegisteredSchema:
        schema = await given.resolved(client)
        try:
            return await client.register(subject, schema, normalize=normalize)
        except RegistryError as error:
            if error.error_code != INCOMPATIBLE:
                raise
            found = await client.check(subject, schema, normalize=normalize)
            raise _refusal(subject, found, error) from error

    added = run_registry(access, work)
    facts = {"subject": subject, "version": added.version, "id": added.id, "type": added.schema.type}
    echo_result(facts, f"{subject} version {added.version}, id {added.id}", as_json=as_json)


def _refusal(subject: str, found: Compatibility, error: RegistryError) -> Exception:
    """Returns the error for an incompatible schema, without the text of the earlier one, which may be long."""
    if not found.reasons:
        return error
    what, advice = _verdict(subject, found)
    return click.ClickException(f"{what}: {'; '.join(found.reasons)}; {advice}")


def _verdict(subject: str, found: Compatibility) -> tuple[str, str]:
    """Returns what is wrong with a schema, and what to do."""
    if found.old_version is None:  # it is not valid, or of another type
        return f"the schema cannot be registered in {subject}", "change it, or register it in another subject"
    what = f"the schema is not compatible with version {found.old_version} of {subject}"
    return what, f"change it, or the level with `penstock schema compatibility {subject} LEVEL`"


def _parse_against(text: str) -> int | None:
    return None if text == _ALL else parse_version(text)


@click.command()
@click.argument("subject")
@schema_options
@click.option(
    "--against",
    metavar="N|latest|all",
    default=_ALL,
    show_default=True,
    help="A version; all: the versions that the compatibility level asks for, as `register` does.",
)
@registry_options
def check(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[SchemaReference, ...],
    normalize: bool,
    against: str,
    access: RegistryAccess,
    as_json: bool,
) -> None:
    """Check whether a schema could be registered, without registering it.

    If it is not compatible, prints the reasons, one a line, and ends with exit code 1.

    \b
    Examples:
      penstock schema check orders-value orders.avsc
      penstock schema check orders-value orders.avsc --against latest
    """
    try:
        version = _parse_against(against)
    except ValueError as error:
        raise click.UsageError(f"--against: {error}, or all") from error
    given = _read(file, kind, references, normalize)

    async def work(client: SchemaRegistryClient) -> Compatibility:
        return await client.check(subject, await given.resolved(client), version, normalize=normalize)

    found = run_registry(access, work)
    if as_json:
        echo_json(
            {
                "subject": subject,
                "compatible": found.is_compatible,
                "version": found.old_version,
                "reasons": found.reasons,
            }
        )
    elif found.is_compatible:
        click.echo(f"compatible with {subject}")
    else:
        for reason in found.reasons:
            click.echo(" ".join(reason.split()))
    if not found.is_compatible:
        raise click.ClickException("; ".join(_verdict(subject, found)))
