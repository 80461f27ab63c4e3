"""OAUTHBEARER: every client logs in with tokens that an issuer has signed; bad tokens, and issuers that are down."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import abc as aiokafka_abc
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

import penstock
from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.raw import Closed, RawClient
from tests.clients.tls_lab import ask_metadata, read_in_group
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.clusters import ClusterProcesses
from tests.token_issuer import AUDIENCE, CLIENT, NAME, SECRET, Issuer, IssuerServer

OPEN, SASL, SHORT, LATE = "OPEN", "SASL", "SHORT", "LATE"
MECHANISM = "OAUTHBEARER"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LIFETIME_MS = 2000
INVALID = '{"status":"invalid_token"}'


def rules(keys_url: str, trust: Path) -> dict[str, object]:
    """The settings of brokers that accept tokens of the issuer, on the listener SASL."""
    return {
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "sasl.oauthbearer.expected.issuer": NAME,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f'{MODULE} ssl.truststore.location="{trust}";',
    }


class OAuthLab:
    """An issuer and a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = Certificates(folder / "certificates")
        self.trust = made.trust
        self.issuer = Issuer()
        self.server = IssuerServer(self.issuer, made.server())
        self.late_keys = folder / "keys.json"
        self.broker = BrokerProcess(
            folder,
            {
                **rules(f"{self.server.url}/keys", made.trust),
                "group.initial.rebalance.delay.ms": 0,
                "listener.name.short.oauthbearer.sasl.jaas.config": (
                    f'{MODULE} ssl.truststore.location="{made.trust}";'
                ),
                "listener.name.short.connections.max.reauth.ms": LIFETIME_MS,
                "listener.name.late.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{self.late_keys}",
            },
            listeners={OPEN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", SHORT: "SASL_PLAINTEXT", LATE: "SASL_PLAINTEXT"},
        ).start()

    def librdkafka(self, secret: str = SECRET) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.broker.at[SASL],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{self.server.url}/token",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": secret,
            "https.ca.location": str(self.trust),
        }

    def properties(self, **other: str) -> dict[str, str]:
        """The properties of our own client, as for a Java client."""
        jaas = f'{MODULE} clientId="{CLIENT}" clientSecret="{SECRET}" ssl.truststore.location="{self.trust}";'
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.oauthbearer.token.endpoint.url": f"{self.server.url}/token",
            "sasl.jaas.config": jaas,
        } | {name.replace("_", "."): value for name, value in other.items()}

    def with_file(self, token: str) -> dict[str, str]:
        file = self.folder / "token"
        file.write_text(token + "\n")
        return self.properties(sasl_oauthbearer_token_endpoint_url=f"file://{file}")

    def raw(self, listener: str = SASL) -> RawClient:
        host, _, port = self.broker.at[listener].rpartition(":")
        return RawClient((host, int(port)))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthLab]:
    lab = OAuthLab(tmp_path_factory.mktemp("oauth"))
    yield lab
    lab.broker.finish()
    lab.server.close()


# -- every client


def test_confluent_kafka_gets_tokens_and_logs_in(lab: OAuthLab) -> None:
    options = lab.librdkafka()
    producer = Producer({**options, **QUIET})
    producer.produce("confluent", b"hello")
    assert producer.flush(PATIENCE_S) == 0
    assert read_in_group(options["bootstrap.servers"], "confluent", 1, options) == [b"hello"]


