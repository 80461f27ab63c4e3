"""A KDC and a broker whose clients log in with Kerberos tickets, and clients that send any message of a login."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from penstock.client.address import parse_bootstrap
from penstock.client.connection import ConnectionSettings, open_connection
from penstock.client.security import SecuritySettings
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.kdc import OTHER_REALM, REALM, SERVICE, Kdc, gssapi

from .raw import RawClient

OPEN, SASL, SECURE, SHORT = "OPEN", "SASL", "SECURE", "SHORT"
MECHANISM = "GSSAPI"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
USER = "orders"
"""A super user; all others may do nothing."""
LIFETIME_MS = 2000
NO_LAYER = bytes([1, 0, 0, 0])
FLAGS = ("mutual_authentication", "integrity")
REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name="refused", num_partitions=1, replication_factor=1, assignments=(), configs=())],
    timeout_ms=1000,
    validate_only=True,
)
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


def jaas(keytab: Path, principal: str) -> str:
    return f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


class GssapiLab:
    """A KDC with clients, and a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kdc = Kdc(folder / "kdc")
        self.key = self.kdc.keytab(SERVICE)
        self.keytab = self.kdc.keytab(USER)
        self.eve = self.kdc.keytab("eve")
        self.kdc.kinit(USER, self.keytab)
        made = Certificates(folder / "certificates")
        self.trust = made.trust
        own = jaas(self.key, f"{SERVICE}@{REALM}")
        self.broker = BrokerProcess(
            folder,
            {
                "ssl.keystore.location": str(made.server()),
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.kerberos.service.name": "kafka",
                **{f"listener.name.{each.lower()}.gssapi.sasl.jaas.config": own for each in (SASL, SECURE, SHORT)},
                "listener.name.secure.sasl.kerberos.principal.to.local.rules": (
                    rf"RULE:[2:$1](app-.*)s/app-(.*)/$1/, RULE:[1:$1@$0](.*@{OTHER_REALM})s/@.*/-elsewhere/U, DEFAULT"
                ),
                "listener.name.short.connections.max.reauth.ms": LIFETIME_MS,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{USER};User:ANONYMOUS",
                # Failures of one host are answered later and later: here are many.
                "connection.failed.authentication.delay.ms": 0,
                "group.initial.rebalance.delay.ms": 0,
            },
            listeners={OPEN: "PLAINTEXT", SASL: "SASL_PLAINTEXT", SECURE: "SASL_SSL", SHORT: "SASL_PLAINTEXT"},
            environment=self.kdc.environment,
        ).start()

    def close(self) -> None:
        self.broker.finish()
        self.kdc.stop()

    def properties(self, listener: str = SASL, **other: str) -> dict[str, str]:
        """The properties of our own client, as for a Java client."""
        secure = {"security.protocol": "SASL_SSL", "ssl.truststore.location": str(self.trust)}
        return {
            **(secure if listener == SECURE else {"security.protocol": "SASL_PLAINTEXT"}),
            "sasl.mechanism": MECHANISM,
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas(self.keytab, USER),
        } | {name.replace("_", "."): value for name, value in other.items()}

    def raw(self, listener: str = SASL) -> "RawLogin":
        host, _, port = self.broker.at[listener].rpartition(":")
        return RawLogin((host, int(port)))

    def refusal(self, listener: str, properties: dict[str, str]) -> str:
        """Asks, with our own client, for what only the super user may do; returns why it is refused."""
        settings = ConnectionSettings(security=SecuritySettings.parse(properties))

        async def ask() -> str:
            connection = await open_connection(parse_bootstrap(self.broker.at[listener])[0], settings)
            try:
                answer = await connection.request(REQUEST)
                return answer.topics[0].error_message or ""
            finally:
                await connection.close()

        return uvloop.run(ask())

    def context(
        self,
        principal: str,
        keytab: Path,
        service: str = SERVICE,
        *,
        mech: Any = None,
        flags: Sequence[str] = FLAGS,
    ) -> Any:
        """A client's context for the tickets of a keytab."""
        kind = gssapi.NameType.kerberos_principal
        cache = self.folder / f"{principal.replace('/', '-')}.tickets"
        credentials = gssapi.Credentials(
            name=gssapi.Name(principal, kind),
            usage="initiate",
            store={"client_keytab": str(keytab), "ccache": f"FILE:{cache}"},
        )
        name = gssapi.Name(f"{service}@{REALM}", kind)
        wanted = [getattr(gssapi.RequirementFlag, each) for each in flags]
        return gssapi.SecurityContext(name=name, creds=credentials, usage="initiate", mech=mech, flags=wanted)

    def audited(self) -> str:
        """The audit log."""
        return "".join(file.read_text() for file in (self.broker.data_dir / "audit").glob("*.jsonl"))

    def failures(self) -> float:
        return self.broker.metric(r'penstock_refused_total\{reason="login_failed"\}')


class RawLogin(RawClient):
    """A client that sends any message of a login."""

    def begin(self, version: int = 1) -> None:
        assert self.ask(SaslHandshakeRequest(mechanism=MECHANISM), version).error_code == ErrorCode.NONE

    def say(self, token: bytes) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)

    def log_in(self, context: Any, choice: bytes = NO_LAYER, *, encrypt: bool = False) -> Any:
        """Logs in; returns the last answer. `choice`: the security layer, and as whom the client wants to act."""
        answer = self.establish(context)
        if answer.error_code:
            return answer
        answer = self.say(b"")
        assert context.unwrap(answer.auth_bytes).message == NO_LAYER
        return self.say(context.wrap(choice, encrypt).message)

    def establish(self, context: Any) -> Any:
        """Sends the ticket, and checks the answer."""
        self.begin()
        answer = self.say(context.step())
        if not answer.error_code:
            assert context.step(answer.auth_bytes) is None
        return answer

    def refusal(self) -> str:
        """Asks for what only the super user may do; returns why it is refused."""
        message: str = self.ask(REQUEST, 5).topics[0].error_message or ""
        return message
