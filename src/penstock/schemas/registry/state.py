"""The state of the schema registry, as the records of its topic make it: subjects, ids, references, settings."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from sortedcontainers import SortedDict, SortedSet

from penstock.schemas.registry.layout import (
    IDS_SUBJECT,
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    IdsUsed,
    Key,
    ModeKey,
    SchemaKey,
    Value,
)
from penstock.schemas.registry.model import LATEST, Config, Level, Mode, SchemaText, SchemaVersion
from penstock.schemas.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Subject

_GLOBAL_SUBJECT: Final = f":{GLOBAL_CONTEXT}:"
DEFAULT_CONFIG: Final = Config(level=Level.BACKWARD)
DEFAULT_MODE: Final = Mode.READWRITE
T = TypeVar("T")


class ContextIds:
    """The schemas of one context by id and by GUID. A schema has one id in all subjects of a context."""

    __slots__ = ("by_guid", "largest", "uses")

    def __init__(self) -> None:
        self.by_guid: dict[str, int] = {}
        self.uses: dict[int, dict[str, set[int]]] = {}
        """The versions of each subject that have an id."""
        self.largest = 0


class RegistryState:
    """All subjects and settings. Changes only in `apply`. The order of subjects is that of their names."""

    def __init__(self) -> None:
        self.subjects: SortedDict[str, SortedDict[int, SchemaVersion]] = SortedDict()
        self.visible: SortedSet[str] = SortedSet()
        """The subjects that have a version which is not soft-deleted."""
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, Mode] = {}
        self.contexts: set[str] = set()
        """Contexts that have or had subjects, except the default context."""
        self.ids: dict[str, ContextIds] = {}
        self.ids_used: dict[str, int] = {}
        """The largest id in each context among schemas deleted for good."""
        self.referrers: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        """For each (subject, version): the (context, id) of schemas that refer to it, and how many versions do."""
        self._settings_revision = 0
        self._revisions: dict[str, int] = {}
        self.count = 0
        self.size_bytes = 0
        """About the memory that all schema texts take."""

    # -- reading

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion | None:
        """Returns a version, or the latest one for LATEST. `deleted`: also if it is soft-deleted."""
        versions = self.subjects.get(subject)
        if versions is None:
            return None
        if version == LATEST:
            return next((each for each in reversed(versions.values()) if not each.deleted), None)
        found = versions.get(version)
        return None if found is None or (found.deleted and not deleted) else found

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Returns the versions of a subject in ascending order."""
        found = self.subjects.get(subject)
        return [] if found is None else [each for each in found.values() if deleted or not each.deleted]

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        """Whether a subject has versions; for a context without a name, whether one of its subjects has."""
        return any(self.matching(subject, deleted=deleted))

    def matching(self, subject: str, *, deleted: bool = False) -> Iterator[str]:
        """Yields the subject itself if it has versions, or all such subjects if it names a whole context."""
        wanted, known = Subject.parse(subject), self.subjects if deleted else self.visible
        if wanted.name:
            yield from (subject,) if subject in known else ()
        elif wanted.context in (DEFAULT_CONTEXT, GLOBAL_CONTEXT):
            yield from (each for each in known if wanted.contains(Subject.parse(each)))
        else:
            yield from self.with_prefix(wanted.context_prefix, deleted=deleted)

    def with_prefix(self, prefix: str, *, deleted: bool = False) -> Iterator[str]:
        """Yields the subjects whose text, with its context, starts with a prefix."""
        known = self.subjects if deleted else self.visible
        found: Iterator[str] = known.irange(prefix, prefix + chr(0x10FFFF))
        return found

    def config(self, subject: str | None) -> Config | None:
        """Returns the config set for exactly this subject or context; the whole registry's for None."""
        found = self.configs.get(subject or None)
        if found is None:
            return DEFAULT_CONFIG if not subject or subject == _GLOBAL_SUBJECT else None
        return _with_level(found)

    def config_in_scope(self, subject: str | None) -> Config:
        """Returns the config that applies to a subject: its own, with flags of the registry's where it has none; or
        else that of its context, or the global one."""
        own, registry = self.configs.get(subject or None), self.configs.get(None, DEFAULT_CONFIG)
        if own is not None:
            return _with_level(own.with_flags_of(registry))
        for scope in self._scopes(subject):
            found = self.configs.get(scope)
            if found is not None:
                return _with_level(found)
        return DEFAULT_CONFIG

    def mode(self, subject: str | None) -> Mode | None:
        found = self.modes.get(subject or None)
        if found is None and (not subject or subject == _GLOBAL_SUBJECT):
            return DEFAULT_MODE
        return found

    def mode_in_scope(self, subject: str | None) -> Mode:
        """Returns the mode that applies to a subject: its own, its context's, or the global one."""
        return next((self.modes[scope] for scope in self._scopes(subject) if scope in self.modes), DEFAULT_MODE)

    def _scopes(self, subject: str | None) -> tuple[str | None, ...]:
        if not subject:
            return (None, _GLOBAL_SUBJECT)
        context = Subject.parse(subject).context
        return (subject, None if context == DEFAULT_CONTEXT else f":{context}:", _GLOBAL_SUBJECT)

    def next_id(self, context: str) -> int:
        ids = self.ids.get(context)
        return max(ids.largest if ids else 0, self.ids_used.get(context, 0)) + 1

    def find(self, context: str, schema: SchemaText) -> int | None:
        """Returns the id of a schema in a context, if it has one."""
        ids = self.ids.get(context)
        return None if ids is None else ids.by_guid.get(schema.guid)

    def uses(self, context: str, schema_id: int) -> list[SchemaVersion]:
        """Returns all versions that have an id, also soft-deleted ones, ordered by subject."""
        ids = self.ids.get(context)
        found = {} if ids is None else ids.uses.get(schema_id, {})
        return [self.subjects[name][number] for name in sorted(found) for number in sorted(found[name])]

    def is_registered(self, schema_id: int, subject: str, *, is_prefix: bool) -> bool:
        """Returns whether a schema of the default context is registered under a subject, or an alias of it; with
        `is_prefix`, under any subject that starts with the text. Soft-deleted versions count."""
        ids = self.ids.get(DEFAULT_CONTEXT)
        found = {} if ids is None else ids.uses.get(schema_id, {})
        if is_prefix:
            return any(name.startswith(subject) for name in found)
        config = self.configs.get(subject)
        return subject in found or (config is not None and config.alias is not None and config.alias in found)

    def referrers_of(self, subject: str, version: int, *, deleted: bool) -> list[tuple[str, int]]:
        """Returns context and id of the schemas that refer to a version. `deleted`: also of soft-deleted ones."""
        found = self.referrers.get((subject, version), {})
        return sorted(each for each in found if deleted or any(not use.deleted for use in self.uses(*each)))

    def revision(self, subject: str) -> tuple[int, int]:
        """Returns a value that changes with the versions of the subject and with any setting. A registration that was
        checked with another revision is checked again."""
        return self.subject_revision(subject), self._settings_revision

    def subject_revision(self, subject: str) -> int:
        """Returns a number that changes with the versions of the subject."""
        return self._revisions.get(subject, 0)

    # -- changing

    def apply(self, key: Key, value: Value) -> None:
        """Applies a record, as Confluent's registry does."""
        if isinstance(key, SchemaKey | DeleteSubjectKey):
            self._revisions[key.subject] = self._revisions.get(key.subject, 0) + 1
        else:
            self._settings_revision += 1
        match key:
            case SchemaKey(subject, version):
                self._remove(subject, version)
                if isinstance(value, SchemaVersion):
                    self._add(value)
            case ConfigKey(subject) if subject == IDS_SUBJECT:
                self.ids_used = dict(value.by_context) if isinstance(value, IdsUsed) else {}
            case ConfigKey(subject):
                _set(self.configs, subject or None, value if isinstance(value, Config) else None)
            case ModeKey(subject):
                _set(self.modes, subject or None, value if isinstance(value, Mode) else None)
            case ContextKey(context):
                (self.contexts.discard if value is None else self.contexts.add)(context)
            case DeleteSubjectKey(subject) if isinstance(value, int):
                for found in self.versions(subject):
                    if found.version <= value:
                        self.subjects[subject][found.version] = replace(found, deleted=True)
                self._update_visible(subject)
            case ClearSubjectKey(subject) if value is not None:
                for name in list(self.matching(subject or "", deleted=True)):
                    for found in self.versions(name, deleted=True):
                        if found.deleted:
                            self._remove(name, found.version)

    def _add(self, found: SchemaVersion) -> None:
        context = Subject.parse(found.subject).context
        self.subjects.setdefault(found.subject, SortedDict())[found.version] = found
        ids = self.ids.setdefault(context, ContextIds())
        ids.largest = max(ids.largest, found.id)
        ids.by_guid[found.schema.guid] = found.id
        ids.uses.setdefault(found.id, {}).setdefault(found.subject, set()).add(found.version)
        for target in self._targets(found):
            referrers = self.referrers.setdefault(target, {})
            referrers[context, found.id] = referrers.get((context, found.id), 0) + 1
        self.count += 1
        self.size_bytes += found.schema.size_bytes
        if found.deleted:
            self._update_visible(found.subject)
        else:
            self.visible.add(found.subject)

    def _update_visible(self, subject: str) -> None:
        if self.version(subject, LATEST) is None:
            self.visible.discard(subject)
        else:
            self.visible.add(subject)

    def _remove(self, subject: str, version: int) -> None:
        versions = self.subjects.get(subject)
        found = None if versions is None else versions.pop(version, None)
        if versions is None or found is None:
            return
        if not versions:
            del self.subjects[subject]
        context = Subject.parse(subject).context
        ids = self.ids[context]
        uses = ids.uses[found.id]
        uses[subject].discard(version)
        if not uses[subject]:
            del uses[subject]
        if not uses:
            del ids.uses[found.id]
            if ids.by_guid.get(found.schema.guid) == found.id:
                del ids.by_guid[found.schema.guid]
        for target in self._targets(found):
            referrers = self.referrers[target]
            referrers[context, found.id] -= 1
            if not referrers[context, found.id]:
                del referrers[context, found.id]
            if not referrers:
                del self.referrers[target]
        self.count -= 1
        self.size_bytes -= found.schema.size_bytes
        self._update_visible(subject)

    def _targets(self, found: SchemaVersion) -> set[tuple[str, int]]:
        parent = Subject.parse(found.subject)
        return {(str(parent.resolve(each.subject)), each.version) for each in found.schema.references}


def _with_level(found: Config) -> Config:
    return found if found.level is not None else found.updated({"compatibilityLevel": Level.BACKWARD.value})


def _set(values: dict[str | None, T], key: str | None, value: T | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
