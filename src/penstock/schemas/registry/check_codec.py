"""Encodes the jobs for the process that checks schemas, and their results, as JSON."""

from typing import Any

import orjson

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.registry.checks import CompareJob, Comparison, ParseJob, Previous, SchemaSource

Result = str | Comparison


def encode_job(job: ParseJob | CompareJob) -> bytes:
    return orjson.dumps({"parse" if isinstance(job, ParseJob) else "compare": job})


def decode_job(data: bytes) -> ParseJob | CompareJob:
    ((kind, fields),) = orjson.loads(data).items()
    source = _source(fields.pop("source"))
    if kind == "parse":
        return ParseJob(source=source, **fields)
    for name in ("previous", "candidates"):
        fields[name] = tuple(
            Previous(version=each["version"], source=_source(each["source"])) for each in fields[name]
        )
    return CompareJob(source=source, **fields)


def _source(fields: dict[str, Any]) -> SchemaSource:
    references = tuple((name, text) for name, text in fields.pop("references"))
    return SchemaSource(references=references, **fields)


def encode_result(result: Result | InvalidSchema) -> bytes:
    if isinstance(result, InvalidSchema):
        return orjson.dumps({"invalid": _printable(str(result))})
    if isinstance(result, str):
        return orjson.dumps({"text": result})
    messages = [_printable(each) for each in result.messages]
    return orjson.dumps({"same_version": result.same_version, "messages": messages})


def decode_result(data: bytes) -> Result:
    """Returns the result of a job. Raises InvalidSchema if that was its result."""
    found = orjson.loads(data)
    if "invalid" in found:
        raise InvalidSchema(found["invalid"])
    if "text" in found:
        return str(found["text"])
    return Comparison(same_version=found["same_version"], messages=tuple(found["messages"]))


def _printable(text: str) -> str:
    """Replaces characters that cannot be encoded, such as halves of surrogate pairs from a hostile schema."""
    return text.encode(errors="replace").decode()
