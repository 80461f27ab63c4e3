"""Kafka's Java client and tools log in with every mechanism, over TLS, and manage users, ACLs and quotas."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.waiting import PATIENCE_S
from tests.fork_server import PENSTOCK
from tests.token_issuer import AUDIENCE, CLIENT, NAME, SECRET, Issuer, IssuerServer

from .toolchains import KAFKA, java, java_classpath

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOOLS = "org.apache.kafka.tools"
LOGIN = "org.apache.kafka.common.security"
ADMIN, PASSWORD = "admin", "it's a secret"
TIMEOUT_S = 180.0
OAUTH = "OAUTHBEARER"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def classpath() -> str:
    return java_classpath(*(f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka-tools", "kafka_2.13")))


class SecureLab:
    """A broker with an authorizer whose clients log in over TLS, and an issuer of tokens."""

    def __init__(self, folder: Path, classpath: str) -> None:
        self.folder = folder
        self._classpath = classpath
        self.made = Certificates(folder / "certificates")
        self.issuer = IssuerServer(Issuer(), self.made.server())
        trust = self.made.trust
        settings = {
            "ssl.keystore.location": str(self.made.server("broker")),
            "ssl.truststore.location": str(trust),
            "sasl.enabled.mechanisms": ",".join((*PASSWORDS, OAUTH)),
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer.url}/keys",
            "sasl.oauthbearer.expected.issuer": NAME,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.login.oauthbearer.sasl.jaas.config": (
                f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required ssl.truststore.location="{trust}";'
            ),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": 0,
        }
        listeners = {"OPEN": "PLAINTEXT", "LOGIN": "SASL_SSL", "MUTUAL": "SSL"}
        self.broker = BrokerProcess(folder, settings, listeners=listeners).start()
        create = [PENSTOCK, "user", "create", ADMIN, "--password-file", "-", "--bootstrap", self.broker.kafka]
        subprocess.run(create, input=PASSWORD, text=True, check=True, capture_output=True, timeout=PATIENCE_S)

    def config(self, mechanism: str, user: str = ADMIN, password: str = PASSWORD) -> Path:
        """A file of properties of a client that logs in."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        lines = [
            "security.protocol=SASL_SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.made.trust}",
            f"sasl.mechanism={mechanism}",
        ]
        if mechanism == OAUTH:
            trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.made.trust}"'
            credentials = f'clientId="{user}" clientSecret="{password}"'
            lines += [
                f"sasl.oauthbearer.token.endpoint.url={self.issuer.url}/token",
                f"sasl.login.callback.handler.class={LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
                f"sasl.jaas.config={LOGIN}.oauthbearer.OAuthBearerLoginModule required {credentials} {trust};",
            ]
        else:
            lines += [f'sasl.jaas.config={LOGIN}.{module} required username="{user}" password="{password}";']
        return self._file(f"{mechanism}-{user}.properties", lines)

    def mutual(self, name: str) -> Path:
        """A file of properties of a client that shows a certificate. Java wants its key in PKCS#8."""
        lines = ["security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={self.made.trust}"]
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.made.issue(name)}"]
        return self._file(f"{name}.properties", lines)

    def _file(self, name: str, lines: list[str]) -> Path:
        file = self.folder / name
        file.write_bytes("\n".join([*lines, ""]).encode("ascii", "backslashreplace"))  # as Java reads them
        return file

    def run(
        self, tool: str, config: Path, *arguments: str, text: str = "", listener: str = "LOGIN"
    ) -> tuple[int, str]:
        """Runs a tool; returns its exit code, and what it says."""
        main = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        at = self.broker.at[listener]
        command = java(self._classpath, main, "--bootstrap-server", at, "--command-config", str(config), *arguments)
        command[1:1] = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.issuer.url}/token"]
        done = subprocess.run(
            command, cwd=self.folder, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def ok(self, tool: str, config: Path, *arguments: str, **more: str) -> str:
        code, said = self.run(tool, config, *arguments, **more)
        assert code == 0, said
        return said

    def round_trip(self, config: Path, topic: str, listener: str = "LOGIN") -> None:
        """Kafka's console tools write a message and read it in a group."""
        self.ok("ConsoleProducer", config, "--topic", topic, text="hello\n", listener=listener)
        wanted = ["--topic", topic, "--group", f"g-{topic}", "--from-beginning", "--max-messages", "1"]
        assert "hello" in self.ok("consumer.ConsoleConsumer", config, *wanted, listener=listener)


@pytest.fixture(scope="module")
def lab(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureLab]:
    lab = SecureLab(tmp_path_factory.mktemp("secure"), classpath)
    yield lab
    lab.broker.finish()
    lab.issuer.close()


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_the_java_client_logs_in_with_a_password(lab: SecureLab, mechanism: str) -> None:
    lab.round_trip(lab.config(mechanism), f"of-{mechanism}")


def test_the_java_client_logs_in_with_a_token(lab: SecureLab) -> None:
    admin = lab.config("SCRAM-SHA-512")
    rights = ["--topic", "of-token", "--producer", "--consumer", "--group", "*"]
    lab.ok("AclCommand", admin, "--add", "--allow-principal", f"User:{CLIENT}", *rights)
    lab.round_trip(lab.config(OAUTH, CLIENT, SECRET), "of-token")


def test_the_java_client_shows_a_certificate(lab: SecureLab) -> None:
    admin = lab.config("SCRAM-SHA-512")
    rights = ["--topic", "of-certificate", "--producer", "--consumer", "--group", "*"]
    lab.ok("AclCommand", admin, "--add", "--allow-principal", "User:orders", *rights)
    lab.round_trip(lab.mutual("orders"), "of-certificate", listener="MUTUAL")


@pytest.mark.parametrize(
    ("mechanism", "user", "said"),
    [
        ("PLAIN", "stranger", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-512", ADMIN, "Authentication failed during authentication due to invalid credentials"),
    ],
)
def test_the_java_client_is_told_why_it_is_refused(lab: SecureLab, mechanism: str, user: str, said: str) -> None:
    code, found = lab.run("TopicCommand", lab.config(mechanism, user, "wrong"), "--list")
    assert code != 0
    assert said in found


def test_users_are_managed_with_kafka_configs(lab: SecureLab) -> None:
    admin = lab.config("SCRAM-SHA-512")
    of_user = ["--entity-type", "users", "--entity-name", "billing"]
    scram = "SCRAM-SHA-512=[iterations=8192,password=wonderland]"
    lab.ok("kafka.admin.ConfigCommand", admin, "--alter", *of_user, "--add-config", scram)
    quotas = "producer_byte_rate=1048576,request_percentage=50"
    lab.ok("kafka.admin.ConfigCommand", admin, "--alter", *of_user, "--add-config", quotas)
    described = lab.ok("kafka.admin.ConfigCommand", admin, "--describe", *of_user)
    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "producer_byte_rate=1048576" in described
    billing = lab.config("SCRAM-SHA-512", "billing", "wonderland")
    code, said = lab.run("TopicCommand", billing, "--create", "--topic", "invoices")
    assert code != 0
    assert "User:billing has no permission for create on topic 'invoices'" in said
    lab.ok("kafka.admin.ConfigCommand", admin, "--alter", *of_user, "--delete-config", "SCRAM-SHA-512")
    code, said = lab.run("TopicCommand", billing, "--list")
    assert code != 0
    assert "invalid credentials" in said


def test_acls_are_managed_with_kafka_acls(lab: SecureLab) -> None:
    admin = lab.config("SCRAM-SHA-256")
    of_topic = ["--topic", "stock", "--resource-pattern-type", "prefixed"]
    lab.ok("AclCommand", admin, "--add", "--allow-principal", "User:cat", "--operation", "Read", *of_topic)
    lab.ok("AclCommand", admin, "--add", "--deny-principal", "User:cat", "--deny-host", "10.0.0.1", *of_topic)
    listed = lab.ok("AclCommand", admin, "--list", *of_topic)
    assert "(principal=User:cat, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "(principal=User:cat, host=10.0.0.1, operation=ALL, permissionType=DENY)" in listed
    lab.ok("AclCommand", admin, "--remove", "--force", *of_topic)
    assert "User:cat" not in lab.ok("AclCommand", admin, "--list", *of_topic)
