"""Commands to the registry's state machine: each is one change that a client asks for."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.schemas.registry.model import Mode, SchemaText
from penstock.schemas.registry.state import RegistryState


class StateChanged(NamedTuple):
    """Reply to Register if the subject, a setting or a referenced subject has changed since the schema was checked:
    check it again."""


class Register(NamedTuple):
    """Adds a version to a subject. The reply is a SchemaVersion, or StateChanged."""

    subject: str
    schema: SchemaText
    """The schema in its canonical form."""
    version: int
    """The version that the client wants; 0 or -1: the next one."""
    schema_id: int | None
    """The id that the client wants, in mode IMPORT; None: the id of the same schema elsewhere, or a new one."""
    revision: tuple[int, int]
    """`RegistryState.revision` of the subject when the schema was checked."""
    referenced: tuple[tuple[str, int], ...] = ()
    """The subjects that the schema refers to, with their revisions when the references were resolved."""


class DeleteVersion(NamedTuple):
    """Soft-deletes a version; `permanent`: removes a version that is soft-deleted. The reply is its number."""

    subject: str
    version: int
    permanent: bool


class DeleteSubject(NamedTuple):
    """Soft-deletes all versions of a subject; `permanent`: removes them. The reply is the list of their numbers."""

    subject: str
    permanent: bool


class SetConfig(NamedTuple):
    """Changes settings. The reply is the new Config of exactly this subject."""

    subject: str | None
    changes: Mapping[str, Any]
    """The settings by their JSON names, as the client sent them; null removes one."""


class DeleteConfig(NamedTuple):
    """Removes all settings of a subject. The reply is the Config that it had."""

    subject: str | None


class SetMode(NamedTuple):
    """Sets the mode. The reply is the mode."""

    subject: str | None
    mode: Mode | None
    force: bool
    """Whether IMPORT may be set while there are schemas."""


class DeleteMode(NamedTuple):
    """Removes the mode; `recursive`: also of all subjects in the context. The reply is the mode that it had."""

    subject: str | None
    recursive: bool


class DeleteContext(NamedTuple):
    """Removes an empty context from the list of contexts. The reply is None."""

    context: str


class Read(NamedTuple):
    """Reads the state. The reply, what `read` returns, is sent once all that the state shows is committed."""

    read: Callable[[RegistryState], Any]


Command = (
    Register | DeleteVersion | DeleteSubject | SetConfig | DeleteConfig | SetMode | DeleteMode | DeleteContext | Read
)
