"""Runs a job of the registry: parses a schema, or compares it with others. In a process of its own; see checks.py."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from penstock.schemas.formats.format import InvalidSchema, ParsedSchema, SchemaFormat
from penstock.schemas.registry.checks import CompareJob, Comparison, ParseJob, Previous, SchemaSource
from penstock.schemas.registry.model import AVRO, JSON_SCHEMA, PROTOBUF

_FORMATS: Final[Mapping[str, str]] = {AVRO: "avro", JSON_SCHEMA: "json_schema", PROTOBUF: "protobuf"}
_SHOWN_CHARS_MAX: Final = 10 << 10
"""Maximum length of an earlier schema that is shown in a message."""
_MESSAGES_MAX: Final = 100
_PARSED_CHARS_MAX: Final = 4 << 20
"""Maximum length of the schemas that are kept parsed: a parsed schema takes about six times its length."""
_SMALL_CHARS: Final = 4096
"""Counted for each schema in addition to its text, so that there are never very many."""
_parsed: Final[dict[SchemaSource, ParsedSchema]] = {}
OTHER_TYPE: Final = "Incompatible because of different schema type"


def run(job: ParseJob | CompareJob) -> str | Comparison:
    """Returns the result of a job. Raises InvalidSchema if the schema cannot be used."""
    return _parse(job) if isinstance(job, ParseJob) else _compare(job)


def _parse(job: ParseJob) -> str:
    schema = _load(job.source)
    if job.validate:
        schema.validate(fields=job.validate_fields)
    if job.normalize:
        schema = schema.normalized()
    return schema.formatted(job.layout) if job.layout else schema.text


def _compare(job: CompareJob) -> Comparison:
    new = _load(job.source)
    for each in job.candidates:
        if new.is_same(_load(each.source)):
            return Comparison(same_version=each.version)
    for each in job.previous:
        messages = _messages(job, new, each)
        if messages:
            return Comparison(messages=tuple(messages))
    return Comparison()


def _messages(job: CompareJob, new: ParsedSchema, previous: Previous) -> list[str]:
    """Returns why the new schema and an earlier one are incompatible, in the form of Confluent's registry."""
    if previous.source.type != job.source.type:
        return [OTHER_TYPE]
    old = _load(previous.source)
    found: list[str] = []
    if job.is_read_by_old:
        found += (each.describe("old", "new") for each in old.differences(new)[:_MESSAGES_MAX])
    if job.reads_old:
        found += (each.describe("new", "old") for each in new.differences(old)[:_MESSAGES_MAX])
    if found:
        text = old.text
        shown = f"'{text}'" if len(text) <= _SHOWN_CHARS_MAX else f"<truncated> '{text[:_SHOWN_CHARS_MAX]}...'"
        found += [f"{{oldSchemaVersion: {previous.version}}}", f"{{oldSchema: {shown}}}"]
    return found


def _load(source: SchemaSource) -> ParsedSchema:
    """Returns a parsed schema; those used last are kept, as versions of a subject are compared again and again."""
    found = _parsed.pop(source, None)
    if found is None:
        found = _parse_text(source)
    _parsed[source] = found
    while len(_parsed) > 1 and sum(map(_chars, _parsed)) > _PARSED_CHARS_MAX:
        del _parsed[next(iter(_parsed))]
    return found


def _chars(source: SchemaSource) -> int:
    return len(source.text) + sum(len(text) for _, text in source.references) + _SMALL_CHARS


def _parse_text(source: SchemaSource) -> ParsedSchema:
    name = _FORMATS.get(source.type)
    if name is None:
        raise InvalidSchema(f"Invalid schema type {source.type}; the types are {', '.join(_FORMATS)}")
    format_: SchemaFormat = import_module(f"penstock.schemas.formats.{name}")
    return format_.parse(source.text, dict(source.references))
