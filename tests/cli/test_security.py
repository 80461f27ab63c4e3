"""`penstock security certificates`, and a broker and commands that use what it has made."""

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from penstock.client.security import SecuritySettings
from penstock.foundation.properties import read_properties
from tests.brokers import BrokerProcess

from .cli_runner import Cli

CLI = Cli(None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("security") / "certificates"
    CLI.ok("security", "certificates", str(folder))
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that speaks TLS only, and asks Kafka clients for a certificate."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        {
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.client.auth": "required",
            "listener.name.http.ssl.client.auth": "none",
            "http.security.protocol": "SSL",
            "group.initial.rebalance.delay.ms": 0,
        },
        listeners={"SSL": "SSL"},
    ).start()
    yield broker
    broker.finish()


def test_files_with_keys_can_be_read_by_their_owner_only(folder: Path) -> None:
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes.keys() == {"ca.pem", "ca-key.pem", "server.pem", "client.pem", "client.properties"}
    assert {modes[name] for name in ("ca-key.pem", "server.pem", "client.pem")} == {0o600}


def test_commands_use_the_properties_that_were_made(folder: Path, broker: BrokerProcess) -> None:
    config = ("--command-config", str(folder / "client.properties"), "--bootstrap", broker.kafka)
    CLI.ok("topic", "create", "orders", *config)
    CLI.ok("publish", "orders", "hello", *config)
    reading = ("subscribe", "orders", "--from", "earliest", "--max", "1")
    assert CLI.ok(*reading, *config) == CLI.ok(*reading, "--group", "readers", *config) != ""
    (found,) = CLI.json("cluster", "brokers", *config)
    assert found["address"] == broker.kafka


def test_the_properties_can_be_named_by_the_environment(folder: Path, broker: BrokerProcess) -> None:
    cli = Cli(broker.kafka)
    cli.environment["PENSTOCK_COMMAND_CONFIG"] = str(folder / "client.properties")
    assert cli.ok("topic", "list", "--internal")


def test_without_the_properties_a_command_says_what_is_missing(broker: BrokerProcess) -> None:
    said = CLI.refused("topic", "list", "--bootstrap", broker.kafka, code=1)
    assert "If it has TLS, set security.protocol to SSL or SASL_SSL" in said


def test_a_wrong_properties_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    said = CLI.refused("topic", "list", "--command-config", str(file), code=2)
    assert "security.protocol=SASL_SSL needs sasl.mechanism" in said


def test_http_speaks_tls(folder: Path, broker: BrokerProcess) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with urlopen(f"https://{broker.http}/healthz", context=context, timeout=60) as answer:
        assert answer.status == 200
    with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urlopen(f"https://{broker.http}/healthz", context=ssl.create_default_context(), timeout=60)


def test_queues_work_over_https(folder: Path, broker: BrokerProcess) -> None:
    cli = Cli(broker.kafka)
    # The trusted authorities of HTTPS are those of OpenSSL.
    cli.environment |= {
        "PENSTOCK_COMMAND_CONFIG": str(folder / "client.properties"),
        "SSL_CERT_FILE": str(folder / "ca.pem"),
    }
    cli.ok("queue", "create", "jobs")
    cli.ok("queue", "send", "jobs", "work")
    assert "work" in cli.ok("queue", "receive", "jobs")


def test_certificates_are_replaced_only_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    CLI.ok("security", "certificates", str(folder), "--host", "queue.example.org", "--client", "orders")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = CLI("security", "certificates", str(folder), "--client", "billing")
    assert done.returncode == 0
    assert b"server.pem  exists; --renew replaces it" in done.stderr
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"billing.pem", "billing.properties"}
    CLI.ok("security", "certificates", str(folder), "--client", "orders", "--renew")
    renewed = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name for name in after if after[name] != renewed[name]} == {"server.pem", "orders.pem"}
    assert SecuritySettings.parse(read_properties(folder / "orders.properties")).context is not None


@pytest.mark.parametrize("name", ["ca", "server", "a/b", "-x", ""])
def test_a_client_must_not_have_the_name_of_another_file(tmp_path: Path, name: str) -> None:
    said = CLI.refused("security", "certificates", str(tmp_path), f"--client={name}", code=2)
    assert "is not allowed" in said


def test_a_ca_without_its_key_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    said = CLI.refused("security", "certificates", str(tmp_path), code=1)
    assert "has ca.pem, but not ca-key.pem" in said
