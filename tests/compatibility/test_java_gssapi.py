"""Kafka's Java client and tools log in with Kerberos tickets, of a keytab and of a ticket cache."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.kdc import OTHER_REALM, REALM, Kdc, missing

from .toolchains import KAFKA, java, java_classpath

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
TOOLS = "org.apache.kafka.tools"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
USER = "orders"
TIMEOUT_S = 180.0
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


@pytest.fixture(scope="module")
def classpath() -> str:
    return java_classpath(*(f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka-tools", "kafka_2.13")))


class JavaLab:
    """A KDC, a broker whose super user is `orders`, and Kafka's tools."""

    def __init__(self, folder: Path, classpath: str) -> None:
        self.folder = folder
        self._classpath = classpath
        self.kdc = Kdc(folder / "kdc")
        # Java looks for the name of the address.
        service = f"kafka/{socket.gethostbyaddr('127.0.0.1')[0]}"
        keytab = self.kdc.keytab(service)
        key = f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{service}@{REALM}";'
        settings = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.login.gssapi.sasl.jaas.config": key,
            "listener.name.short.gssapi.sasl.jaas.config": key,
            "listener.name.short.connections.max.reauth.ms": 2000,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{USER};User:ANONYMOUS",
            "connection.failed.authentication.delay.ms": 0,
            "group.initial.rebalance.delay.ms": 0,
        }
        listeners = {"OPEN": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"}
        environment = self.kdc.environment
        self.broker = BrokerProcess(folder, settings, listeners=listeners, environment=environment).start()

    def config(self, name: str, options: str) -> Path:
        lines = [
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=GSSAPI",
            "sasl.kerberos.service.name=kafka",
            f"sasl.jaas.config={MODULE} {options};",
        ]
        file = self.folder / f"{name}.properties"
        file.write_text("\n".join([*lines, ""]))
        return file

    def with_keytab(self, name: str, realm: str = REALM) -> Path:
        keytab = self.kdc.keytab(name, realm=realm)
        return self.config(name, f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{name}@{realm}"')

    def run(
        self, tool: str, config: Path, *arguments: str, text: str = "", listener: str = "LOGIN"
    ) -> tuple[int, str]:
        """Runs a tool; returns its exit code, and what it says."""
        at = self.broker.at[listener]
        command = java(
            self._classpath, f"{TOOLS}.{tool}", "--bootstrap-server", at, "--command-config", str(config), *arguments
        )
        command[1:1] = [f"-Djava.security.krb5.conf={self.kdc.config}"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.kdc.environment},
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def ok(self, tool: str, config: Path, *arguments: str, text: str = "", listener: str = "LOGIN") -> str:
        code, said = self.run(tool, config, *arguments, text=text, listener=listener)
        assert code == 0, said
        return said


@pytest.fixture(scope="module")
def lab(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaLab]:
    lab = JavaLab(tmp_path_factory.mktemp("java-gssapi"), classpath)
    yield lab
    lab.broker.finish()
    lab.kdc.stop()


@pytest.mark.parametrize("listener", ["LOGIN", "SHORT"])
def test_the_java_client_logs_in_with_a_keytab(lab: JavaLab, listener: str) -> None:
    """Where sessions are short, it logs in again while it waits for more."""
    config, topic = lab.with_keytab(USER), f"of-{listener}"
    lab.ok("ConsoleProducer", config, "--topic", topic, text="hello\n", listener=listener)
    wanted = ["--topic", topic, "--group", f"g-{topic}", "--from-beginning", "--timeout-ms", "8000"]
    assert "hello" in lab.ok("consumer.ConsoleConsumer", config, *wanted, listener=listener)


def test_the_java_client_logs_in_with_a_ticket_cache(lab: JavaLab) -> None:
    cache = lab.kdc.kinit(USER, lab.kdc.keytab(USER))
    config = lab.config("cache", f'useTicketCache=true ticketCache="{cache}" doNotPrompt=true')
    lab.ok("TopicCommand", config, "--create", "--topic", "of-cache")
    assert "of-cache" in lab.ok("TopicCommand", config, "--list")


def test_the_user_of_the_java_client_is_that_of_its_ticket(lab: JavaLab) -> None:
    code, said = lab.run("TopicCommand", lab.with_keytab("eve"), "--create", "--topic", "of-eve")
    assert code != 0
    assert "User:eve has no permission for create on topic 'of-eve'" in said


def test_the_java_client_is_told_that_it_is_refused(lab: JavaLab) -> None:
    code, said = lab.run("TopicCommand", lab.with_keytab("ann", OTHER_REALM), "--list")
    assert code != 0
    assert REFUSED in said
