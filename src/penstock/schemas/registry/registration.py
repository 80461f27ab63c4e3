"""Registering and looking up schemas: what must be parsed, compared and found.

Pure: reads the state, and changes nothing. How long parsing and comparing take is up to the schema, so both run in a
process of their own. The caller passes the jobs to that process, and the results back to these functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from penstock.schemas.registry.checks import CompareJob, ParseJob, Previous, ResolvedReferences, SchemaSource
from penstock.schemas.registry.data_contract import Metadata, merge_metadata, merge_rule_sets, with_version
from penstock.schemas.registry.errors import OperationNotPermitted, SchemaRejected
from penstock.schemas.registry.model import LATEST, Config, Mode, Reference, SchemaText, SchemaVersion
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import Subject

REFERENCES_MAX: Final = 1000
"""Maximum number of schemas that one schema may need, directly and indirectly."""
REFERENCED_CHARS_MAX: Final = 8 << 20
"""Maximum length of all texts that one schema needs."""
COMPARED_CHARS_MAX: Final = 8 << 20
"""Maximum length of the earlier versions that one schema is compared with."""
COMPARED_MAX: Final = 1000
"""Maximum number of earlier versions that one schema is compared with."""
CANDIDATES_MAX: Final = 100
"""Maximum number of earlier versions with references among which the same schema without references is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """The body of a request to register, look up or compare a schema."""

    schema: SchemaText
    """As the client sent it: not canonical, and with an empty text if the latest version's is meant."""
    version: int = 0
    """The version that it should get; 0 if the client does not say, -1 for the next one."""
    schema_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schema on its way to being registered or looked up."""

    subject: str
    schema: SchemaText
    job: ParseJob
    resolved: ResolvedReferences

    def parsed(self, text: str) -> "Draft":
        """Returns the draft with the canonical text, the result of `job`."""
        source = replace(self.job.source, text=text)
        return replace(self, schema=replace(self.schema, text=text), job=replace(self.job, source=source))


def check_mode(state: RegistryState, subject: str, schema_id: int | None) -> None:
    """Raises OperationNotPermitted if the subject's mode does not allow a schema to be registered."""
    mode, context = state.mode_in_scope(subject), Subject.parse(subject).context_prefix
    if mode.is_read_only:
        raise OperationNotPermitted(f"Subject {subject} in context {context} is in read-only mode")
    if schema_id is not None and not mode.is_import:
        raise OperationNotPermitted(f"Subject {subject} in context {context} is not in import mode")
    if schema_id is None and mode is not Mode.READWRITE:
        raise OperationNotPermitted(f"Subject {subject} in context {context} is not in read-write mode")


def complete(state: RegistryState, subject: str, request: SchemaRequest) -> SchemaText:
    """Returns the schema that a request means: with the latest version's text and data contract where the request
    has none, and with those that the config adds."""
    schema = request.schema
    if state.mode_in_scope(subject).is_import:
        return schema
    latest = state.version(subject, LATEST)
    if not schema.text.strip():
        if latest is None:
            raise SchemaRejected("Empty schema")
        before = latest.schema
        schema = replace(schema, type=before.type, text=before.text, references=before.references)
    versions = state.versions(subject, deleted=True)
    next_version = versions[-1].version + 1 if versions else 1
    return add_contract(state.config_in_scope(subject), schema, latest, request.version, next_version)


def add_contract(
    config: Config, schema: SchemaText, latest: SchemaVersion | None, version: int, next_version: int | None
) -> SchemaText:
    """Returns the schema with metadata and rules: its own, else those of the latest version, and those of the config.
    `next_version`: what `confluent:version` becomes, if the schema has or asks for that property."""
    before = None if latest is None else latest.schema
    metadata = schema.metadata if schema.metadata is not None or before is None else before.metadata
    rules = schema.rule_set if schema.rule_set is not None or before is None else before.rule_set
    metadata = merge_metadata(merge_metadata(config.default_metadata, metadata), config.override_metadata)
    rules = merge_rule_sets(merge_rule_sets(config.default_rule_set, rules), config.override_rule_set)
    has_version = metadata is not None and metadata.version is not None
    if next_version is not None and (version != 0 or has_version):
        metadata = with_version(metadata, next_version)
    return replace(schema, metadata=metadata, rule_set=rules)


def draft(state: RegistryState, subject: str, schema: SchemaText, *, normalize: bool, is_new: bool) -> Draft:
    """Returns a draft with the job that makes its text canonical. `is_new`: it must be one that may be registered.
    Raises SchemaRejected if a reference leads nowhere."""
    config, mode = state.config_in_scope(subject), state.mode_in_scope(subject)
    resolved = resolve_references(state, subject, schema.references, deleted=not is_new)
    schema = replace(schema, references=resolved.references)
    job = ParseJob(
        source=_source(schema, resolved),
        normalize=(normalize or config.normalize is True) and not mode.is_import,
        validate=is_new and not mode.is_import and config.validate_new_schemas is not False,
        validate_fields=config.validate_fields is True and not mode.is_import,
    )
    return Draft(subject=subject, schema=schema, job=job, resolved=resolved)


