"""The folder that `penstock schema export` writes and `import` reads: a file for each schema.

registry.json          settings of the contexts; written last, so that an export that was interrupted is recognised
subjects/NAME/
    subject.json       settings of the subject; versions with ids, types and references
    1.avsc, 2.avsc     the schemas, exactly as they are registered
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from penstock.client.schema_registry_models import (
    AVRO,
    JSON_SCHEMA,
    PROTOBUF,
    Json,
    RegisteredSchema,
    Schema,
    SchemaReference,
)
from penstock.foundation.errors import PenstockError

FORMAT: Final = "penstock-schemas-1"
REGISTRY_FILE: Final = "registry.json"
SUBJECT_FILE: Final = "subject.json"
SUBJECTS_FOLDER: Final = "subjects"
_SUFFIXES: Final = {AVRO: ".avsc", JSON_SCHEMA: ".json", PROTOBUF: ".proto"}
_NAME_CHARS_MAX: Final = 150


class InvalidArchive(PenstockError):
    """The folder is not an export of schemas, or is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSettings:
    """Settings of a subject, a context or the whole registry; None: it has none of its own."""

    config: Json | None = field(default=None, hash=False)
    mode: str | None = None

    @classmethod
    def parse(cls, found: Json) -> "ScopeSettings":
        return cls(config=found.get("config"), mode=found.get("mode"))

    def json(self) -> dict[str, Any]:
        return {"config": None if self.config is None else dict(self.config), "mode": self.mode}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedVersion:
    """A version of a subject, whose text is in a file."""

    subject: str
    version: int
    id: int
    type: str
    references: tuple[SchemaReference, ...]
    metadata: Json | None = field(hash=False)
    rule_set: Json | None = field(hash=False)
    is_deleted: bool
    path: Path

    @property
    def name(self) -> str:
        return f"{self.subject} version {self.version}"

    def schema(self) -> Schema:
        """Reads the schema from its file. Raises InvalidArchive."""
        try:
            text = self.path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArchive(f"cannot read {self.path}: {error}") from error
        return Schema(
            text=text, type=self.type, references=self.references, metadata=self.metadata, rule_set=self.rule_set
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSubject:
    subject: str
    settings: ScopeSettings
    versions: tuple[ArchivedVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    contexts: Mapping[str, ScopeSettings]
    """By the prefix of their subjects, such as `:.staging:`; "" for the default context, that is the registry."""
    subjects: tuple[ArchivedSubject, ...]

    @property
    def versions(self) -> Iterator[ArchivedVersion]:
        for subject in self.subjects:
            yield from subject.versions


class ArchiveWriter:
    """Writes an export into an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()
        (folder / SUBJECTS_FOLDER).mkdir(parents=True)

    def add_subject(self, subject: str, settings: ScopeSettings, versions: list[RegisteredSchema]) -> None:
        folder = self._folder / SUBJECTS_FOLDER / self._folder_name(subject)
        folder.mkdir()
        listed = []
        for each in versions:
            file = f"{each.version}{_SUFFIXES.get(each.schema.type, '.txt')}"
            (folder / file).write_bytes(each.schema.text.encode())
            fields = {name: value for name, value in each.schema.json().items() if name != "schema"}
            deleted = {"deleted": True} if each.is_deleted else {}
            listed.append({"version": each.version, "id": each.id, **fields, **deleted, "file": file})
        _write_json(folder / SUBJECT_FILE, {"subject": subject, **settings.json(), "versions": listed})

    def _folder_name(self, subject: str) -> str:
        """Returns a name that no other subject has, also on disks that ignore case."""
        name = quote(subject, safe=" ").replace(".", "%2E") if subject.startswith(".") else quote(subject, safe=" ")
        if len(name) > _NAME_CHARS_MAX or name.casefold() in self._names:
            digest = hashlib.sha256(subject.encode()).hexdigest()[:16]
            name = f"{name[:_NAME_CHARS_MAX]}~{digest}"
        self._names.add(name.casefold())
        return name

    def finish(self, contexts: Mapping[str, ScopeSettings]) -> None:
        """Writes the settings of the contexts, which marks the export as complete."""
        listed = [{"context": context, **settings.json()} for context, settings in contexts.items()]
        _write_json(self._folder / REGISTRY_FILE, {"format": FORMAT, "contexts": listed})


def _write_json(path: Path, found: Json) -> None:
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_archive(folder: Path) -> Archive:
    """Reads an export, without the texts of the schemas. Raises InvalidArchive."""
    path = folder / REGISTRY_FILE
    if not path.exists():
        raise InvalidArchive(
            f"{folder} has no {REGISTRY_FILE}: it is not an export of schemas, or one that did not finish"
        )
    try:
        found = json.loads(path.read_bytes())
        if found["format"] != FORMAT:
            raise InvalidArchive(f"{path} has format {found['format']!r}; this version reads {FORMAT!r}")
        contexts = {str(each["context"]): ScopeSettings.parse(each) for each in found["contexts"]}
        subjects = []
        for path in sorted((folder / SUBJECTS_FOLDER).glob(f"*/{SUBJECT_FILE}")):
            subjects.append(_parse_subject(path, json.loads(path.read_bytes())))
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArchive(f"{path} cannot be read: {error!r}") from error
    return Archive(contexts=contexts, subjects=tuple(sorted(subjects, key=lambda each: each.subject)))


def _parse_subject(path: Path, found: Json) -> ArchivedSubject:
    subject = str(found["subject"])
    return ArchivedSubject(
        subject=subject,
        settings=ScopeSettings.parse(found),
        versions=tuple(_parse_version(path.parent, subject, each) for each in found["versions"]),
    )


def _parse_version(folder: Path, subject: str, found: Json) -> ArchivedVersion:
    file = str(found["file"])
    if Path(file).name != file:
        raise ValueError(f"{file!r} is not a file of this folder")
    return ArchivedVersion(
        subject=subject,
        version=int(found["version"]),
        id=int(found["id"]),
        type=str(found["schemaType"]),
        references=tuple(SchemaReference.parse(each) for each in found.get("references") or ()),
        metadata=found.get("metadata"),
        rule_set=found.get("ruleSet"),
        is_deleted=found.get("deleted") is True,
        path=folder / file,
    )
