"""`penstock schema export|import`: all schemas move from one registry to another, and keep their ids."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_models import AVRO, JSON_SCHEMA, RegisteredSchema, Schema, SchemaReference
from penstock.client.schema_registry_urls import find_registry

from .cli_runner import Cli, ServeProcess

T = TypeVar("T")


class Registry:
    """A broker's registry: with the command, and without it where only the result counts."""

    def __init__(self, folder: Path) -> None:
        self._process = ServeProcess(folder)
        self.cli = Cli(self._process.bootstrap)

    def stop(self) -> None:
        self._process.stop()

    def ask(self, question: Callable[[SchemaRegistryClient], Awaitable[T]]) -> T:
        async def work() -> T:
            async with SchemaRegistryClient(await find_registry(self._process.bootstrap)) as client:
                return await question(client)

        return asyncio.run(work())

    def register(self, subject: str, text: str, *references: SchemaReference, type: str = AVRO) -> RegisteredSchema:
        schema = Schema(text=text, type=type, references=references)
        return self.ask(lambda client: client.register(subject, schema))

    def contents(self) -> list[object]:
        """Returns all versions of all subjects, and all settings."""

        async def read(client: SchemaRegistryClient) -> list[object]:
            found: list[object] = [*await client.schemas(deleted=True)]
            for scope in ["", ":.team:", *await client.subjects(deleted=True)]:
                config, mode = await client.config(scope, inherited=True), await client.mode(scope, inherited=True)
                found.append((scope, config, mode))
            return found

        return self.ask(read)


def record(name: str, **fields: object) -> str:
    listed = [{"name": each, "type": type_} for each, type_ in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with references, gaps, deleted versions, contexts and settings."""
    found = Registry(tmp_path_factory.mktemp("source"))
    # References against the order of names and of time.
    found.register("z-needed", record("Needed", id="long"))
    found.register("a-top", record("Top", one="Needed"), SchemaReference("Needed", "z-needed", 1))
    found.register("a-top", record("Top"))
    found.register("gone", '"int"')
    found.register("gone", '"long"')
    found.register("json", '{"type":"object"}', type=JSON_SCHEMA)
    found.register(":.team:a-top", record("Team"))

    async def change(client: SchemaRegistryClient) -> None:
        await client.delete_version("gone", 1)
        await client.delete_version("gone", 1, permanent=True)
        await client.delete_subject("gone")
        await client.set_config({"compatibility": "NONE", "normalize": True}, "json")
        await client.set_mode("READONLY", "json")
        await client.set_config({"compatibility": "FORWARD"}, ":.team:")
        await client.set_config({"compatibility": "FULL"})

    found.ask(change)
    yield found
    found.stop()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Registry]:
    """An empty registry."""
    found = Registry(tmp_path / "target")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def exported(source: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "schemas"
    assert source.cli.json("schema", "export", str(folder)) == [{"folder": str(folder), "subjects": 5, "versions": 6}]
    return folder


def test_an_imported_registry_equals_the_exported_one(source: Registry, target: Registry, exported: Path) -> None:
    assert target.cli.ok("schema", "import", str(exported)) == "imported 5 subjects with 6 versions\n"
    assert target.contents() == source.contents()
    used = max(each.id for each in target.ask(lambda client: client.schemas(deleted=True)))
    target.ask(lambda client: client.set_config({"compatibility": "NONE"}))
    assert target.register("new", record("New")).id > used, "no id is given again"


def test_an_import_into_a_registry_with_schemas_is_refused(source: Registry, exported: Path) -> None:
    before = source.contents()
    refused = source.cli.refused("schema", "import", str(exported), code=1)
    assert "import into an empty registry, or into an empty context with --context NAME" in refused
    assert source.contents() == before


def test_an_import_that_failed_continues(target: Registry, source: Registry, exported: Path) -> None:
    damaged = exported / "subjects" / "json" / "1.json"
    text = damaged.read_text()
    damaged.unlink()
    try:
        refused = target.cli.refused("schema", "import", str(exported), code=1)
    finally:
        damaged.write_text(text)
    assert "still in mode IMPORT: run the command again to continue" in refused
    assert "`penstock schema mode READWRITE`" in refused
    assert target.cli.ok("schema", "mode") == "the registry: IMPORT\n"
    target.cli.ok("schema", "import", str(exported))
    assert target.contents() == source.contents()


def test_an_import_asks_before_it_removes_soft_deleted_schemas(
    target: Registry, source: Registry, exported: Path
) -> None:
    target.register("old", record("Old"))
    target.ask(lambda client: client.delete_subject("old"))
    assert "give --yes to import" in target.cli.refused("schema", "import", str(exported), code=2)
    target.cli.ok("schema", "import", str(exported), "--yes")
    assert target.contents() == source.contents()


def test_an_export_of_one_context_is_imported_into_another(target: Registry, tmp_path: Path) -> None:
    target.register("needed", record("Needed", id="long"))
    target.register("top", record("Top", one="Needed"), SchemaReference("Needed", "needed", 1))
    folder = str(tmp_path / "out")
    target.cli.ok("schema", "export", folder)
    target.cli.ok("schema", "import", folder, "--context", "copy")
    listed = {each["subject"]: each["id"] for each in target.cli.json("schema", "list")}
    assert listed == {":.copy:needed": 1, ":.copy:top": 2, "needed": 1, "top": 2}
    (shown,) = target.cli.json("schema", "show", ":.copy:top", "--references")
    assert [each["subject"] for each in shown["resolved"]] == [":.copy:needed"]
    assert target.cli.ok("schema", "mode", ":.copy:top") == ":.copy:top: READWRITE (inherited)\n"


def test_an_export_of_a_registry_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    Cli("127.0.0.1:1").refused("schema", "export", str(tmp_path / "out"), code=1)
    assert not (tmp_path / "out").exists()


def test_an_import_that_is_stopped_says_how_to_go_on(target: Registry, tmp_path: Path) -> None:
    target.register("many", record("Many"))
    target.cli.ok("schema", "export", str(tmp_path / "out"))
    many = tmp_path / "out" / "subjects" / "many"
    found = json.loads((many / "subject.json").read_text())
    text = (many / "1.avsc").read_text()
    for number in range(2, 5000):
        (many / f"{number}.avsc").write_text(text.replace("Many", f"Many{number}"))
        found["versions"].append({**found["versions"][0], "version": number, "id": number, "file": f"{number}.avsc"})
    (many / "subject.json").write_text(json.dumps(found))
    process = target.cli.start("schema", "import", str(tmp_path / "out"), "--context", "stopped")
    while not target.ask(lambda client: client.subjects(":.stopped:")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"run the command again to continue, or end it with `penstock schema mode :.stopped: READWRITE`" in errors
