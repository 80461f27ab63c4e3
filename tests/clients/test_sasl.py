"""SASL on Kafka listeners: every client with every mechanism, users and their passwords, re-authentication."""

import asyncio
import shutil
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from penstock.client.address import parse_bootstrap
from penstock.client.connection import ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.client.sasl import log_in
from penstock.client.security import SecuritySettings
from penstock.foundation.codes import ErrorCode
from penstock.foundation.sasl_settings import SaslLogin
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.raw import Closed, RawClient
from tests.clients.tls_lab import ask_metadata
from tests.clients.waiting import PATIENCE_S, wait_until

PLAIN, SASL, SECURE, SHORT = "PLAIN", "SASL", "SECURE", "SHORT"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "orders-eu", "it's a “secret”"
IN_SETTINGS, ITS_PASSWORD = "alice", 'wonder"land'
LIFETIME_MS = 2000
REFUSED = "Authentication failed"


class SaslLab:
    """A broker with a listener for each way to log in, and one that lets everyone in."""

    def __init__(self, folder: Path) -> None:
        made = Certificates(folder / "certificates")
        self.trust = made.trust
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        password = ITS_PASSWORD.replace('"', r"\"")
        self.broker = BrokerProcess(
            folder,
            {
                "ssl.keystore.location": str(made.server()),
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "group.initial.rebalance.delay.ms": 0,
                "listener.name.sasl.plain.sasl.jaas.config": f'{login} user_{IN_SETTINGS}="{password}";',
                "listener.name.short.connections.max.reauth.ms": LIFETIME_MS,
                "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            },
            listeners={PLAIN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", SECURE: "SASL_SSL", SHORT: "SASL_PLAINTEXT"},
        ).start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.at[PLAIN], **QUIET})
        self.set_password(USER, PASSWORD)

    def set_password(self, user: str, password: str) -> None:
        infos = [
            ScramCredentialInfo(each, 4096) for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for info in infos:
            change = UserScramCredentialUpsertion(user, info, password.encode())
            self.admin.alter_user_scram_credentials([change])[user].result(PATIENCE_S)

    def librdkafka(self, listener: str, mechanism: str) -> dict[str, Any]:
        secure = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.trust)}
        return {
            "bootstrap.servers": self.broker.at[listener],
            **({"security.protocol": "SASL_PLAINTEXT"} if listener != SECURE else secure),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def python(self, listener: str, mechanism: str) -> dict[str, Any]:
        """The options of kafka-python and aiokafka."""
        return {
            "bootstrap_servers": self.broker.at[listener],
            "security_protocol": "SASL_SSL" if listener == SECURE else "SASL_PLAINTEXT",
            "ssl_context": ssl.create_default_context(cafile=str(self.trust)) if listener == SECURE else None,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    def properties(self, listener: str, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        """The properties of our own client."""
        return {
            "security.protocol": "SASL_SSL" if listener == SECURE else "SASL_PLAINTEXT",
            "ssl.truststore.location": str(self.trust),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def failures(self) -> float:
        return self.broker.metric(r'penstock_refused_total\{reason="login_failed"\}')

    def raw(self, listener: str = SASL) -> RawClient:
        host, _, port = self.broker.at[listener].rpartition(":")
        return RawClient((host, int(port)))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslLab]:
    lab = SaslLab(tmp_path_factory.mktemp("sasl"))
    yield lab
    lab.broker.finish()


# -- every client with every mechanism

EVERY_WAY = pytest.mark.parametrize(
    ("listener", "mechanism"), [*((SASL, mechanism) for mechanism in MECHANISMS), (SECURE, "SCRAM-SHA-512")]
)


@EVERY_WAY
def test_confluent_kafka_logs_in(lab: SaslLab, listener: str, mechanism: str) -> None:
    topic = f"confluent-{listener}-{mechanism}"
    options = lab.librdkafka(listener, mechanism)
    producer = Producer({**options, **QUIET})
    producer.produce(topic, b"hello")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**options, **QUIET, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()


@EVERY_WAY
def test_kafka_python_logs_in(lab: SaslLab, listener: str, mechanism: str) -> None:
    topic = f"kafka-python-{listener}-{mechanism}"
    options = lab.python(listener, mechanism)
    producer = KafkaProducer(**options)
    producer.send(topic, b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **options)
    assert next(consumer).value == b"hello"
    consumer.close()


@EVERY_WAY
def test_aiokafka_logs_in(lab: SaslLab, listener: str, mechanism: str) -> None:
    topic = f"aiokafka-{listener}-{mechanism}"
    options = lab.python(listener, mechanism)

    async def round_trip() -> bytes | None:
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"hello")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(round_trip()) == b"hello"


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@EVERY_WAY
def test_kcat_logs_in(lab: SaslLab, listener: str, mechanism: str) -> None:
    topic = f"kcat-{listener}-{mechanism}"
    options = lab.librdkafka(listener, mechanism)
    arguments = [f"-X{name}={value}" for name, value in options.items() if name != "bootstrap.servers"]
    command = ["kcat", "-b", options["bootstrap.servers"], *arguments, "-t", topic]
    subprocess.run([*command, "-P"], input=b"hello", check=True, timeout=PATIENCE_S)
    done = subprocess.run([*command, "-C", "-e", "-q"], capture_output=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == b"hello\n"


@EVERY_WAY
def test_our_own_client_logs_in(lab: SaslLab, listener: str, mechanism: str) -> None:
    assert ask_metadata(lab.broker.at[listener], lab.properties(listener, mechanism)) == 1


def test_names_may_have_the_signs_of_scram(lab: SaslLab) -> None:
    """Not with kafka-python, which does not escape them."""
    name = "a=b,c=3D"
    lab.set_password(name, PASSWORD)
    for mechanism in MECHANISMS:
        assert ask_metadata(lab.broker.at[SASL], lab.properties(SASL, mechanism, name)) == 1
        admin = AdminClient({**lab.librdkafka(SASL, mechanism), "sasl.username": name, **QUIET})
        assert len(admin.list_topics(timeout=PATIENCE_S).brokers) == 1


def test_a_user_of_the_settings_logs_in_with_plain_only_on_its_listener(lab: SaslLab) -> None:
    found = lab.properties(SASL, "PLAIN", IN_SETTINGS, ITS_PASSWORD)
    assert ask_metadata(lab.broker.at[SASL], found) == 1
    for listener, mechanism in ((SECURE, "PLAIN"), (SASL, "SCRAM-SHA-256")):
        with pytest.raises(LoginRefused, match=REFUSED):
            ask_metadata(lab.broker.at[listener], lab.properties(listener, mechanism, IN_SETTINGS, ITS_PASSWORD))


# -- bad logins


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(lab: SaslLab, mechanism: str) -> None:
    before, messages = lab.failures(), []
    for user, password in ((USER, "wrong"), ("stranger-" + mechanism, PASSWORD)):
        with pytest.raises(LoginRefused, match=REFUSED) as refused:
            ask_metadata(lab.broker.at[SASL], lab.properties(SASL, mechanism, user, password))
        messages.append(str(refused.value).replace(user, "USER"))
    assert messages[0] == messages[1]
    assert lab.failures() == before + 2
    assert PASSWORD not in lab.broker.log


def test_librdkafka_learns_why_it_is_refused(lab: SaslLab) -> None:
    errors: list[str] = []
    options = lab.librdkafka(SASL, "SCRAM-SHA-256") | {"sasl.password": "wrong"}
    producer = Producer({**options, "error_cb": lambda error: errors.append(error.name()), "log_level": 0})
    wait_until(lambda: producer.poll(0.1) is not None and "_AUTHENTICATION" in errors, "an authentication error")


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(lab: SaslLab) -> None:
    with pytest.raises(LoginRefused, match=r"does not allow PLAIN; set sasl\.mechanism to one of SCRAM-SHA-256"):
        ask_metadata(lab.broker.at[SHORT], lab.properties(SHORT, "PLAIN"))


def test_requests_before_a_login_close_the_connection(lab: SaslLab) -> None:
    with lab.raw() as raw:
        raw.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
        raw.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(Closed):
            raw.receive()
    wait_until(lambda: "kind=not_authenticated detail='API 3 before a login'" in lab.broker.log, "a line in the log")


def test_clients_with_and_without_sasl_at_the_wrong_listener_are_told(lab: SaslLab) -> None:
    with pytest.raises(ConnectionFailed, match=r"is a listener without SASL; set security\.protocol to PLAINTEXT"):
        ask_metadata(lab.broker.at[PLAIN], lab.properties(PLAIN, "PLAIN"))
    with pytest.raises(ConnectionFailed, match="the listener may need a login"):
        ask_metadata(lab.broker.at[SASL], {})


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_tokens_without_requests_as_of_old_clients(lab: SaslLab, password: str) -> None:
    """After SaslHandshake version 0, a frame is a message of the mechanism."""
    with lab.raw() as raw:
        answer = raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.NONE, list(MECHANISMS))
        token = f"\0{USER}\0{password}".encode()
        raw.socket.sendall(struct.pack(">i", len(token)) + token)
        if password != PASSWORD:
            with pytest.raises(Closed):
                raw.receive_frame()
            return
        assert raw.receive_frame() == b""
        assert len(raw.ask(MetadataRequest(topics=[]), 9).brokers) == 1


def test_a_login_and_the_first_request_in_one_segment(lab: SaslLab) -> None:
    with lab.raw() as raw:
        raw.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        raw.send(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2)
        raw.send(MetadataRequest(topics=[]), 9)
        assert raw.receive().error_code == ErrorCode.NONE
        answer = raw.receive()
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert len(raw.receive().brokers) == 1
        # Where sessions do not end, there is no second login.
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- users


def test_users_are_described_altered_and_deleted(lab: SaslLab) -> None:
    lab.set_password("billing", "first-password")
    found = lab.admin.describe_user_scram_credentials(["billing"])["billing"].result(PATIENCE_S)
    assert {(info.mechanism, info.iterations) for info in found.scram_credential_infos} == {
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    }
    assert {USER, "billing"} <= set(lab.admin.describe_user_scram_credentials().result(PATIENCE_S))
    at, log_in = lab.broker.at[SASL], lab.properties
    assert ask_metadata(at, log_in(SASL, "PLAIN", "billing", "first-password")) == 1
    lab.set_password("billing", "second-password")
    assert ask_metadata(at, log_in(SASL, "PLAIN", "billing", "second-password")) == 1
    with pytest.raises(LoginRefused):
        ask_metadata(at, log_in(SASL, "PLAIN", "billing", "first-password"))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        deletion = UserScramCredentialDeletion("billing", mechanism)
        lab.admin.alter_user_scram_credentials([deletion])["billing"].result(PATIENCE_S)
    with pytest.raises(LoginRefused):
        ask_metadata(at, log_in(SASL, "SCRAM-SHA-512", "billing", "second-password"))
    with pytest.raises(KafkaException, match="does not exist"):
        lab.admin.alter_user_scram_credentials([deletion])["billing"].result(PATIENCE_S)


def test_users_outlast_a_restart(tmp_path: Path) -> None:
    lab = SaslLab(tmp_path)
    lab.broker.kill()
    lab.broker.start()
    assert ask_metadata(lab.broker.at[SECURE], lab.properties(SECURE, "SCRAM-SHA-512")) == 1
    lab.broker.finish()


# -- re-authentication (KIP-368)


def test_our_own_client_authenticates_again_and_again(lab: SaslLab) -> None:
    settings = ConnectionSettings(security=SecuritySettings.parse(lab.properties(SHORT, "SCRAM-SHA-256")))

    async def ask() -> None:
        connection = await open_connection(parse_bootstrap(lab.broker.at[SHORT])[0], settings)
        ends_s = time.monotonic() + 2.5 * LIFETIME_MS / 1000
        while time.monotonic() < ends_s:
            assert len((await connection.request(MetadataRequest(topics=[]))).brokers) == 1
            await asyncio.sleep(0.1)  # the pace of the requests
        await connection.close()

    uvloop.run(ask())


def test_librdkafka_goes_on_where_sessions_are_short(lab: SaslLab) -> None:
    """It authenticates again before its session ends: the broker closes no connection."""
    producer = Producer({**lab.librdkafka(SHORT, "SCRAM-SHA-256"), **QUIET})
    before = lab.broker.metric(r'penstock_refused_total\{reason="session_expired"\}')
    ends_s = time.monotonic() + 2.5 * LIFETIME_MS / 1000
    while time.monotonic() < ends_s:
        producer.produce("short", b"x")
        assert producer.flush(PATIENCE_S) == 0
    assert lab.broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == before


def _log_in(raw: RawClient, mechanism: str, user: str, password: str) -> int:
    """Logs in by hand; returns the lifetime of the session."""

    async def ask(request: Any) -> Any:
        return raw.ask(request, 1 if isinstance(request, SaslHandshakeRequest) else 2)

    login = SaslLogin(mechanism=mechanism, username=user, password=password)
    return asyncio.run(log_in(login, ask, "the broker"))


def test_a_session_that_has_ended_allows_only_a_login(lab: SaslLab) -> None:
    with lab.raw(SHORT) as raw, lab.raw(SHORT) as other:
        for each in (raw, other):
            assert _log_in(each, "SCRAM-SHA-256", USER, PASSWORD) == LIFETIME_MS
            assert len(each.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        time.sleep(1.2 * LIFETIME_MS / 1000)  # the lifetime itself is what is tested
        assert _log_in(other, "SCRAM-SHA-256", USER, PASSWORD) == LIFETIME_MS
        assert len(other.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        raw.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(Closed):
            raw.receive()
    assert "kind=session_expired" in lab.broker.log


def test_a_connection_stays_with_its_user_and_mechanism(lab: SaslLab) -> None:
    lab.set_password("other", "other-password")
    with lab.raw(SHORT) as raw:
        _log_in(raw, "SCRAM-SHA-256", USER, PASSWORD)
        with pytest.raises(LoginRefused, match="Cannot change principals during re-authentication"):
            _log_in(raw, "SCRAM-SHA-256", "other", "other-password")
        with pytest.raises(Closed):
            raw.ask(MetadataRequest(topics=[]), 9)


# -- messages out of order


def test_a_login_out_of_order_is_refused(lab: SaslLab) -> None:
    with lab.raw() as raw:  # a token before a mechanism
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(Closed):
            raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    with lab.raw() as raw:  # a mechanism during a login
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.NONE
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(Closed):
            raw.ask(MetadataRequest(topics=[]), 9)
    with lab.raw() as raw:  # another request during a login
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.NONE
        raw.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(Closed):
            raw.receive()


@pytest.mark.parametrize("size", [(512 << 10) + 1, 2**31 - 1, -1])
def test_a_large_request_before_a_login_closes_the_connection_at_once(lab: SaslLab, size: int) -> None:
    with lab.raw() as raw:
        raw.socket.sendall(struct.pack(">i", size) + b"\0" * 100)
        with pytest.raises(Closed):
            raw.receive_frame()


def test_a_login_before_tls_is_not_read(lab: SaslLab) -> None:
    """On a listener with TLS, a client that does not encrypt gets nothing: its password is not even looked at."""
    before = lab.failures()
    with lab.raw(SECURE) as raw:
        raw.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        with pytest.raises(Closed):
            raw.receive_frame()
    assert lab.failures() == before
