"""`penstock schema`: help, settings, ownership of the topic and errors, which need no schemas."""

import asyncio
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.schema_registry_urls import find_registry

from .cli_runner import Cli, ServeProcess

COMMANDS = (
    "list",
    "show",
    "register",
    "check",
    "versions",
    "delete",
    "compatibility",
    "mode",
    "export",
    "import",
    "own",
    "disown",
)
_numbers = itertools.count()


@pytest.fixture
def subject() -> str:
    """A name that no other test has."""
    return f"settings-{next(_numbers)}"


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """`penstock` with a broker whose registry no other test changes."""
    process = ServeProcess(tmp_path_factory.mktemp("schemas"))
    yield Cli(process.bootstrap)
    process.stop()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_options(command: str) -> None:
    said = Cli(None).ok("schema", command, "--help")
    assert f"\n    penstock schema {command}" in said.split("Examples:")[1]
    assert "--bootstrap" in said
    assert "--json" in said
    assert ("--registry URL" in said) == (command not in ("own", "disown"))


def test_the_group_lists_its_commands() -> None:
    said = Cli(None).ok("schema", "--help")
    assert all(f"\n  {name} " in said for name in COMMANDS)


# -- settings


def test_the_level_of_a_subject_is_set_shown_and_reset(cli: Cli, subject: str) -> None:
    assert cli.ok("schema", "compatibility", subject) == f"{subject}: BACKWARD (inherited)\n"
    assert cli.ok("schema", "compatibility", subject, "full_transitive") == f"{subject}: FULL_TRANSITIVE\n"
    (shown,) = cli.json("schema", "compatibility", subject)
    assert shown == {"subject": subject, "level": "FULL_TRANSITIVE", "inherited": False, "settings": {}}
    for _ in range(2):  # nothing to reset the second time
        assert cli.ok("schema", "compatibility", subject, "--reset") == f"{subject}: BACKWARD (inherited)\n"


def test_the_level_of_the_registry_is_inherited(own_broker: Cli, subject: str) -> None:
    assert own_broker.ok("schema", "compatibility") == "the registry: BACKWARD\n"
    assert own_broker.ok("schema", "compatibility", "NONE") == "the registry: NONE\n"
    assert own_broker.ok("schema", "compatibility", subject) == f"{subject}: NONE (inherited)\n"
    assert own_broker.ok("schema", "compatibility", "--reset") == "the registry: BACKWARD\n"


def test_a_context_has_settings_of_its_own(cli: Cli) -> None:
    assert cli.ok("schema", "compatibility", ":.team:", "FORWARD") == ":.team:: FORWARD\n"
    assert cli.ok("schema", "compatibility", ":.team:any") == ":.team:any: FORWARD (inherited)\n"


def test_the_mode_of_a_subject_is_set_shown_and_reset(cli: Cli, subject: str) -> None:
    assert cli.ok("schema", "mode", subject) == f"{subject}: READWRITE (inherited)\n"
    assert cli.ok("schema", "mode", subject, "readonly") == f"{subject}: READONLY\n"
    assert cli.json("schema", "mode", subject) == [{"subject": subject, "mode": "READONLY", "inherited": False}]
    refused = cli.refused("schema", "compatibility", subject, "FULL", code=1)
    assert "read-only mode; `penstock schema mode` shows and changes the mode" in refused
    assert cli.ok("schema", "mode", subject, "--reset") == f"{subject}: READWRITE (inherited)\n"


def test_mode_import_needs_no_confirmation_in_an_empty_scope(cli: Cli) -> None:
    assert cli.ok("schema", "mode", ":.import:", "IMPORT") == ":.import:: IMPORT\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compatibility", "orders", "SOMETIMES"), "'SOMETIMES' is not a compatibility level; expected NONE"),
        (("compatibility", "orders", "FULL", "--reset"), "give a value to set, or --reset, not both"),
        (("mode", "orders", "FORWARD"), "'FORWARD' is not a mode; expected READWRITE"),
        (("show",), "give a SUBJECT, or --id NUMBER"),
        (("show", "--id", "1", "--version", "1"), "--version needs a SUBJECT, and no --id"),
        (("show", "orders", "--version", "0"), "'0' is not a version; give a number from 1, or latest"),
        (("register", "orders", "-"), "give --type avro|json|protobuf"),
        (("register", "orders", "orders.txt"), "'orders.txt' does not end in .avsc, .json or .proto"),
        (("register", "orders", "-", "--reference", "acme=x"), "'acme=x' is not NAME=SUBJECT:VERSION"),
        (("register", "orders", "-", "--reference", "acme=x:y"), "'y' is not a version"),
        (("check", "orders", "-", "--type", "avro", "--against", "some"), "'some' is not a version"),
        (("list", "--registry", "ftp://x"), "is not the URL of a schema registry; give http://HOST:PORT/registry"),
        (("import", "nowhere"), "'nowhere' does not exist"),
    ],
)
def test_a_misuse_says_what_is_expected(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in Cli("127.0.0.1:1").refused("schema", *arguments, code=2)


# -- errors


def test_an_empty_list_says_how_to_register(cli: Cli) -> None:
    done = cli("schema", "list", "--prefix", "nothing-has-this-prefix")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"penstock schema register SUBJECT FILE" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nowhere"),
        ("show", "nowhere", "--version", "3"),
        ("versions", "nowhere"),
        ("delete", "nowhere", "--yes"),
        ("delete", "nowhere", "--version", "1", "--permanent", "--yes"),
    ],
)
def test_a_subject_that_does_not_exist_is_reported(cli: Cli, arguments: tuple[str, ...]) -> None:
    refused = cli.refused("schema", *arguments, code=1)
    assert refused.startswith("Subject 'nowhere' not found; `penstock schema list --deleted` lists the subjects")