def resolve_references(
    state: RegistryState, subject: str, references: tuple[Reference, ...], *, deleted: bool
) -> ResolvedReferences:
    """Returns the references with their versions, and the texts they lead to, those needed first.

    A name counts once, however many schemas refer to it. Raises SchemaRejected if one leads nowhere or there are too
    many.
    """
    texts: dict[str, str] = {}
    seen: set[str] = set()
    found = tuple(
        replace(each, version=_referenced(state, Subject.parse(subject), each, deleted).version)
        for each in references
    )
    # Depth first, without recursion: a chain of references may be as long as REFERENCES_MAX.
    stack = [(Subject.parse(subject), iter(found), "", "")]
    chars = 0
    while stack:
        parent, pending, name, text = stack[-1]
        reference = next((each for each in pending if each.name not in seen), None)
        if reference is None:
            stack.pop()
            if name:
                texts[name] = text
            continue
        seen.add(reference.name)
        version = _referenced(state, parent, reference, deleted)
        chars += len(version.schema.text)
        if len(seen) > REFERENCES_MAX or chars > REFERENCED_CHARS_MAX:
            raise SchemaRejected(
                f"The references lead to more than {REFERENCES_MAX} schemas or {REFERENCED_CHARS_MAX} characters"
            )
        below = (Subject.parse(version.subject), iter(version.schema.references))
        stack.append((*below, reference.name, version.schema.text))
    subjects = sorted({str(Subject.parse(subject).resolve(each.subject)) for each in found})
    revisions = tuple((each, state.subject_revision(each)) for each in subjects)
    return ResolvedReferences(references=found, revisions=revisions, texts=texts)


def _referenced(state: RegistryState, parent: Subject, reference: Reference, deleted: bool) -> SchemaVersion:
    subject = str(parent.resolve(reference.subject))
    found = state.version(subject, reference.version, deleted=deleted)
    if found is None:
        raise SchemaRejected(
            f'No schema reference found for subject "{subject}" and version {reference.version}; register it first'
        )
    return found


def source_of(state: RegistryState, version: SchemaVersion) -> SchemaSource:
    """Returns the text of a registered schema with those of its references."""
    resolved = resolve_references(state, version.subject, version.schema.references, deleted=True)
    return _source(version.schema, resolved)


def _source(schema: SchemaText, resolved: ResolvedReferences) -> SchemaSource:
    return SchemaSource(type=schema.type, text=schema.text, references=tuple(resolved.texts.items()))


# -- finding a schema that is registered already


def find_same(state: RegistryState, found: Draft, *, deleted: bool = False) -> SchemaVersion | None:
    """Returns the version of the subject that has exactly this schema, the latest if there are several."""
    schema_id = state.find(Subject.parse(found.subject).context, found.schema)
    latest_first = state.versions(found.subject, deleted=deleted)[::-1]
    exact = (each for each in latest_first if each.id == schema_id)
    similar = (each for each in latest_first if _differs_only_in_version(found, each))
    return next(exact, None) or next(similar, None)


def _differs_only_in_version(found: Draft, version: SchemaVersion) -> bool:
    """Whether schemas are the same except that one of them has the property `confluent:version`."""
    mine, theirs = found.schema, version.schema
    own, other = _version_of(mine.metadata), _version_of(theirs.metadata)
    if (own is None) == (other is None) or (own is not None and own != str(version.version)):
        return False
    return replace(mine, metadata=_without_version(mine.metadata)) == replace(
        theirs, metadata=_without_version(theirs.metadata)
    )


def _version_of(metadata: Metadata | None) -> str | None:
    return None if metadata is None else metadata.version


def _without_version(metadata: Metadata | None) -> Metadata:
    return Metadata() if metadata is None else metadata.without_version()


def candidates(state: RegistryState, found: Draft, *, deleted: bool = False) -> tuple[Previous, ...]:
    """Returns the versions that may be the same schema as one sent without references: clients of Avro may send the
    texts of referenced types instead. The latest first."""
    if found.schema.references:
        return ()
    versions = (
        each
        for each in reversed(state.versions(found.subject, deleted=deleted))
        if each.schema.references and each.schema.type == found.schema.type
    )
    return tuple(_limited(state, islice(versions, CANDIDATES_MAX)))


# -- comparing with earlier versions


def compare_job(
    state: RegistryState, found: Draft, previous: list[SchemaVersion], same: tuple[Previous, ...] = ()
) -> CompareJob:
    """Returns the job that compares a schema with earlier versions (ascending), as the config asks for."""
    config = state.config_in_scope(found.subject)
    level = config.level
    assert level is not None
    if config.group is not None:
        group = _property(found.schema, config.group)
        previous = [each for each in previous if _property(each.schema, config.group) == group]
    if not (level.reads_old or level.is_read_by_old):
        previous = []
    elif not level.is_transitive:
        previous = previous[-1:]
    return CompareJob(
        source=found.job.source,
        reads_old=level.reads_old,
        is_read_by_old=level.is_read_by_old,
        previous=tuple(_limited(state, reversed(previous))),
        candidates=same,
        validate_fields=config.validate_fields is True,
    )


def _limited(state: RegistryState, versions: Iterator[SchemaVersion]) -> Iterator[Previous]:
    """Yields the versions with their texts. Raises OperationNotPermitted if there are too many."""
    chars = 0
    for count, each in enumerate(versions):
        source = source_of(state, each)
        chars += len(source.text) + sum(len(text) for _, text in source.references)
        if count >= COMPARED_MAX or chars > COMPARED_CHARS_MAX:
            raise OperationNotPermitted(
                f"Subject {each.subject} has more than {COMPARED_MAX} earlier versions or {COMPARED_CHARS_MAX} "
                "characters to compare with; use a compatibility level that is not transitive, or delete old versions"
            )
        yield Previous(version=each.version, source=source)


def _property(schema: SchemaText, name: str) -> str | None:
    return None if schema.metadata is None else dict(schema.metadata.properties).get(name)


def describe(messages: tuple[str, ...], config: Config) -> list[str]:
    """Returns the messages of an incompatible schema as Confluent's registry shows them; empty if compatible."""
    assert config.level is not None
    if not messages:
        return []
    flag = "true" if config.validate_fields else "false"
    return [*messages, f"{{validateFields: '{flag}', compatibility: '{config.level.value}'}}"]
