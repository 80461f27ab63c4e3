"""A broker with TLS listeners, and clients of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop
from confluent_kafka import Consumer

from penstock.client.address import parse_bootstrap
from penstock.client.connection import ConnectionSettings, open_connection
from penstock.client.security import SecuritySettings
from penstock.wire.messages.metadata import MetadataRequest
from tests.brokers import BrokerProcess
from tests.certificates import LOCAL, PASSWORD, Certificates

from .driver_confluent import QUIET
from .waiting import PATIENCE_S

PLAIN, TLS, MTLS, ELSEWHERE, ASKED, LISTED = "PLAIN", "TLS", "MTLS", "ELSEWHERE", "ASKED", "LISTED"


class TlsLab:
    """A broker with a listener of each protocol, and the certificates that it trusts."""

    def __init__(self, folder: Path) -> None:
        self.made = Certificates(folder / "certificates")
        self.client = self.made.issue("orders")
        self.server = self.made.encrypted("server", LOCAL)
        self.mtls_server = self.made.server("mtls-server")
        self.broker = BrokerProcess(
            folder,
            {
                "ssl.keystore.location": str(self.server),
                "ssl.key.password": PASSWORD,
                "group.initial.rebalance.delay.ms": 0,
                "ssl.truststore.location": str(self.made.trust),
                "listener.name.mtls.ssl.keystore.location": str(self.mtls_server),
                "listener.name.elsewhere.ssl.keystore.location": str(
                    self.made.issue("other", ("queue.example.org",))
                ),
                "listener.name.elsewhere.ssl.key.password": "",
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
                "listener.name.asked.ssl.client.auth": "requested",
                "listener.name.listed.ssl.client.auth": "required",
                "listener.name.listed.ssl.crl.location": str(self.made.revocations()),
            },
            listeners={PLAIN: "PLAINTEXT", **dict.fromkeys((TLS, MTLS, ELSEWHERE, ASKED, LISTED), "SSL")},
        ).start()

    def at(self, listener: str) -> str:
        return self.broker.at[listener]

    def failures(self) -> float:
        return self.broker.metric(r'penstock_refused_total\{reason="tls_handshake"\}')


def read_in_group(bootstrap: str, topic: str, count: int, options: Mapping[str, Any] | None = None) -> list[bytes]:
    """Reads a topic as the only member of a new group; returns the values."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            **QUIET,
            **(options or {}),
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"{len(found)} of {count} messages"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def ask_metadata(at: str, given: Mapping[str, str]) -> int:
    """Asks for metadata with our own client, which has the given properties; returns the number of brokers."""
    settings = ConnectionSettings(security=SecuritySettings.parse(given))

    async def ask() -> int:
        connection = await open_connection(parse_bootstrap(at)[0], settings)
        try:
            return len((await connection.request(MetadataRequest(topics=[]))).brokers)
        finally:
            await connection.close()

    return uvloop.run(ask())
