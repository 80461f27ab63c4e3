"""Stores over TLS, with a login: what brokers may do, and what is refused."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from penstock.coordination.store import ABSENT, Put, StoreUnavailable
from penstock.coordination.store_security import StoreSecurity
from penstock.foundation.errors import InvalidConfig
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.fork_server import PENSTOCK

from .servers import EtcdEnsemble, ZookeeperEnsemble
from .stores import Stores, Watched, put, until

# kazoo leaves the sockets of handshakes that fail to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
USER, PASSWORD = "penstock", "it's a secret"
SHORT_S = 3.0


class SecureEtcd(EtcdEnsemble):
    """One server with TLS, whose clients log in, or show certificates (`demands_certificates`)."""

    def __init__(self, folder: Path, made: Certificates, *, demands_certificates: bool = False) -> None:
        self._made = made
        trusted = ["--client-cert-auth", "--trusted-ca-file", str(made.trust)]
        self._more = trusted if demands_certificates else []
        self._files = {"cert": folder / "server-cert.pem", "key": folder / "server-key.pem"}
        pem = made.server("etcd").read_bytes()
        self._files["key"].write_bytes(pem)
        self._files["cert"].write_bytes(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
        super().__init__(folder)

    def _command(self, number: int) -> list[str]:
        plain = super()._command(number)
        client = f"http://127.0.0.1:{self.ports[number]}"
        files = ["--cert-file", str(self._files["cert"]), "--key-file", str(self._files["key"])]
        files += [*self._more, "--auth-token-ttl", "2"]
        return [each.replace(client, client.replace("http:", "https:")) for each in plain] + files

    def _role(self, number: int) -> str | None:
        return "leader" if "leader" in self.call("/v3/maintenance/status") else None

    def call(self, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        """Asks by JSON, as the operator."""
        context = ssl.create_default_context(cafile=str(self._made.trust))
        context.load_cert_chain(self._made.issue("operator"))
        headers = {"Authorization": self._token} if self._token else {}
        url = f"https://127.0.0.1:{self.ports[0]}{path}"
        request = urllib.request.Request(url, json.dumps(body or {}).encode(), headers, method="POST")
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        )
        try:
            with opener.open(request, timeout=5) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (urllib.error.URLError, OSError):
            return {}

    _token = ""

    def demand_logins(self) -> None:
        """Users must log in: root may do everything, and one user what is below /penstock/."""
        for name in ("root", USER):
            assert self.call("/v3/auth/user/add", {"name": name, "password": PASSWORD})
            assert self.call("/v3/auth/role/add", {"name": name})
            assert self.call("/v3/auth/user/grant", {"user": name, "role": name})
        below = {"key": "L3BlbnN0b2NrLw==", "range_end": "L3BlbnN0b2NrMA==", "permType": "READWRITE"}
        assert self.call("/v3/auth/role/grant", {"name": USER, "perm": below})
        assert self.call("/v3/auth/enable")
        self.log_in()

    def log_in(self) -> None:
        self._token = ""
        self._token = self.call("/v3/auth/authenticate", {"name": "root", "password": PASSWORD})["token"]


class SecureZookeeper(ZookeeperEnsemble):
    """One server with TLS."""

    def __init__(self, folder: Path, made: Certificates, *, demands_certificates: bool = False) -> None:
        self._files = made.server("zookeeper"), made.trust
        self._demands_certificates = demands_certificates
        self._made = made
        super().__init__(folder)

    def _command(self, number: int) -> list[str]:
        command = super()._command(number)
        config = self._folders[number] / "zoo.cfg"
        keys, trust = self._files
        lines = [
            *(line for line in config.read_text().splitlines() if not line.startswith("clientPort")),
            f"secureClientPort={self.ports[number]}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={keys}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={trust}",
            "ssl.trustStore.type=PEM",
            f"ssl.clientAuth={'need' if self._demands_certificates else 'none'}",
            "",
        ]
        config.write_text("\n".join(lines))
        return command

    def _role(self, number: int) -> str | None:
        client = self.client(certfile=str(self._made.issue("operator")), keyfile=str(self._made.issue("operator")))
        try:
            client.start(timeout=2)
        except KazooTimeoutError:
            return None
        finally:
            client.stop()
            client.close()
        return "leader"

    def client(self, **options: Any) -> KazooClient:
        return KazooClient(f"127.0.0.1:{self.ports[0]}", use_ssl=True, ca=str(self._made.trust), **options)


KINDS = {"etcd": SecureEtcd, "zookeeper": SecureZookeeper}
SecureServer = SecureEtcd | SecureZookeeper
EVERY_KIND = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=list(KINDS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, made: Certificates
) -> Iterator[SecureServer]:
    reason = KINDS[request.param].why_not()
    if reason is not None:
        pytest.skip(reason)
    server = KINDS[request.param](tmp_path_factory.mktemp("server"), made)
    server.start()
    if isinstance(server, SecureEtcd):
        server.demand_logins()
    yield server
    server.stop()


def properties(made: Certificates, **other: str) -> dict[str, str]:
    found = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(made.trust),
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    } | {name.replace("_", "."): text for name, text in other.items()}
    return {name: text for name, text in found.items() if text}


def stores(server: SecureServer, made: Certificates, folder: Path, root: str = "/penstock/x", **other: str) -> Stores:
    security = StoreSecurity.parse(properties(made, **other))
    return Stores(kind=server.kind, url=server.url(root), folder=folder, security=security)


async def test_brokers_read_write_and_watch_over_tls(
    server: SecureServer, made: Certificates, tmp_path: Path
) -> None:
    opened = stores(server, made, tmp_path).opened
    async with opened() as writer, opened() as reader:
        watched = Watched()
        await reader.watch("", watched)
        await writer.transact([Put("a", b"1", ABSENT), Put("leased", b"2", ABSENT, leased=True)])
        await until(lambda: {"a", "leased"} <= watched.states.keys(), "both are seen")
    async with opened() as reader:
        found = await reader.get("a")
        assert found is not None
        assert found.value == b"1"


async def test_a_session_lasts_longer_than_the_token_of_its_login(
    server: SecureServer, made: Certificates, tmp_path: Path
) -> None:
    """Tokens of this etcd end after 2 s without calls; keys with a lease stay, and changes are seen."""
    opened = stores(server, made, tmp_path, root="/penstock/long").opened
    async with opened(ttl_s=2) as writer, opened(ttl_s=2) as reader:
        lost: list[None] = []
        writer.on_session_lost.append(lambda: lost.append(None))
        watched = Watched()
        await reader.watch("", watched)
        await writer.transact([Put("leased", b"2", ABSENT, leased=True)])
        if isinstance(server, SecureEtcd):
            server.log_in()
            assert server.call("/v3/auth/user/add", {"name": "other", "password": PASSWORD})  # makes tokens old
        for number in range(3):
            await put(writer, f"k/{number}", b"1")
            await until(lambda number=number: f"k/{number}" in watched.states, "it is seen")
        assert await reader.get("leased") is not None
        assert not lost


@pytest.mark.parametrize(
    "change",
    [
        {"security_protocol": "PLAINTEXT", "ssl_truststore_location": ""},
        {"ssl_truststore_location": "OTHER"},
    ],
    ids=["without TLS", "another authority"],
)
async def test_servers_that_are_not_trusted_are_not_used(
    server: SecureServer, made: Certificates, tmp_path: Path, change: dict[str, str]
) -> None:
    if change.get("ssl_truststore_location") == "OTHER":
        change = {"ssl_truststore_location": str(Certificates(tmp_path / "other").trust)}
    with pytest.raises(StoreUnavailable):
        async with stores(server, made, tmp_path, **change).opened(timeout_s=SHORT_S):
            pytest.fail("the store was opened")


@pytest.mark.parametrize(
    "login",
    [{"sasl_password": "wrong"}, {"sasl_username": "", "sasl_password": "", "security_protocol": "SSL"}],
    ids=["wrong password", "no login"],
)
async def test_what_brokers_have_written_is_for_their_user_alone(
    server: SecureServer, made: Certificates, tmp_path: Path, login: dict[str, str]
) -> None:
    async with stores(server, made, tmp_path, root="/penstock/own").opened() as store:
        await put(store, "secret", b"1")
    with pytest.raises(StoreUnavailable):
        async with stores(server, made, tmp_path, root="/penstock/own", **login).opened(timeout_s=SHORT_S) as store:
            await store.get("secret")


@EVERY_KIND
async def test_certificates_of_clients_are_shown(kind: str, tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates")
    (tmp_path / "server").mkdir()
    server = KINDS[kind](tmp_path / "server", made, demands_certificates=True)
    server.start()
    try:
        with_key = {"security_protocol": "SSL", "sasl_username": "", "sasl_password": ""}
        keystore = {"ssl_keystore_location": str(made.issue("broker-1"))}
        async with stores(server, made, tmp_path, **with_key, **keystore).opened() as store:
            await put(store, "a", b"1")
        with pytest.raises(StoreUnavailable):
            async with stores(server, made, tmp_path, **with_key).opened(timeout_s=SHORT_S):
                pytest.fail("the store was opened")
    finally:
        server.stop()


def test_nodes_of_zookeeper_cannot_be_read_by_others(
    server: SecureServer, made: Certificates, tmp_path: Path
) -> None:
    if isinstance(server, SecureEtcd):
        return  # its users and roles decide
    config = tmp_path / "store.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in properties(made).items()))
    store = ["--store", server.url("/penstock/acl"), "--store-config", str(config)]
    command = [PENSTOCK, "user", "create", "admin", "--generate", *store]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    client = server.client()
    client.start()
    try:
        with pytest.raises(NoAuthError):
            client.get_children("/penstock/acl")
    finally:
        client.stop()
        client.close()


def test_a_broker_runs_on_a_secure_store(server: SecureServer, made: Certificates, tmp_path: Path) -> None:
    config = tmp_path / "store.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in properties(made).items()))
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker")
    file = broker.folder / "penstock.toml"
    top = {"store": server.url("/penstock/broker"), "store_config": str(config)}
    file.write_text("".join(f"{name} = {json.dumps(text)}\n" for name, text in top.items()) + file.read_text())
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.kafka, **QUIET})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
    broker.stop()
    broker.start()
    wait_until(lambda: "orders" in admin.list_topics(timeout=PATIENCE_S).topics, "the topic is there")
    broker.finish()
    assert PASSWORD not in broker.log


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.username and sasl.password"),
        ({"sasl.username": "a"}, "sasl.username and sasl.password belong together"),
        ({"zookeeper.set.acl": "true"}, "expected true, with sasl.username, or false"),
        ({"user": "a"}, "user is not a property of stores"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"}, "cannot read /no/such.pem"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "x"}, "stores need certificates in files"),
        ({"security.protocol": "SSL", "ssl.key.password": "x"}, "ssl.key.password is not supported for stores"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, "ssl.cipher.suites is not supported for stores"),
    ],
)
def test_mistakes_are_refused_with_advice(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        StoreSecurity.parse(given)
    assert said in str(caught.value)
    assert "password=" not in repr(StoreSecurity(username="a", password="b"))
