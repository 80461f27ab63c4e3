"""The JSON bodies of requests and responses: schemas, versions, settings."""

from typing import Final

from penstock.registry.rest import RestCall, Unprocessable
from penstock.schemas.registry.data_contract import Json, Metadata, RuleSet
from penstock.schemas.registry.errors import SchemaNotFound, SubjectNotFound
from penstock.schemas.registry.model import AVRO, Reference, SchemaText, SchemaVersion
from penstock.schemas.registry.registration import SchemaRequest
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import DEFAULT_CONTEXT, Subject

REFERENCES_MAX: Final = 1000
PROPERTIES_MAX: Final = 1000
"""Maximum number of properties in the metadata of a schema: they are merged on the event loop."""
_QUALIFIED: Final = "qualified"


def schema_request(body: Json) -> SchemaRequest:
    """Reads the body of a request with a schema. Raises RegistryError if it is malformed."""
    text, kind = body.get("schema"), body.get("schemaType")
    version, schema_id = body.get("version"), body.get("id")
    references = [] if body.get("references") is None else body["references"]
    if not isinstance(text, str | None) or not isinstance(kind, str | None) or not isinstance(references, list):
        raise Unprocessable("schema and schemaType must be strings, references an array")
    if len(references) > REFERENCES_MAX:
        raise Unprocessable(f"There are {len(references)} references; {REFERENCES_MAX} are allowed")
    for name, number in (("version", version), ("id", schema_id)):
        if number is not None and (type(number) is not int or not -1 <= number < 2**31):
            raise Unprocessable(f"{name} must be a number from -1 to 2^31-1")
    rule_set = RuleSet.parse(body.get("ruleSet"))
    if rule_set is not None:
        rule_set.validate()
    metadata = Metadata.parse(body.get("metadata"))
    if metadata is not None and len(metadata.properties) > PROPERTIES_MAX:
        raise Unprocessable(f"There are {len(metadata.properties)} properties; {PROPERTIES_MAX} are allowed")
    schema = SchemaText(
        type=kind or AVRO,
        text=text or "",
        references=tuple(Reference.parse(each) for each in references),
        metadata=metadata,
        rule_set=rule_set,
    )
    wanted_id = None if schema_id is None or schema_id < 0 else schema_id
    return SchemaRequest(schema=schema, version=version or 0, schema_id=wanted_id)


def requested_schema(call: RestCall, subject: str) -> SchemaRequest:
    """Reads the schema that a request has for a subject. Raises RegistryError, also if the client may not read a
    subject that the schema refers to."""
    found = schema_request(call.json)
    for each in found.schema.references:
        call.check_readable(str(Subject.parse(subject).resolve(each.subject)))
    return found


def version_body(found: SchemaVersion, *, text: str | None = None, reference_format: str = "") -> Json:
    """Returns a version of a subject. `text`: the schema in another layout, if the client asks for one."""
    body: Json = {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "guid": found.schema.guid,
        **_contract(found, reference_format),
        "schema": found.schema.text if text is None else text,
    }
    if found.deleted:
        body["deleted"] = True
    return body


def schema_body(found: SchemaVersion, *, text: str, shows_subject: bool, reference_format: str = "") -> Json:
    """Returns a schema that was asked for by its id."""
    body: Json = {"subject": found.subject, "version": found.version} if shows_subject else {}
    return body | {"guid": found.schema.guid, **_contract(found, reference_format), "schema": text}


def registered_body(found: SchemaVersion) -> Json:
    """Returns the response to a registration, without the text: Confluent's Python client would take the canonical
    text for the one that it sent, which may be a serialized file descriptor."""
    body: Json = {"id": found.id, "version": found.version, "guid": found.schema.guid}
    return body | _contract(found, "")


def _contract(found: SchemaVersion, reference_format: str) -> Json:
    """Returns type, references, metadata and rules. References are shown with their context if `qualified`."""
    schema, parent = found.schema, Subject.parse(found.subject)
    body: Json = {"schemaType": schema.type}
    if schema.references:
        references = [each.json() for each in schema.references]
        if reference_format == _QUALIFIED and parent.context != DEFAULT_CONTEXT:
            for each in references:
                each["subject"] = str(parent.resolve(each["subject"]))
        body["references"] = references
    if schema.metadata is not None:
        body["metadata"] = schema.metadata.json()
    if schema.rule_set is not None:
        body["ruleSet"] = schema.rule_set.json()
    return body


def not_found(state: RegistryState, subject: str, *, deleted: bool = False) -> SubjectNotFound | SchemaNotFound:
    """Returns the error for a schema that a subject does not have, or a subject that does not exist."""
    return SchemaNotFound() if state.has_subject(subject, deleted=deleted) else SubjectNotFound(subject)
