"""The folder of `penstock schema export`, the order of an import, and how schemas are shown; without a broker."""

import json
from pathlib import Path

import pytest

from penstock.cli.schema.archive import ArchiveWriter, InvalidArchive, ScopeSettings, read_archive
from penstock.cli.schema.import_plan import context_prefix, move_to, registration_order
from penstock.cli.schema.json_text import indent_json
from penstock.cli.schema.registration import parse_reference
from penstock.client.schema_registry_models import PROTOBUF, RegisteredSchema, Schema, SchemaReference

REGISTRY = {"": ScopeSettings(config={"compatibility": "FULL"}, mode="READWRITE")}


def version(
    subject: str, number: int = 1, *needs: tuple[str, int], text: str = '"string"', deleted: bool = False
) -> RegisteredSchema:
    references = tuple(SchemaReference(f"{name}-{of}", name, of) for name, of in needs)
    return RegisteredSchema(
        id=number,
        schema=Schema(text=text, references=references),
        subject=subject,
        version=number,
        is_deleted=deleted,
    )


def write(folder: Path, *versions: RegisteredSchema) -> Path:
    writer = ArchiveWriter(folder)
    for subject in dict.fromkeys(each.subject for each in versions):
        writer.add_subject(subject, ScopeSettings(), [each for each in versions if each.subject == subject])
    writer.finish(REGISTRY)
    return folder


def ordered(folder: Path) -> list[str]:
    return [f"{each.subject} {each.version}" for each in registration_order(read_archive(folder))]


def test_what_is_exported_is_read_again(tmp_path: Path) -> None:
    schema = Schema(
        text='syntax = "proto3";\n\n// grün\n',
        type=PROTOBUF,
        references=(SchemaReference("a.proto", "a", 3),),
        metadata={"properties": {"owner": "ada"}},
        rule_set={"domainRules": []},
    )
    found = RegisteredSchema(id=7, schema=schema, subject="orders", version=2, is_deleted=True)
    writer = ArchiveWriter(tmp_path / "out")
    settings = ScopeSettings(config={"compatibility": "NONE", "normalize": True}, mode="READONLY")
    writer.add_subject("orders", settings, [found])
    writer.finish(REGISTRY)
    archive = read_archive(tmp_path / "out")
    assert archive.contexts == REGISTRY
    (subject,) = archive.subjects
    assert (subject.subject, subject.settings) == ("orders", settings)
    (each,) = subject.versions
    assert (each.id, each.version, each.is_deleted, each.schema()) == (7, 2, True, schema)
    assert (tmp_path / "out" / "subjects" / "orders" / "2.proto").read_text() == schema.text


def test_each_subject_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = ["Orders", "orders", ":.ctx:a/b", "..", "x" * 4000, "x" * 4000 + "y", "grün", "a b", "a%20b"]
    archive = read_archive(write(tmp_path / "out", *map(version, names)))
    assert sorted(each.subject for each in archive.subjects) == sorted(names)
    folders = [path.name for path in (tmp_path / "out" / "subjects").iterdir()]
    assert len({name.casefold() for name in folders}) == len(names), "also on disks that ignore case"
    assert max(map(len, folders)) < 200


def test_an_export_that_did_not_finish_is_not_read(tmp_path: Path) -> None:
    ArchiveWriter(tmp_path / "out").add_subject("orders", ScopeSettings(), [version("orders")])
    with pytest.raises(InvalidArchive, match="did not finish"):
        read_archive(tmp_path / "out")


@pytest.mark.parametrize("file", ["../../../secret", "/etc/passwd", "sub/1.avsc"])
def test_no_file_outside_of_the_export_is_read(tmp_path: Path, file: str) -> None:
    folder = write(tmp_path / "out", version("orders"))
    path = folder / "subjects" / "orders" / "subject.json"
    found = json.loads(path.read_text())
    found["versions"][0]["file"] = file
    path.write_text(json.dumps(found))
    with pytest.raises(InvalidArchive, match="is not a file of this folder"):
        read_archive(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"subject": "orders"}', '{"subject": "orders", "versions": [{}]}'])
def test_a_damaged_export_is_refused(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "out", version("orders"))
    path = folder / "subjects" / "orders" / "subject.json"
    path.write_text(text)
    with pytest.raises(InvalidArchive, match=r"subject\.json cannot be read"):
        read_archive(folder)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", version("orders"))
    (each,) = read_archive(folder).versions
    (folder / "subjects" / "orders" / "1.avsc").unlink()
    with pytest.raises(InvalidArchive, match=r"cannot read .*1\.avsc"):
        each.schema()


