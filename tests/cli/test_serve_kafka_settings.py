"""`penstock serve` with a file that holds the settings of a Kafka broker."""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.driver_confluent import ConfluentDriver
from tests.fork_server import ForkedProcess

from .cli_runner import COMMAND, READY, RUN_S, STDERR
from .test_serve_refused import ADDRESSES, MISUSED, refused

# As in the server.properties that Kafka comes with, with a few that operators add.
KAFKA = """
[broker]
"process.roles" = "broker,controller"
"node.id" = 7
"controller.quorum.bootstrap.servers" = "localhost:9093"
"listeners" = "PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093"
"inter.broker.listener.name" = "PLAINTEXT"
"controller.listener.names" = "CONTROLLER"
"listener.security.protocol.map" = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
"num.network.threads" = 3
"num.io.threads" = 8
"socket.send.buffer.bytes" = 102400
"log.dirs" = "{folder}"
"num.partitions" = 2
"log.retention.hours" = 2
"log.segment.bytes" = 1073741824
"offsets.topic.replication.factor" = 1
"no.such.setting" = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(KAFKA.format(folder=tmp_path / "elsewhere"))
    return path


def test_a_broker_starts_with_the_settings_of_kafka_and_describes_them(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [COMMAND, "serve", "--http", "127.0.0.1:0", "--config", str(file), "--log-level", "warning"]
    with ForkedProcess(command, environment=os.environ, stderr=STDERR) as process:
        ready = READY.match(process.stdout.readline())
        assert ready is not None
        driver = ConfluentDriver(ready[1])
        (answer,) = driver.admin.describe_configs([ConfigResource(ResourceType.BROKER, "7")]).values()
        found = {name: entry.value for name, entry in answer.result().items()}
        change = ConfigEntry("num.io.threads", "16", incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ResourceType.BROKER, "7", incremental_configs=[change])
        (altered,) = driver.admin.incremental_alter_configs([broker]).values()
        altered.result()
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_S) == 0
    assert (found["node.id"], found["broker.id"]) == ("7", "7")
    assert found["listeners"] == found["advertised.listeners"] == f"PLAINTEXT://{ready[1]}"
    assert found["log.dirs"] == str(tmp_path / "elsewhere")
    assert (found["num.partitions"], found["num.io.threads"], found["log.retention.ms"]) == ("2", "8", "7200000")
    said = capfd.readouterr().err
    for ignored in ("process.roles has no effect here", "no.such.setting is unknown and ignored"):
        assert f"event=setting_ignored reason='{ignored}'" in said


def test_a_strict_broker_refuses_what_it_does_not_know(file: Path) -> None:
    said = refused("--config", str(file), "--strict-config", *ADDRESSES, code=MISUSED)
    assert said == "no.such.setting is unknown"
    file.write_text("strict_config = true\n" + file.read_text())
    assert refused("--config", str(file), *ADDRESSES, code=MISUSED) == said


def test_a_setting_on_the_command_line_must_be_known() -> None:
    said = refused("--set", "num.partition=3", *ADDRESSES, code=MISUSED)
    assert said == "num.partition is unknown; did you mean num.partitions?"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"sasl.login.class" = "org.example.Login"', "sasl.login.class is not supported"),
        ('"listeners" = "PLAINTEXT://:1,PLAINTEXT://:2"', "listeners has listener PLAINTEXT twice"),
        ('"log.dirs" = "/a,/b"', "a broker has one data folder"),
        ('"node.id" = "seven"', "expected a whole number from 0"),
    ],
)
def test_an_unsupported_setting_prevents_the_start(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(f"[broker]\n{line}\n")
    assert said in refused("--config", str(file), "--http", "127.0.0.1:0", code=MISUSED)
