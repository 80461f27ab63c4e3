"""`penstock context`: commands use the cluster of the context, and the file of contexts may be damaged."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.certificates import Certificates

from .cli_runner import Cli, table

SECURE, PLAIN = "SECURE", "PLAIN"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def made(folder: Path) -> Certificates:
    return Certificates(folder / "certificates")


@pytest.fixture(scope="module")
def broker(folder: Path, made: Certificates) -> Iterator[BrokerProcess]:
    settings = {"ssl.keystore.location": str(made.server())}
    process = BrokerProcess(folder, settings, listeners={PLAIN: "PLAINTEXT", SECURE: "SSL"}).start()
    yield process
    process.finish()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(None)
    cli.environment["PENSTOCK_CONTEXTS"] = str(tmp_path / "own" / "contexts.json")
    return cli


def test_commands_use_the_context_unless_told_otherwise(
    cli: Cli, broker: BrokerProcess, made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = tmp_path / "secure.properties"
    secure.write_text(f"security.protocol=SSL\nssl.truststore.location={made.trust}\n")
    monkeypatch.chdir(tmp_path)
    at = broker.at
    said = cli.ok("context", "create", "secure", "--bootstrap", at[SECURE], "--command-config", secure.name, "--use")
    assert said == "created context secure, which is in use\n"
    cli.ok("context", "create", "nowhere", "--bootstrap", "127.0.0.1:1")
    file = Path(cli.environment["PENSTOCK_CONTEXTS"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    monkeypatch.chdir("/")
    cli.ok("topic", "create", "orders")
    assert [topic["topic"] for topic in cli.json("topic", "list")] == ["orders"]
    assert "127.0.0.1:1" in cli.refused("--context", "nowhere", "topic", "list", code=1)
    # Options, and variables of the environment, go before the context.
    assert "127.0.0.1:1" in cli.refused("topic", "list", "--bootstrap", "127.0.0.1:1", code=1)
    cli.environment["PENSTOCK_CONTEXT"] = "nowhere"
    assert "127.0.0.1:1" in cli.refused("topic", "list", code=1)
    cli.environment["PENSTOCK_BOOTSTRAP"] = at[PLAIN]
    assert [topic["topic"] for topic in cli.json("topic", "list")] == ["orders"]
    del cli.environment["PENSTOCK_CONTEXT"], cli.environment["PENSTOCK_BOOTSTRAP"]

    # Before something is deleted, one sees where.
    code, screen = cli.on_terminal("topic", "delete", "orders", typed=b"n\n", until=b"?")
    assert code == 1
    assert "In context secure: Delete orders and all messages?" in screen


def test_contexts_are_listed_replaced_and_deleted(cli: Cli) -> None:
    assert cli("context", "list").stderr == b"no contexts; create one with `penstock context create`\n"
    cli.ok("context", "create", "a", "--bootstrap", "a:9092", "--use")
    cli.ok("context", "create", "b", "--endpoint", "http://b:9324", "--registry", "http://b/registry")
    assert "context 'a' exists; give --replace" in cli.refused("context", "create", "a", "--endpoint", "x", code=1)
    cli.ok("context", "create", "a", "--bootstrap", "a:9093", "--aws-profile", "orders", "--replace")
    assert cli.ok("context", "use", "b") == "context b is in use\n"
    assert table(cli.ok("context", "list"))[1:] == [
        ["no", "a", "a:9093", "orders"],
        ["yes", "b", "http://b:9324", "http://b/registry"],
    ]
    found = {each["context"]: each for each in cli.json("context", "list")}
    assert (found["a"]["aws_profile"], found["b"]["bootstrap"], found["b"]["in_use"]) == ("orders", "", True)
    cli.ok("context", "delete", "b")
    assert [each["in_use"] for each in cli.json("context", "list")] == [False]
    assert cli.ok("context", "use", "--none") == "no context is in use\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("context", "create", "a"), 2, "needs at least one option"),
        (("context", "create", " ", "--endpoint", "x"), 2, "must not be empty"),
        (("context", "create", "a", "--bootstrap", "a:b:c"), 2, "a:b:c"),
        (("context", "create", "a", "--command-config", "/no/such"), 2, "/no/such"),
        (("context", "use"), 2, "give the name of a context, or --none"),
        (("context", "use", "a", "--none"), 2, "give the name of a context, or --none"),
        (("context", "use", "a"), 1, "there is no context 'a'; known: none; create one with"),
        (("context", "delete", "a"), 1, "there is no context 'a'"),
        (("--context", "a", "topic", "list"), 1, "there is no context 'a'"),
        (("--context", "a", "serve"), 2, "`penstock serve` uses no context"),
    ],
)
def test_mistakes_are_refused_with_advice(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    assert said in cli.refused(*arguments, code=code)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"current": 1, "contexts": {}}', '{"current": "", "contexts": {"a": {"b": "c"}}}']
)
def test_a_damaged_file_is_named_and_does_not_stop_a_broker(cli: Cli, content: str) -> None:
    file = Path(cli.environment["PENSTOCK_CONTEXTS"])
    file.parent.mkdir()
    file.write_text(content)
    for arguments in (("context", "list"), ("topic", "list")):
        said = cli.refused(*arguments, code=1)
        assert str(file) in said
        assert "correct or remove" in said
    cli.ok("serve", "--help")


def test_a_file_that_cannot_be_written_is_named(cli: Cli) -> None:
    cli.environment["PENSTOCK_CONTEXTS"] = "/proc/none/contexts.json"
    assert "cannot write /proc/none/contexts.json" in cli.refused("context", "create", "a", "--endpoint", "x", code=1)
