"""GSSAPI: every client logs in with Kerberos tickets of a real KDC; keys that change, and KDCs that are down."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

import penstock
from penstock.client.address import parse_bootstrap
from penstock.client.connection import ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.client.security import SecuritySettings
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest
from tests.clients.driver_confluent import QUIET
from tests.clients.gssapi_lab import LIFETIME_MS, OPEN, SASL, SECURE, SHORT, USER, GssapiLab, jaas
from tests.clients.tls_lab import ask_metadata
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.clusters import ClusterProcesses
from tests.fork_server import PENSTOCK
from tests.kdc import OTHER_REALM, SERVICE, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GssapiLab]:
    lab = GssapiLab(tmp_path_factory.mktemp("gssapi"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lab.kdc.environment.items():
            patch.setenv(name, value)
        yield lab
    lab.close()


# -- every client


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_logs_in_with_a_keytab(lab: GssapiLab) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(lab.keytab),
        "sasl.kerberos.principal": USER,
    }
    environment = {**os.environ, "KRB5CCNAME": f"FILE:{lab.folder / 'kcat-tickets'}"}
    command = ["kcat", "-b", lab.broker.at[SASL], *(f"-X{name}={value}" for name, value in options.items()), "-tkcat"]
    produced = subprocess.run(
        [*command, "-P"], input=b"hello", env=environment, capture_output=True, timeout=PATIENCE_S, check=False
    )
    if b"No worthy mechs found" in produced.stderr:
        pytest.skip("kcat has no Kerberos: apt-get install libsasl2-modules-gssapi-mit")
    assert produced.returncode == 0, produced.stderr
    read = [*command, "-C", "-e", "-q"]
    done = subprocess.run(read, env=environment, capture_output=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == b"hello\n"


def test_kafka_python_logs_in(lab: GssapiLab) -> None:
    options = {
        "bootstrap_servers": lab.broker.at[SASL],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
    }
    producer = KafkaProducer(**options)
    producer.send("kafka-python", b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **options)
    assert next(consumer).value == b"hello"
    consumer.close()


def test_aiokafka_logs_in(lab: GssapiLab) -> None:
    async def round_trip() -> bytes | None:
        options = {
            "bootstrap_servers": lab.broker.at[SASL],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aiokafka", b"hello")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(round_trip()) == b"hello"


def test_our_own_client_logs_in_with_a_keytab_and_with_a_ticket_cache(lab: GssapiLab) -> None:
    for listener in (SASL, SECURE):
        assert ask_metadata(lab.broker.at[listener], lab.properties(listener)) == 1
    cache = lab.kdc.kinit(USER, lab.keytab, cache=lab.folder / "own-tickets")
    module = lab.properties()["sasl.jaas.config"].split(" useKeyTab")[0]
    of_cache = lab.properties(sasl_jaas_config=f'{module} useTicketCache=true ticketCache="{cache}";')
    assert ask_metadata(lab.broker.at[SASL], of_cache) == 1
    # Like librdkafka.
    other = lab.properties(sasl_kerberos_keytab=str(lab.keytab), sasl_kerberos_principal=USER)
    del other["sasl.jaas.config"]
    assert ask_metadata(lab.broker.at[SASL], other) == 1


def test_commands_log_in(lab: GssapiLab) -> None:
    file = lab.folder / "client.properties"
    lines = [f"{name}={value}" for name, value in lab.properties(SECURE).items()]
    file.write_text("\n".join(lines))
    options = ["--bootstrap", lab.broker.at[SECURE], "--command-config", str(file)]

    def run(*arguments: str) -> str:
        command = [PENSTOCK, *arguments, *options]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout

    run("topic", "create", "of-commands")
    run("publish", "of-commands", "hello")
    assert "hello" in run("subscribe", "of-commands", "--from", "earliest", "--max", "1")


def test_the_python_api_tells_how_to_get_a_confluent_kafka_with_kerberos(lab: GssapiLab) -> None:
    with (
        pytest.raises(penstock.PenstockError, match=r"confluent-kafka was built without Kerberos .*--no-binary"),
        penstock.connect(lab.broker.at[SASL], security=lab.properties()) as mq,
    ):
        mq.publish("api", "hello")


# -- users


def test_rules_of_a_listener_map_principals_to_users(lab: GssapiLab) -> None:
    billing = lab.kdc.keytab("app-billing/host-1")
    stranger = lab.kdc.keytab("ann", realm=OTHER_REALM)
    for listener, principal, keytab, said in (
        (SASL, "eve", lab.eve, "User:eve has no permission"),
        (SASL, "app-billing/host-1", billing, "User:app-billing has no permission"),
        (SECURE, "app-billing/host-1", billing, "User:billing has no permission"),
        (SECURE, f"ann@{OTHER_REALM}", stranger, "User:ANN-ELSEWHERE has no permission"),
    ):
        properties = lab.properties(listener, sasl_jaas_config=jaas(keytab, principal))
        assert said in lab.refusal(listener, properties)


def test_a_principal_of_no_rule_is_refused(lab: GssapiLab) -> None:
    stranger = lab.kdc.keytab("tom", realm=OTHER_REALM)
    with pytest.raises(LoginRefused, match="refused the login: Authentication failed during authentication due to"):
        ask_metadata(lab.broker.at[SASL], lab.properties(sasl_jaas_config=jaas(stranger, f"tom@{OTHER_REALM}")))
    said = f"no rule of sasl.kerberos.principal.to.local.rules applies to tom@{OTHER_REALM}"
    wait_until(lambda: said in lab.audited(), "the reason is in the audit log")


# -- keys, tickets and the KDC


def test_a_new_key_of_the_broker_is_used_without_a_restart(lab: GssapiLab) -> None:
    """Tickets with the old key are accepted as long as the keytab has it."""
    assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
    lab.kdc.keytab(SERVICE)
    assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
    fresh = lab.kdc.keytab("fresh")
    assert ask_metadata(lab.broker.at[SASL], lab.properties(sasl_jaas_config=jaas(fresh, "fresh"))) == 1


def test_a_ticket_for_a_key_that_the_broker_has_no_more_is_replaced(lab: GssapiLab) -> None:
    assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
    lab.key.unlink()
    assert lab.kdc.keytab(SERVICE) == lab.key
    with pytest.raises(LoginRefused, match="invalid credentials"):
        ask_metadata(lab.broker.at[SASL], lab.properties())
    assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1


def test_clients_with_tickets_need_no_kdc_and_others_are_told_that_it_is_down(lab: GssapiLab) -> None:
    assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
    other = lab.properties(sasl_jaas_config=jaas(lab.kdc.keytab("late"), "late"))
    lab.kdc.stop()
    try:
        assert ask_metadata(lab.broker.at[SASL], lab.properties()) == 1
        with pytest.raises(ConnectionFailed, match=r"no ticket for kafka/127.0.0.1: Cannot contact any KDC"):
            ask_metadata(lab.broker.at[SASL], other)
    finally:
        lab.kdc.start()
    assert ask_metadata(lab.broker.at[SASL], other) == 1


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ('useKeyTab=true keyTab="{eve}" principal="orders"', "check orders and .*eve@PENSTOCK.TEST.keytab"),
        (
            'useKeyTab=true keyTab="/no/such" principal="orders"',
            "no ticket for kafka/127.0.0.1: .*`klist -k /no/such`",
        ),
        (
            'useKeyTab=true keyTab="{eve}" principal="eve@NOWHERE.TEST"',
            "no ticket for .*; check eve@NOWHERE.TEST and",
        ),
        ('useTicketCache=true ticketCache="/no/such"', "run kinit, and check the ticket cache with klist"),
    ],
)
def test_a_client_without_a_ticket_is_told_why(lab: GssapiLab, module: str, said: str) -> None:
    text = f"Krb5LoginModule required {module.format(eve=lab.eve)};"
    with pytest.raises((LoginRefused, ConnectionFailed), match=said):
        ask_metadata(lab.broker.at[SASL], lab.properties(sasl_jaas_config=text))


def test_a_ticket_that_has_expired_is_of_no_use(lab: GssapiLab) -> None:
    cache = lab.kdc.kinit("eve", lab.eve, "-l", "1s", cache=lab.folder / "short-tickets")
    properties = lab.properties(
        sasl_jaas_config=f'a.Krb5LoginModule required useTicketCache=true ticketCache="{cache}";'
    )

    def said() -> str:
        try:
            ask_metadata(lab.broker.at[SASL], properties)
        except ConnectionFailed:
            pass  # it has expired during the login
        except LoginRefused as error:
            return str(error)
        return ""

    assert "expired" in wait_until(said, "the ticket has expired", pause_s=0.1)


def test_a_broker_of_another_service_is_not_trusted(lab: GssapiLab) -> None:
    with pytest.raises(LoginRefused, match=r"no ticket for billing/127.0.0.1: .* not found in Kerberos database"):
        ask_metadata(lab.broker.at[SASL], lab.properties(sasl_kerberos_service_name="billing"))


# -- sessions


def test_our_own_client_authenticates_again_and_again(lab: GssapiLab) -> None:
    settings = ConnectionSettings(security=SecuritySettings.parse(lab.properties(SHORT)))
    name = r'penstock_request_seconds_count\{api="sasl_handshake"\}'
    before = lab.broker.metric(name)

    async def ask() -> None:
        connection = await open_connection(parse_bootstrap(lab.broker.at[SHORT])[0], settings)
        try:
            while lab.broker.metric(name) < before + 4:
                await connection.request(MetadataRequest(topics=[]))
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    uvloop.run(asyncio.wait_for(ask(), PATIENCE_S))


def test_a_session_is_as_long_as_the_setting_and_stays_with_its_user(lab: GssapiLab) -> None:
    """A ticket may live for ten hours; a session without the setting does not end, as in Kafka."""
    with lab.raw() as raw:
        assert raw.log_in(lab.context(USER, lab.keytab)).session_lifetime_ms == 0
    with lab.raw(SHORT) as raw:
        assert raw.log_in(lab.context(USER, lab.keytab)).session_lifetime_ms == LIFETIME_MS
        assert raw.log_in(lab.context(USER, lab.keytab)).session_lifetime_ms == LIFETIME_MS
        again = raw.log_in(lab.context("eve", lab.eve))
        assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert again.error_message.endswith("from User:orders to User:eve")


# -- between brokers


def test_brokers_log_in_to_each_other_with_tickets(lab: GssapiLab, tmp_path: Path) -> None:
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl.gssapi.sasl.jaas.config": jaas(lab.key, SERVICE),
        "connections.max.reauth.ms": 3000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:kafka;User:ANONYMOUS",
        "min.insync.replicas": 3,
    }
    listeners = {SASL: "SASL_PLAINTEXT", OPEN: "PLAINTEXT"}
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners=listeners, environment=lab.kdc.environment)
    try:
        at = ",".join(broker.at[OPEN] for broker in cluster.brokers.values())
        admin, topic = AdminClient({"bootstrap.servers": at, **QUIET}), NewTopic("orders", 3, replication_factor=3)
        admin.create_topics([topic])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": at, **QUIET})
        before = logins_of(cluster)

        def is_over() -> bool:
            producer.produce("orders", b"hello")
            assert producer.flush(PATIENCE_S) == 0
            return logins_of(cluster) >= before + 12

        wait_until(is_over, "brokers log in again as their sessions end", pause_s=0.05)
        for broker in cluster.brokers.values():
            assert broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == 0
            assert "login_failed" not in broker.log
            assert "broker_is_not_authorized" not in broker.log
        cluster.finish()
    finally:
        cluster.kill()


def logins_of(cluster: ClusterProcesses) -> float:
    name = r'penstock_request_seconds_count\{api="sasl_handshake"\}'
    return sum(broker.metric(name) for broker in cluster.brokers.values())
