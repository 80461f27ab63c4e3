"""The replicated state machine of the schema registry. Pure. Its records are those of the topic `_schemas`."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from penstock.foundation.decision import Decision, Reply, StateRecord, Ticket
from penstock.schemas.registry.commands import (
    Command,
    DeleteConfig,
    DeleteContext,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    Read,
    Register,
    SetConfig,
    SetMode,
    StateChanged,
)
from penstock.schemas.registry.errors import (
    ContextNotEmpty,
    OperationNotPermitted,
    ReferenceExists,
    SchemaRejected,
    SchemaTooLarge,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from penstock.schemas.registry.layout import (
    IDS_SUBJECT,
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdsUsed,
    ModeKey,
    SchemaKey,
    decode,
    record,
)
from penstock.schemas.registry.model import Config, Mode, SchemaVersion
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import DEFAULT_CONTEXT, Subject

COUNT_MAX: Final = 100_000
"""Maximum number of schema versions: all of them are in the broker's memory."""
VERSIONS_MAX: Final = 10_000
"""Maximum number of versions of one subject: deleting a subject for good writes a record for each."""
RECORD_BYTES_MAX: Final = 1_000_000
"""Maximum size of a schema's record: Kafka's default for the largest message, less what a batch adds."""


class RegistryMachine:
    """Decides on changes of the schema registry. One for the whole cluster: the topic has one partition."""

    wake_at_ms: int | None = None

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max`: about how much memory all schema texts may take."""
        self.state = RegistryState()
        self.bytes_max = bytes_max

    # -- the interface of state machines

    def decide(self, ticket: Ticket, command: Command, now_ms: int) -> Decision:
        records, reply = self._decide(command)
        # The records may be written in several batches, because each prefix of them leaves a valid state.
        return Decision(persist=tuple(records), replies=(Reply(ticket, reply),))

    def wake(self, now_ms: int) -> Decision:
        return Decision()

    def apply(self, found: StateRecord, producer_id: int) -> None:
        """Applies a record. Raises UnreadableRecord, upon which it is skipped."""
        self.state.apply(*decode(found))

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing: the registry writes no transactions."""

    def loaded(self, now_ms: int) -> None:
        """Does nothing: the state is complete once all records are applied."""

    # -- deciding

    def _decide(self, command: Command) -> tuple[list[StateRecord], Any]:
        match command:
            case Register():
                return self._register(command)
            case DeleteVersion():
                return self._delete_version(command)
            case DeleteSubject():
                return self._delete_subject(command)
            case SetConfig(subject, changes):
                self._check_writable(subject)
                config = self.state.configs.get(subject or None, Config()).updated(changes)
                return [record(ConfigKey(subject), config)], config
            case DeleteConfig(subject):
                found = self.state.config(subject)
                if found is None:
                    raise SubjectNotFound(subject or "")
                self._check_writable(subject)
                return [record(ConfigKey(subject), None)], found
            case SetMode():
                return self._set_mode(command)
            case DeleteMode(subject, recursive):
                mode = self.state.mode(subject)
                if mode is None and not recursive:
                    raise SubjectNotFound(subject or "")
                return self._delete_modes(subject, recursive), mode
            case Read(read):
                return [], read(self.state)
            case DeleteContext(context):
                prefix = f":{context}:"
                if self.state.has_subject(prefix, deleted=True):
                    raise ContextNotEmpty(prefix)
                return [record(ContextKey(context), None)], None

    def _register(self, command: Register) -> tuple[list[StateRecord], SchemaVersion | StateChanged]:
        state, subject = self.state, command.subject
        if command.revision != state.revision(subject) or not self._has_same_references(command):
            return [], StateChanged()
        is_import = state.mode_in_scope(subject).is_import
        before = state.versions(subject, deleted=True)
        next_version = before[-1].version + 1 if before else 1
        version = command.version if command.version > 0 else next_version
        if version != next_version and not is_import:
            raise SchemaRejected("Version is not one more than previous version")
        context = Subject.parse(subject).context
        schema_id = command.schema_id
        if schema_id is None:
            schema_id = state.find(context, command.schema) or state.next_id(context)
        self._check_id(context, schema_id, command)
        self._check_room(command, len(before))
        added = SchemaVersion(subject=subject, version=version, id=schema_id, schema=command.schema)
        records = [record(SchemaKey(subject, version), added)]
        size = len(records[0].key) + len(records[0].value or b"")
        if size > RECORD_BYTES_MAX:
            raise SchemaTooLarge(f"The schema's record has {size} bytes; {RECORD_BYTES_MAX} are allowed")
        if context != DEFAULT_CONTEXT and context not in state.contexts:
            records.insert(0, record(ContextKey(context), 1))
        for each in before:  # an earlier version of the same schema that is soft-deleted is superseded
            is_same = each.deleted and each.id == schema_id and each.version < version
            if is_same and not state.referrers_of(subject, each.version, deleted=True):
                records.append(record(SchemaKey(subject, each.version), None))
        return records, added

    def _has_same_references(self, command: Register) -> bool:
        """Returns whether the subjects that a schema refers to are unchanged. Otherwise a version may be deleted by
        now, or be another schema. Indirect references cannot be: the direct ones protect them."""
        return all(self.state.subject_revision(subject) == revision for subject, revision in command.referenced)

    def _check_id(self, context: str, schema_id: int, command: Register) -> None:
        """Raises OperationNotPermitted if the id is that of another schema."""
        others = self.state.uses(context, schema_id)
        if others and others[0].schema != command.schema:
            prefix = Subject(context, "").context_prefix
            raise OperationNotPermitted(
                f"Overwrite new schema with id {schema_id} in context {prefix} is not permitted."
            )

    def _check_room(self, command: Register, versions: int) -> None:
        state = self.state
        if versions >= VERSIONS_MAX:
            raise OperationNotPermitted(
                f"Subject {command.subject} has its maximum of {VERSIONS_MAX} versions; delete old ones permanently"
            )
        if state.count >= COUNT_MAX:
            raise OperationNotPermitted(
                f"The registry has its maximum of {COUNT_MAX} schema versions; delete subjects permanently that are "
                "not used"
            )
        if state.size_bytes + command.schema.size_bytes > self.bytes_max:
            raise OperationNotPermitted(
                f"The registry's schemas would take more than {self.bytes_max} bytes (schema.registry.bytes.max); "
                "delete subjects permanently that are not used"
            )

    def _delete_version(self, command: DeleteVersion) -> tuple[list[StateRecord], int]:
        state, subject = self.state, command.subject
        found = state.version(subject, command.version, deleted=True)
        if found is None:
            if not state.has_subject(subject, deleted=True):
                raise SubjectNotFound(subject)
            raise VersionNotFound(command.version)
        if found.deleted and not command.permanent:
            raise VersionSoftDeleted(subject, found.version)
        self._check_writable(subject)
        if state.referrers_of(subject, found.version, deleted=command.permanent):
            raise ReferenceExists(subject, found.version)
        key = SchemaKey(subject, found.version)
        if not command.permanent:
            return [record(key, replace(found, deleted=True))], found.version
        if not found.deleted:
            raise VersionNotSoftDeleted(subject, found.version)
        records = [*self._remember_ids([found]), record(key, None)]
        if len(state.versions(subject, deleted=True)) == 1:
            records += self._forget_settings(subject)
        return records, found.version

    def _delete_subject(self, command: DeleteSubject) -> tuple[list[StateRecord], list[int]]:
        state, subject = self.state, command.subject
        found = state.versions(subject, deleted=True)
        visible = [each for each in found if not each.deleted]
        if not found:
            raise SubjectNotFound(subject)
        if not command.permanent and not visible:
            raise SubjectSoftDeleted(subject)
        self._check_writable(subject)
        for each in found if command.permanent else visible:
            if any(
                use.subject != subject
                for referrer in state.referrers_of(subject, each.version, deleted=command.permanent)
                for use in state.uses(*referrer)
            ):
                raise ReferenceExists(subject, each.version)
        if not command.permanent:
            last = visible[-1].version
            return [record(DeleteSubjectKey(subject), last)], [each.version for each in visible]
        if visible:
            raise SubjectNotSoftDeleted(subject)
        removed = [record(SchemaKey(subject, each.version), None) for each in reversed(found)]
        records = [*self._remember_ids(found), *removed, *self._forget_settings(subject)]
        return records, [each.version for each in found]

    def _set_mode(self, command: SetMode) -> tuple[list[StateRecord], Mode | None]:
        subject, mode = command.subject, command.mode
        records: list[StateRecord] = []
        if mode is Mode.IMPORT and self.state.mode_in_scope(subject) is not Mode.IMPORT and not command.force:
            if self.state.has_subject(subject or ""):
                raise OperationNotPermitted("Cannot import since found existing subjects")
            versions = (
                each
                for name in self.state.matching(subject or "", deleted=True)
                for each in self.state.versions(name, deleted=True)
            )
            deleted = list(islice(versions, VERSIONS_MAX + 1))
            if len(deleted) > VERSIONS_MAX:
                raise OperationNotPermitted(
                    f"There are more than {VERSIONS_MAX} soft-deleted versions, which mode IMPORT would remove; "
                    "delete subjects permanently first, or set force=true"
                )
            for each in deleted:
                if self.state.referrers_of(each.subject, each.version, deleted=True):
                    raise ReferenceExists(each.subject, each.version)
            records += self._remember_ids(deleted)
            records += (record(SchemaKey(each.subject, each.version), None) for each in deleted)
            records.append(record(ClearSubjectKey(subject), 1))
        return [*records, record(ModeKey(subject), mode)], mode

    def _delete_modes(self, subject: str | None, recursive: bool) -> list[StateRecord]:
        scopes = [subject or None]
        if recursive:
            wanted = Subject.parse(subject or "")
            scopes += [each for each in self.state.modes if each and wanted.contains(Subject.parse(each))]
        return [record(ModeKey(each), None) for each in dict.fromkeys(scopes)]

    # -- parts of decisions

    def _check_writable(self, subject: str | None) -> None:
        if self.state.mode_in_scope(subject).is_read_only:
            context = Subject.parse(subject or "").context_prefix
            raise OperationNotPermitted(f"Subject {subject} in context {context} is in read-only mode")

    def _remember_ids(self, removed: list[SchemaVersion]) -> Iterator[StateRecord]:
        """Yields a record of the ids that no other record would tell of: the largest ones of their contexts."""
        used = dict(self.state.ids_used)
        for each in removed:
            context = Subject.parse(each.subject).context
            if each.id >= self.state.ids[context].largest:
                used[context] = max(each.id, used.get(context, 0))
        if used != self.state.ids_used:
            yield record(ConfigKey(IDS_SUBJECT), IdsUsed(tuple(sorted(used.items()))))

    def _forget_settings(self, subject: str) -> Iterator[StateRecord]:
        """Yields the records that remove mode and config of a subject without versions."""
        if subject in self.state.modes:
            yield record(ModeKey(subject), None)
        if subject in self.state.configs:
            yield record(ConfigKey(subject), None)
