"""TLS on Kafka listeners: every client, every bad certificate, large messages, new certificates, secrets."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from penstock.client.errors import ConnectionFailed
from penstock.foundation.errors import PenstockError
from tests.certificates import LOCAL, PASSWORD, Certificates, librdkafka, properties
from tests.clients.driver_confluent import QUIET, ConfluentDriver
from tests.clients.tls_lab import ASKED, ELSEWHERE, LISTED, MTLS, PLAIN, TLS, TlsLab, ask_metadata, read_in_group
from tests.clients.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsLab]:
    lab = TlsLab(tmp_path_factory.mktemp("tls"))
    yield lab
    lab.broker.finish()


@pytest.mark.parametrize("listener", [TLS, MTLS])
def test_confluent_kafka_moves_large_messages_in_both_directions(lab: TlsLab, listener: str) -> None:
    """More than any buffer holds, so that reading and writing are paused and resumed."""
    options = librdkafka(lab.made.trust, lab.client if listener == MTLS else None)
    driver = ConfluentDriver(lab.at(PLAIN))
    topic = f"large-{listener}"
    driver.create_topic(topic, 1)
    values = [os.urandom(900_000) for _ in range(24)]
    named = {name.replace(".", "_"): value for name, value in options.items()}
    producer = ConfluentDriver(lab.at(listener)).producer(**named)
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(PATIENCE_S) == 0
    # One response has many messages, and is encrypted in many slices.
    large = {"max.partition.fetch.bytes": 20_000_000, "receive.message.max.bytes": 100_000_000}
    assert read_in_group(lab.at(listener), topic, len(values), options | large) == values


def test_aiokafka_and_our_own_client_speak_tls(lab: TlsLab) -> None:
    context = ssl.create_default_context(cafile=str(lab.made.trust))
    options: dict[str, Any] = {
        "bootstrap_servers": lab.at(TLS),
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def round_trip() -> bytes | None:
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aiokafka", b"hello")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(round_trip()) == b"hello"
    assert ask_metadata(lab.at(TLS), properties(lab.made.trust)) == 1
    assert ask_metadata(lab.at(MTLS), properties(lab.made.trust, lab.client)) == 1


def test_kafka_python_speaks_tls(lab: TlsLab) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": lab.at(MTLS),
        "security_protocol": "SSL",
        "ssl_cafile": str(lab.made.trust),
        "ssl_certfile": str(lab.client),
        "ssl_keyfile": str(lab.client),
    }
    producer = KafkaProducer(**options)
    producer.send("kafka-python", b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", **options)
    assert next(consumer).value == b"hello"
    consumer.close()


@pytest.mark.parametrize("case", ["none", "expired", "self-signed", "another CA"])
def test_mtls_refuses_a_client_whose_certificate_is_bad(lab: TlsLab, case: str, tmp_path: Path) -> None:
    files = {
        "none": lambda: None,
        "expired": lambda: lab.made.issue("late", days=-0.01),
        "self-signed": lab.made.self_signed,
        "another CA": lambda: Certificates(tmp_path / "other").issue("orders"),
    }
    before = lab.failures()
    # In TLS 1.3 a client learns only with the first answer that the server has refused it.
    with pytest.raises(PenstockError, match="cannot reach"):
        ask_metadata(lab.at(MTLS), properties(lab.made.trust, files[case]()))
    wait_until(lambda: lab.failures() > before, "the broker counts the failed handshake")


def test_a_certificate_that_is_revoked_is_refused_soon_without_a_restart(lab: TlsLab) -> None:
    gone = lab.made.issue("gone")
    assert ask_metadata(lab.at(LISTED), properties(lab.made.trust, gone)) == 1
    lab.made.revocations(gone)

    def is_refused() -> bool:
        try:
            ask_metadata(lab.at(LISTED), properties(lab.made.trust, gone))
        except ConnectionFailed:
            return True
        return False

    wait_until(is_refused, "the broker has read the new list", pause_s=0.2)
    assert ask_metadata(lab.at(LISTED), properties(lab.made.trust, lab.client)) == 1


def test_a_certificate_that_is_only_requested_need_not_be_shown(lab: TlsLab, tmp_path: Path) -> None:
    assert ask_metadata(lab.at(ASKED), properties(lab.made.trust)) == 1
    assert ask_metadata(lab.at(ASKED), properties(lab.made.trust, lab.client)) == 1
    stranger = Certificates(tmp_path / "other").issue("orders")
    with pytest.raises(PenstockError, match="cannot reach"):
        ask_metadata(lab.at(ASKED), properties(lab.made.trust, stranger))


def test_a_client_refuses_a_server_of_another_name_or_of_an_unknown_ca(lab: TlsLab, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other").trust
    with pytest.raises(ConnectionFailed, match="its certificate is refused: self-signed certificate"):
        ask_metadata(lab.at(TLS), properties(other))
    with pytest.raises(ConnectionFailed, match="IP address mismatch"):
        ask_metadata(lab.at(ELSEWHERE), properties(lab.made.trust))
    assert ask_metadata(lab.at(ELSEWHERE), properties(lab.made.trust, ssl_endpoint_identification_algorithm="")) == 1


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_tls_versions_are_refused(lab: TlsLab) -> None:
    context = ssl.create_default_context(cafile=str(lab.made.trust))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    before = lab.failures()
    host, _, port = lab.at(TLS).rpartition(":")
    with socket.create_connection((host, int(port))) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname=host)
    wait_until(lambda: lab.failures() > before, "the broker counts the failed handshake")


def test_tls_at_a_plaintext_listener_and_plaintext_at_a_tls_listener_fail_with_a_hint(lab: TlsLab) -> None:
    with pytest.raises(ConnectionFailed):
        ask_metadata(lab.at(PLAIN), properties(lab.made.trust))
    wait_until(lambda: "kind=tls" in lab.broker.log, "a hint in the log")
    assert "it looks like TLS, which this listener does not speak" in lab.broker.log
    before = lab.failures()
    with pytest.raises(ConnectionFailed, match=r"If it has TLS, set security\.protocol to SSL"):
        ask_metadata(lab.at(TLS), {})
    wait_until(lambda: lab.failures() > before, "the broker counts the failed handshake")


def test_half_a_client_hello_does_not_stop_others(lab: TlsLab) -> None:
    host, _, port = lab.at(TLS).rpartition(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(20)]
    for each in idle:
        each.sendall(bytes.fromhex("160301020001"))
    assert ask_metadata(lab.at(TLS), properties(lab.made.trust)) == 1
    for each in idle:
        each.close()


def test_passwords_are_neither_described_nor_logged(lab: TlsLab) -> None:
    admin = AdminClient({"bootstrap.servers": lab.at(TLS), **librdkafka(lab.made.trust), **QUIET})
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    found = answer.result()
    assert (found["ssl.key.password"].value, found["ssl.key.password"].is_sensitive) == (None, True)
    assert (found["ssl.keystore.location"].value, found["ssl.keystore.location"].is_sensitive) == (
        str(lab.server),
        False,
    )
    assert not [entry.name for entry in found.values() if PASSWORD in str(entry.value)]
    assert PASSWORD not in lab.broker.log
    assert PASSWORD not in Path(f"/proc/{lab.broker.pid}/cmdline").read_text()


def test_new_certificates_are_used_without_a_restart(lab: TlsLab) -> None:
    host, _, port = lab.at(TLS).rpartition(":")
    before = ssl.get_server_certificate((host, int(port)))
    lab.made.encrypted("server", LOCAL)
    wait_until(lambda: ssl.get_server_certificate((host, int(port))) != before, "the new certificate", pause_s=0.2)
    assert "tls_files_reloaded" in lab.broker.log
