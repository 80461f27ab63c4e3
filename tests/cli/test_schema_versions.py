"""`penstock schema register|check|show|versions|delete`, as its users run them."""

import itertools
import json
from pathlib import Path

import pytest

from .cli_runner import Cli, table

_numbers = itertools.count()


class Files:
    """Writes schemas into files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def record(self, name: str, **fields: object) -> str:
        """Returns the path of an Avro schema."""
        listed = [{"name": each, "type": type_} for each, type_ in fields.items()]
        return self.text(f"{name}.avsc", json.dumps({"type": "record", "name": name, "fields": listed}))

    def text(self, name: str, text: str) -> str:
        path = self._folder / f"{next(_numbers)}-{name}"
        path.write_text(text)
        return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def subject() -> str:
    """A name that no other test has."""
    return f"versions-{next(_numbers)}"


@pytest.fixture
def registered(cli: Cli, files: Files, subject: str) -> dict[str, object]:
    """Version 1 of the subject: a record that no other test has."""
    name = subject.replace("-", "_")
    (added,) = cli.json("schema", "register", subject, files.record(name, id="long"))
    found: dict[str, object] = added
    return found


def test_a_schema_is_registered_listed_and_shown(cli: Cli, files: Files, subject: str) -> None:
    file = files.record("Order", id="long", note=["null", "string"])
    (added,) = cli.json("schema", "register", subject, file)
    number = added["id"]
    assert added == {"subject": subject, "version": 1, "id": number, "type": "AVRO"}
    assert cli.ok("schema", "register", subject, file) == f"{subject} version 1, id {number}\n", (
        "again: no new version"
    )
    assert table(cli.ok("schema", "list", "--prefix", subject)) == [
        ["SUBJECT", "VERSION", "ID", "TYPE"],
        [subject, "1", str(number), "AVRO"],
    ]
    assert table(cli.ok("schema", "versions", subject))[1] == ["1", str(number), "AVRO", "-"]
    shown = cli.ok("schema", "show", subject)
    assert shown.startswith(f"{subject} version 1, id {number}, AVRO\n\n{{\n")
    assert '"type": ["null", "string"]' in shown
    raw = cli.ok("schema", "show", subject, "--raw")
    assert json.loads(raw)["name"] == "Order"
    assert cli.ok("schema", "register", subject, "-", "--type", "avro", stdin=raw.encode()).startswith(subject)
    assert f"registered as {subject} version 1" in cli.ok("schema", "show", "--id", str(number), subject)


def test_each_type_is_guessed_from_the_name_of_the_file(cli: Cli, files: Files, subject: str) -> None:
    for suffix, text, kind in (
        ("avsc", '"string"', "AVRO"),
        ("json", '{"type": "object"}', "JSON"),
        ("proto", 'syntax = "proto3"; message A { string a = 1; }', "PROTOBUF"),
    ):
        name = f"{subject}-{suffix}"
        (added,) = cli.json("schema", "register", name, files.text(f"a.{suffix}", text))
        assert added["type"] == kind
        assert f", {kind}\n" in cli.ok("schema", "show", name)


def test_a_schema_with_references_is_registered_and_shown_with_them(cli: Cli, files: Files, subject: str) -> None:
    needed, top = f"{subject}-needed", f"{subject}-top"
    cli.ok("schema", "register", needed, files.record("Needed", id="long"))
    file = files.record("Top", one="Needed")
    (added,) = cli.json("schema", "register", top, file, "--reference", f"Needed={needed}:latest")
    shown = cli.ok("schema", "show", top, "--references")
    assert f"refers to {needed} version 1 as Needed\n" in shown
    assert f"\nNeeded: {needed} version 1, id " in shown
    assert f"referenced by id {added['id']}\n" in cli.ok("schema", "show", needed)
    (as_json,) = cli.json("schema", "show", top, "--references")
    assert [each["subject"] for each in as_json["resolved"]] == [needed]
    assert table(cli.ok("schema", "versions", top))[1][-1] == "Needed"
    assert "delete the schemas that refer to it first" in cli.refused("schema", "delete", needed, "--yes", code=1)


def test_a_schema_that_does_not_parse_is_refused(cli: Cli, files: Files, subject: str) -> None:
    file = files.text("broken.avsc", '{"type": "record"}')
    assert "Invalid schema of type AVRO" in cli.refused("schema", "register", subject, file, code=1)
    done = cli("schema", "check", subject, file)
    assert done.returncode == 1
    assert b"Invalid schema of type AVRO" in done.stdout
    assert b"cannot be registered in" in done.stderr


def test_an_incompatible_schema_is_refused_with_the_reasons(
    cli: Cli, files: Files, subject: str, registered: dict[str, object]
) -> None:
    name = subject.replace("-", "_")
    other = files.record(name, id="string", more="long")
    done = cli("schema", "check", subject, other)
    assert done.returncode == 1
    reasons = done.stdout.decode().splitlines()
    assert len(reasons) == 2
    assert any("TYPE_MISMATCH" in each for each in reasons)
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in each for each in reasons)
    advice = f"change it, or the level with `penstock schema compatibility {subject} LEVEL`"
    what = f"the schema is not compatible with version 1 of {subject}"
    assert done.stderr.decode() == f"Error: {what}; {advice}\n"
    as_json = cli("schema", "check", subject, other, "--json")
    assert as_json.returncode == 1
    found = json.loads(as_json.stdout)
    assert (found["compatible"], found["version"], found["reasons"]) == (False, 1, reasons)
    refused = cli.refused("schema", "register", subject, other, code=1)
    assert refused == f"{what}: {'; '.join(reasons)}; {advice}"
    cli.ok("schema", "compatibility", subject, "NONE")
    assert cli.json("schema", "register", subject, other)[0]["version"] == 2


def test_a_compatible_schema_is_checked_without_being_registered(
    cli: Cli, files: Files, subject: str, registered: dict[str, object]
) -> None:
    fewer = files.record(subject.replace("-", "_"))
    for against in ("all", "latest", "1"):
        assert cli.ok("schema", "check", subject, fewer, "--against", against) == f"compatible with {subject}\n"
    assert "Version 2 not found" in cli.refused("schema", "check", subject, fewer, "--against", "2", code=1)
    assert len(cli.json("schema", "versions", subject)) == 1


def test_a_deleted_version_is_shown_until_it_is_deleted_permanently(
    cli: Cli, files: Files, subject: str, registered: dict[str, object]
) -> None:
    cli.ok("schema", "register", subject, files.record(subject.replace("-", "_"), id="double"))
    assert "give --yes to delete" in cli.refused("schema", "delete", subject, code=2)
    assert cli.ok("schema", "delete", subject, "--version", "1", "--yes") == (
        f"soft-deleted version 1 of subject {subject}\n"
    )
    assert [each["version"] for each in cli.json("schema", "versions", subject)] == [2]
    both = table(cli.ok("schema", "versions", subject, "--deleted"))
    assert [row[-1] for row in both] == ["DELETED", "yes", "no"]
    assert ", soft-deleted\n" in cli.ok("schema", "show", subject, "--version", "1")
    again = cli.refused("schema", "delete", subject, "--version", "1", "--yes", code=1)
    assert again.startswith(f"Version 1 of subject '{subject}' is soft-deleted already; give --permanent")
    (gone,) = cli.json("schema", "delete", subject, "--permanent", "--yes")
    assert gone == {"subject": subject, "versions": [1, 2], "permanent": True}
    assert "not found" in cli.refused("schema", "versions", subject, "--deleted", code=1)
    assert "not found" in cli.refused("schema", "show", "--id", str(registered["id"]), code=1)


def test_the_latest_version_is_deleted_permanently_in_one_step(
    cli: Cli, files: Files, subject: str, registered: dict[str, object]
) -> None:
    cli.ok("schema", "register", subject, files.record(subject.replace("-", "_"), id="double"))
    assert cli.ok("schema", "delete", subject, "--version", "latest", "--permanent", "--yes") == (
        f"deleted version 2 of subject {subject} permanently\n"
    )
    assert [each["version"] for each in cli.json("schema", "versions", subject, "--deleted")] == [1]


def test_the_user_is_told_what_is_lost(cli: Cli, subject: str, registered: dict[str, object]) -> None:
    code, screen = cli.on_terminal("schema", "delete", subject, "--permanent", typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert f"Delete subject {subject} with 1 version permanently?" in screen
    assert f"Data with id {registered['id']} cannot be read any more" in " ".join(screen.split())
    assert "nothing was deleted" in screen
    code, screen = cli.on_terminal("schema", "delete", subject, typed=b"y\n", until=b"[y/N]")
    assert code == 0
    assert "can still be read" in " ".join(screen.split())
    assert cli.json("schema", "list", "--prefix", subject) == []
    (listed,) = cli.json("schema", "list", "--prefix", subject, "--deleted")
    assert (listed["subject"], listed["deleted"]) == (subject, True)


def test_mode_import_asks_before_soft_deleted_schemas_are_removed(cli: Cli, files: Files, subject: str) -> None:
    context = f":.{subject}:"
    cli.ok("schema", "register", f"{context}orders", files.record("Order", id="long"))
    refused = cli.refused("schema", "mode", context, "IMPORT", code=1)
    assert "Cannot import since found existing subjects; delete the subjects first, or keep them" in refused
    cli.ok("schema", "delete", f"{context}orders", "--yes")
    assert "give --yes to set mode IMPORT" in cli.refused("schema", "mode", context, "IMPORT", code=2)
    cli.ok("schema", "mode", context, "IMPORT", "--yes")
    assert cli.json("schema", "list", "--prefix", context, "--deleted") == []


def test_schemas_of_a_context_are_found_by_its_prefix(cli: Cli, files: Files, subject: str) -> None:
    name = f":.{subject}:orders"
    (added,) = cli.json("schema", "register", name, files.record("Order", id="long"))
    assert added["id"] == 1, "each context has ids of its own"
    assert [each["subject"] for each in cli.json("schema", "list", "--prefix", f":.{subject}:")] == [name]
    assert cli.ok("schema", "show", "--id", "1", name).startswith(f"{name} version 1, id 1, AVRO\n")