def test_a_schema_is_registered_after_those_it_refers_to(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "out",
        version("a", 1, ("c", 2)),
        version("b", 1),
        version("c", 1, ("b", 1)),
        version("c", 2, ("d", 1), ("b", 1)),
        version("d", 1, ("c", 1)),
    )
    assert ordered(folder) == ["b 1", "c 1", "d 1", "c 2", "a 1"]


def test_a_long_chain_of_references_is_ordered(tmp_path: Path) -> None:
    chain = [version(f"s{number:04}", 1, (f"s{number + 1:04}", 1)) for number in range(2000)]
    folder = write(tmp_path / "out", *chain, version("s2000"))
    assert ordered(folder) == [f"s{number:04} 1" for number in range(2000, -1, -1)]


def test_a_reference_that_was_not_exported_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", version("a", 1, ("b", 2)), version("b", 1))
    with pytest.raises(InvalidArchive, match="a version 1 refers to b version 2, which the export does not have"):
        ordered(folder)


def test_references_of_a_context_are_in_that_context(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "out", version(":.x:a", 1, ("b", 1)), version(":.x:b", 1, (":.y:c", 1)), version(":.y:c")
    )
    assert ordered(folder) == [":.y:c 1", ":.x:b 1", ":.x:a 1"]
    with pytest.raises(InvalidArchive, match=r"several contexts \(\.x, \.y\)"):
        move_to(read_archive(folder), ":.z:")


@pytest.mark.parametrize("old", ["", ":.old:"])
def test_an_export_moves_to_another_context(tmp_path: Path, old: str) -> None:
    folder = write(
        tmp_path / "out", version(f"{old}a", 1, ("b", 1), (f"{old}c", 1)), *map(version, [f"{old}b", f"{old}c"])
    )
    moved = move_to(read_archive(folder), ":.new:")
    order = registration_order(moved)
    assert [each.subject for each in order] == [":.new:b", ":.new:c", ":.new:a"]
    assert [each.subject for each in order[-1].references] == ["b", ":.new:c" if old else "c"]
    assert list(moved.contexts) == [":.new:"]


def test_an_export_of_a_context_moves_to_the_default_context(tmp_path: Path) -> None:
    folder = write(tmp_path / "out", version(":.old:a", 1, (":.old:b", 1)), version(":.old:b"))
    order = registration_order(move_to(read_archive(folder), context_prefix(".")))
    assert [each.subject for each in order] == ["b", "a"]
    assert [each.subject for each in order[-1].references] == ["b"]


def test_a_context_is_named_with_or_without_its_dot() -> None:
    assert {context_prefix(name) for name in ("x", ".x", ":.x:")} == {":.x:"}
    with pytest.raises(ValueError, match="it has a colon"):
        context_prefix("x:y")


# -- text


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1.50,"b":12345678901234567890,"c":1e400,"d":-0.0,"e":"\\u00e9\\"{[,:"}',
        "[]",
        "{}",
        '{"a":{},"b":[],"c":[[]],"d":[{"e":null}]}',
        '"string"',
        '["null","string",{"type":"array","items":"long"}]',
    ],
)
def test_indented_json_has_the_same_values(text: str) -> None:
    shown = indent_json(text)
    assert json.loads(shown, parse_float=str, parse_int=str) == json.loads(text, parse_float=str, parse_int=str)
    assert "".join(shown.split()) == "".join(text.split())


def test_text_that_is_not_json_is_shown_as_it_is() -> None:
    for text in ('syntax = "proto3";\n', '{"a":', "", "[" * 100_000):
        assert indent_json(text) == text


def test_a_short_list_is_on_one_line() -> None:
    assert indent_json('{"type":["null","string"],"fields":[]}') == (
        '{\n  "type": ["null", "string"],\n  "fields": []\n}'
    )


def test_the_name_of_a_reference_may_be_a_url() -> None:
    assert parse_reference("http://h/a?b=c=orders:3") == SchemaReference("http://h/a?b=c", "orders", 3)
    assert parse_reference("a.proto=:.ctx:a:1") == SchemaReference("a.proto", ":.ctx:a", 1)