def test_an_id_that_does_not_exist_is_reported(cli: Cli) -> None:
    assert "Schema 2147483647 not found" in cli.refused("schema", "show", "--id", "2147483647", code=1)


def test_a_schema_that_is_not_text_is_refused(cli: Cli, tmp_path: Path) -> None:
    broken = tmp_path / "broken.avsc"
    broken.write_bytes(b'"str\xff"')
    assert "byte 4 is not UTF-8" in cli.refused("schema", "register", "orders", str(broken), code=1)
    assert "no such file" in cli.refused("schema", "register", "orders", str(tmp_path / "none.avsc"), code=1)


def test_a_reference_that_does_not_exist_is_reported(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "orders.avsc"
    file.write_text('"acme.Customer"')
    register = ("schema", "register", "orders", str(file), "--reference")
    assert "No schema reference found" in cli.refused(*register, "acme.Customer=nowhere:1", code=1)
    assert "Subject 'nowhere' not found" in cli.refused(*register, "acme.Customer=nowhere:latest", code=1)


def test_a_folder_that_is_no_export_is_not_imported(cli: Cli, tmp_path: Path) -> None:
    assert "has no registry.json" in cli.refused("schema", "import", str(tmp_path), code=1)
    (tmp_path / "registry.json").write_text('{"format": "other"}')
    assert "format 'other'" in cli.refused("schema", "import", str(tmp_path), code=1)


def test_a_folder_that_is_not_empty_is_not_exported_to(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not empty: give the name of a new folder" in cli.refused("schema", "export", str(tmp_path), code=2)


# -- where the registry is


def test_the_registry_may_be_named_by_its_url(broker: ServeProcess, cli: Cli) -> None:
    (url,) = asyncio.run(find_registry(broker.bootstrap))
    elsewhere = Cli("127.0.0.1:1")
    assert elsewhere.ok("schema", "mode", "--registry", f"http://127.0.0.1:1,{url}") == "the registry: READWRITE\n"
    elsewhere.environment["PENSTOCK_REGISTRY"] = str(url)
    assert elsewhere.ok("schema", "mode") == "the registry: READWRITE\n"
    without_path = str(url).removesuffix("/registry")
    refused = elsewhere.refused("schema", "mode", "--registry", without_path, code=1)
    assert "is not a schema registry" in refused
    assert "that of a Penstock broker ends in /registry" in refused


def test_a_registry_that_is_not_there_is_reported_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound and not listening: no other process can take it meanwhile
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        refused = Cli(None).refused("schema", "list", "--registry", url, code=1)
    assert refused == f"cannot reach {url}: connection refused; is the schema registry running there?"


# -- ownership of the topic


def test_a_registry_without_a_topic_cannot_be_taken_over(tmp_path: Path) -> None:
    process = ServeProcess(tmp_path)
    try:
        for command in ("own", "disown"):
            refused = Cli(process.bootstrap).refused("schema", command, "--yes", code=1)
            assert refused.startswith("there is no topic _schemas")
    finally:
        process.stop()


def test_the_topic_is_left_to_another_registry_and_taken_over_again(own_broker: Cli, subject: str) -> None:
    own_broker.ok("schema", "compatibility", subject, "FULL")  # creates the topic
    assert own_broker.ok("schema", "own") == "the brokers' registry already serves 0 subjects\n"
    assert "give --yes to stop the registry" in own_broker.refused("schema", "disown", code=2)
    (gone,) = own_broker.json("schema", "disown", "--yes")
    assert gone == {"topic": "_schemas", "owner": "clients", "changed": True}
    assert "is written by clients" in own_broker.refused("schema", "compatibility", subject, code=1)
    # As another registry would do: a config of a subject, in Confluent's layout.
    key = '{"keytype":"CONFIG","subject":"theirs","magic":0}'
    own_broker.ok("publish", "_schemas", '{"subject":"theirs","compatibilityLevel":"NONE"}', "--key", key)
    assert "give --yes to take over the topic" in own_broker.refused("schema", "own", code=2)
    (back,) = own_broker.json("schema", "own", "--yes")
    assert back == {"topic": "_schemas", "owner": "brokers", "subjects": 0, "changed": True}
    assert own_broker.ok("schema", "compatibility", subject) == f"{subject}: FULL\n"
    assert own_broker.ok("schema", "compatibility", "theirs") == "theirs: NONE\n"
    assert own_broker("publish", "_schemas", "{}", "--key", key).returncode == 1, (
        "clients cannot write to it any more"
    )


def test_the_user_is_asked_before_the_registry_is_stopped(own_broker: Cli, subject: str) -> None:
    own_broker.ok("schema", "compatibility", subject, "FULL")
    code, screen = own_broker.on_terminal("schema", "disown", typed=b"n\n", until=b"[y/N]")
    assert code == 1
    assert "Stop the brokers' registry" in screen
    assert "nothing was changed" in screen
    assert own_broker.ok("schema", "compatibility", subject) == f"{subject}: FULL\n"
