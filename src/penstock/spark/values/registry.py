"""Access to the schema registry: finds schemas by subject and by id, with one client for all tasks of a process."""

from functools import lru_cache
from typing import Final, NamedTuple

from penstock.client.errors import ConnectionFailed
from penstock.client.schema_registry_blocking import BlockingSchemaRegistry
from penstock.client.schema_registry_errors import (
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    VERSION_NOT_FOUND,
    RegistryError,
)
from penstock.client.schema_registry_http import TIMEOUT_S
from penstock.client.schema_registry_models import LATEST, RegisteredSchema, Schema, context_of
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.spark.errors import BadOption
from penstock.spark.values.options import REGISTRY, PartOptions, RegistryAccess, ValueFormat
from penstock.spark.values.schemas import TYPES, SchemaText

CLIENTS_MAX: Final = 32
"""Number of registry clients of a process: one for each registry, user and timeout."""


class RegistryUnavailable(PenstockError):
    """The schema registry does not answer, or refuses to."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class FoundSchema(NamedTuple):
    """A schema that a registry has."""

    id: int
    subject: str
    version: int
    schema: SchemaText


class Registry:
    """A schema registry. Raises RegistryUnavailable after `retry_for_s` without an answer."""

    def __init__(self, access: RegistryAccess, *, retry_for_s: float) -> None:
        self._access = access
        self._client = _client(access, retry_for_s)

    def find(self, part: PartOptions, subject: str) -> FoundSchema:
        """Returns the version of a subject that the options name. Raises BadOption if there is none, or if it has
        another format."""
        version = LATEST if part.version is None else part.version
        found = self.version(subject, version)
        if found is None:
            what = "schema" if part.version is None else f"version {part.version}"
            raise BadOption(
                f"the registry {self._access} has no {what} of subject {subject!r}: register it with "
                f"`penstock schema register {subject} FILE`, or name another one with {part.option('Subject')!r}"
            )
        if found.schema.type != TYPES[part.format]:
            raise BadOption(
                f"subject {subject!r} has a schema of type {found.schema.type}, but {part.option('Format')!r} is "
                f"{part.format.value!r}; set it to {_format_of(found.schema.type)}"
            )
        return FoundSchema(found.id, subject, found.version, self._text(found, subject, part))

    def version(self, subject: str, version: int = LATEST) -> RegisteredSchema | None:
        """Returns a version of a subject; None if there is none."""
        try:
            return self._client.version(subject, version, deleted=version != LATEST)
        except RegistryError as error:
            if error.error_code in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND):
                return None
            raise self._failed(f"subject {subject!r}", error) from error
        except ConnectionFailed as error:
            raise self._failed(f"subject {subject!r}", error) from error

    def by_id(self, schema_id: int, subject: str, part: PartOptions) -> SchemaText | str:
        """Returns the schema with an id. `subject`: that of the reader's schema, whose context has the id. Returns
        the reason as text if there is no such schema, or if it has another format."""
        where = subject if context_of(subject) else ""
        try:
            found = self._client.by_id(schema_id, subject=where)
        except RegistryError as error:
            if error.error_code == SCHEMA_NOT_FOUND:
                return f"the registry has no schema with the id {schema_id}"
            raise self._failed(f"schema {schema_id}", error) from error
        except ConnectionFailed as error:
            raise self._failed(f"schema {schema_id}", error) from error
        if found.schema.type != TYPES[part.format]:
            return f"its schema {schema_id} is of type {found.schema.type}, not {TYPES[part.format]}"
        return self._text(found, where, part)

    def references(self, schema: Schema, subject: str) -> tuple[tuple[str, str], ...]:
        """Returns name and text of all schemas that a schema refers to."""
        if not schema.references:
            return ()
        try:
            found = self._client.references(schema, subject=subject)
        except (RegistryError, ConnectionFailed) as error:
            raise self._failed(f"the references of {subject!r}", error) from error
        return tuple((each.name, each.found.schema.text) for each in found)

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Registers a schema. Raises RegistryError if it is refused."""
        try:
            return self._client.register(subject, schema)
        except ConnectionFailed as error:
            raise self._failed(f"subject {subject!r}", error) from error

    def look_up(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Returns the version of a subject that has this schema. Raises RegistryError if there is none."""
        try:
            return self._client.look_up(subject, schema)
        except ConnectionFailed as error:
            raise self._failed(f"subject {subject!r}", error) from error

    def _text(self, found: RegisteredSchema, subject: str, part: PartOptions) -> SchemaText:
        return SchemaText(
            format=part.format,
            text=found.schema.text,
            references=self.references(found.schema, subject),
            message=part.message,
        )

    def _failed(self, what: str, error: PenstockError) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"the schema registry {self._access} cannot be asked for {what}: {error}; check the option {REGISTRY!r}, "
            "and that the executors can reach it"
        )


def _format_of(registry_type: str) -> str:
    return next((format.value for format, name in TYPES.items() if name == registry_type), ValueFormat.BINARY.value)


@lru_cache(CLIENTS_MAX)
def _client(access: RegistryAccess, retry_for_s: float) -> BlockingSchemaRegistry:
    return BlockingSchemaRegistry(
        access.urls,
        user=access.user,
        password=access.password,
        timeout_s=min(TIMEOUT_S, retry_for_s),
        retry_for_s=retry_for_s,
    )