def test_confluent_kafka_logs_in_with_tokens_of_a_callback(lab: OAuthLab) -> None:
    def token(_: str) -> tuple[str, float]:
        claims = lab.issuer.claims()
        return lab.issuer.token(), float(claims["exp"])

    options = {
        "bootstrap.servers": lab.broker.at[SASL],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "oauth_cb": token,
        "group.id": "callback",
        "auto.offset.reset": "earliest",
    }
    with penstock.connect(lab.broker.at[SASL], security=lab.properties()) as mq:
        mq.publish("callback", "hello")
    consumer = Consumer({**options, **QUIET})
    consumer.subscribe(["callback"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()


def test_kafka_python_logs_in(lab: OAuthLab) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return lab.issuer.token()

    options = {
        "bootstrap_servers": lab.broker.at[SASL],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": MECHANISM,
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**options)
    producer.send("kafka-python", b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **options)
    assert next(consumer).value == b"hello"
    consumer.close()


def test_aiokafka_logs_in(lab: OAuthLab) -> None:
    class Provider(aiokafka_abc.AbstractTokenProvider):
        async def token(self) -> str:
            return lab.issuer.token()

    async def round_trip() -> bytes | None:
        options = {
            "bootstrap_servers": lab.broker.at[SASL],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_oauth_token_provider": Provider(),
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aiokafka", b"hello")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(round_trip()) == b"hello"


def test_our_own_clients_get_a_token_once_for_many_connections(lab: OAuthLab) -> None:
    served = lab.issuer.served
    for _ in range(3):
        assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
    assert lab.issuer.served <= served + 1
    with penstock.connect(lab.broker.at[SASL], security=lab.properties()) as mq:
        mq.publish("own", "hello")
        (message,) = mq.subscribe("own", from_="earliest", idle_timeout_s=5)
    assert message.text() == "hello"


def test_a_token_may_be_in_a_file(lab: OAuthLab) -> None:
    assert ask_metadata(lab.broker.at[SASL], lab.with_file(lab.issuer.token(algorithm="ES256"))) == 1


# -- what is refused


def test_a_bad_token_is_refused_and_the_reason_is_in_the_log_of_the_broker(lab: OAuthLab) -> None:
    bad = lab.issuer.token(aud="billing")
    with pytest.raises(LoginRefused, match=r'refused the login: \{"status":"invalid_token"\}; check sasl.jaas'):
        ask_metadata(lab.broker.at[SASL], lab.with_file(bad))
    wait_until(lambda: """reason="Audience doesn't match\"""" in lab.broker.log, "the reason is in the log")
    assert bad not in lab.broker.log


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_tokens_without_a_signature_as_librdkafka_makes_them_for_tests_are_refused(lab: OAuthLab) -> None:
    """Kafka accepts them unless it is configured not to. Debian's kcat cannot get other tokens."""
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={CLIENT} lifeSeconds=3600",
    }
    command = ["kcat", "-b", lab.broker.at[SASL], *(f"-X{name}={value}" for name, value in options.items()), "-L"]
    # kcat tries again and again until its own timeout; its first error is enough.
    with subprocess.Popen([*command, f"-m{PATIENCE_S:.0f}"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any(INVALID in line for line in process.stderr)
        finally:
            process.kill()


def test_librdkafka_is_told_that_its_token_is_refused(lab: OAuthLab) -> None:
    said = []

    def token(_: str) -> tuple[str, float]:
        claims = lab.issuer.claims()
        return lab.issuer.token(iss="https://elsewhere.test"), float(claims["exp"])

    options = {**lab.librdkafka(), **QUIET, "error_cb": lambda error: said.append(error.str()), "oauth_cb": token}
    client = AdminClient({name: value for name, value in options.items() if "oauthbearer." not in name})
    wait_until(lambda: (client.poll(0.1), any(INVALID in text for text in said))[1], "the error of librdkafka")


def test_an_issuer_that_refuses_the_client_or_is_not_trusted_or_down_is_named(lab: OAuthLab) -> None:
    wrong = lab.properties()
    wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace(SECRET, "wrong")
    with pytest.raises(ConnectionFailed, match=r"there is no token .*/token answered 401 .*invalid_client"):
        ask_metadata(lab.broker.at[SASL], wrong)
    strange = lab.properties()
    strange["sasl.jaas.config"] = strange["sasl.jaas.config"].split(" ssl.truststore")[0] + ";"
    with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
        ask_metadata(lab.broker.at[SASL], strange)
    down = lab.properties(sasl_oauthbearer_token_endpoint_url="https://127.0.0.1:1/token")
    with pytest.raises(ConnectionFailed, match=r"https://127.0.0.1:1/token cannot be read: .*refused"):
        ask_metadata(lab.broker.at[SASL], down)


def test_clients_try_again_while_the_broker_has_no_keys(lab: OAuthLab) -> None:
    with pytest.raises(ConnectionFailed, match="cannot read the keys of the issuer of tokens; try again"):
        ask_metadata(lab.broker.at[LATE], lab.properties())
    assert "issuer_keys_not_read" in lab.broker.log
    producer = Producer({**lab.librdkafka(), **QUIET, "bootstrap.servers": lab.broker.at[LATE]})
    producer.produce("late", b"hello")
    assert producer.flush(0.5) == 1
    lab.late_keys.write_bytes(lab.issuer.key_set)
    assert producer.flush(PATIENCE_S) == 0


# -- sessions


def log_in(raw: RawClient, token: str) -> Any:
    assert raw.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1).error_code == ErrorCode.NONE
    return raw.ask(SaslAuthenticateRequest(auth_bytes=f"n,,\x01auth=Bearer {token}\x01\x01".encode()), 2)


def test_a_session_ends_with_its_token(lab: OAuthLab) -> None:
    with lab.raw() as raw:
        answer = log_in(raw, lab.issuer.token())
        assert 0 < answer.session_lifetime_ms <= lab.issuer.lifetime_s * 1000
        # A token that is about to end: within the skew of clocks.
        again = log_in(raw, lab.issuer.token(exp=lab.issuer.claims()["iat"]))
        assert (again.error_code, again.session_lifetime_ms) == (ErrorCode.NONE, 1000)

        def is_closed() -> bool:
            try:
                raw.ask(MetadataRequest(topics=[]), 9)
            except (Closed, OSError):
                return True
            return False

        wait_until(is_closed, "the session has ended", pause_s=0.1)


def test_a_session_is_no_longer_than_the_setting_and_stays_with_its_user(lab: OAuthLab) -> None:
    with lab.raw(SHORT) as raw:
        assert log_in(raw, lab.issuer.token()).session_lifetime_ms == LIFETIME_MS
        again = log_in(raw, lab.issuer.token(sub="eve"))
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert again.error_message.endswith("from User:orders-eu to User:eve")


def test_librdkafka_goes_on_where_sessions_are_short(lab: OAuthLab) -> None:
    producer = Producer({**lab.librdkafka(), **QUIET, "bootstrap.servers": lab.broker.at[SHORT]})
    expired = lab.broker.metric(r'penstock_refused_total\{reason="session_expired"\}')
    sent = 0

    def is_over() -> bool:
        nonlocal sent
        producer.produce("short", b"%d" % sent)
        assert producer.flush(PATIENCE_S) == 0
        sent += 1
        return logins_of(lab.broker) >= before + 4

    before = logins_of(lab.broker)
    wait_until(is_over, "the client has logged in again", pause_s=0.05)
    assert lab.broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == expired


def logins_of(broker: BrokerProcess) -> float:
    return broker.metric(r'penstock_request_seconds_count\{api="sasl_handshake"\}')


# -- between brokers


def test_brokers_log_in_to_each_other_with_tokens(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates")
    issuer = Issuer(lifetime_s=4)
    server = IssuerServer(issuer, made.server("issuer"))
    settings = {
        **rules(f"{server.url}/keys", made.trust),
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": (
            f'{MODULE} clientId="{CLIENT}" clientSecret="{SECRET}" ssl.truststore.location="{made.trust}";'
        ),
        "min.insync.replicas": 2,
    }
    listeners = {SASL: "SASL_PLAINTEXT", OPEN: "PLAINTEXT"}
    cluster = ClusterProcesses(tmp_path, 2, settings, listeners=listeners)
    try:
        at = ",".join(broker.at[OPEN] for broker in cluster.brokers.values())
        admin, topic = AdminClient({"bootstrap.servers": at, **QUIET}), NewTopic("orders", 2, replication_factor=2)
        admin.create_topics([topic])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": at, **QUIET})
        before = sum(logins_of(broker) for broker in cluster.brokers.values())

        def is_over() -> bool:
            producer.produce("orders", b"hello")
            assert producer.flush(PATIENCE_S) == 0
            return sum(logins_of(broker) for broker in cluster.brokers.values()) >= before + 6

        wait_until(is_over, "brokers log in again as their tokens end", pause_s=0.05)
        for broker in cluster.brokers.values():
            assert broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == 0
            assert "login_failed" not in broker.log
        cluster.finish()
    finally:
        cluster.kill()
        server.close()
