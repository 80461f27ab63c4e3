"""The registry of brokers with --credentials: HTTP Basic, and rights on subjects."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from penstock.client.schema_registry_blocking import BlockingSchemaRegistry
from tests.brokers import BrokerProcess
from tests.cli.cli_runner import Cli
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .rest_client import Answer, RestClient, record

KEYS = """
keys:
  - {access_key: ADMIN, secret: "admin:secret"}
  - {access_key: QUEUES, secret: queues-secret, actions: ["sqs:*", SendMessage, "Receive*"]}
  - {access_key: READER, secret: reader-secret, actions: ["schema:Read"]}
  - access_key: ORDERS
    secret: orders-secret
    actions: ["schema:Read", "schema:Write"]
    subjects: [orders-*, ":.staging:orders-*"]
"""
TEXT = record("id:long")
SUBJECTS = ("orders-value", "secrets-value", ":.staging:orders-value", ":.staging:secrets-value")


class LoginClient(RestClient):
    """Sends a user and a password with each request."""

    def __init__(self, http: str, user: str, password: str) -> None:
        super().__init__(http)
        self.headers["authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def guard(folder: Path, text: str = KEYS) -> BrokerProcess:
    """A broker with access keys; not started."""
    keys = folder / "keys.yaml"
    keys.write_text(text)
    broker = BrokerProcess(folder)
    config = folder / "penstock.toml"  # what is not a setting stands above the table of settings
    config.write_text(f"credentials = {json.dumps(str(keys))}\n{config.read_text()}")
    return broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = guard(tmp_path_factory.mktemp("guarded")).start()
    admin = LoginClient(broker.http, "ADMIN", "admin:secret")
    for number, subject in enumerate(SUBJECTS):
        assert admin.register(subject, record(f"f{number}:int")).status == 200
    yield broker
    broker.finish()


@pytest.fixture
def admin(guarded: BrokerProcess) -> LoginClient:
    return LoginClient(guarded.http, "ADMIN", "admin:secret")


@pytest.fixture
def orders(guarded: BrokerProcess) -> LoginClient:
    return LoginClient(guarded.http, "ORDERS", "orders-secret")


def test_a_request_without_a_valid_password_is_refused(guarded: BrokerProcess) -> None:
    before = guarded.metric("penstock_registry_authentication_failures_total")
    tried = [RestClient(guarded.http)]
    for user, password in (
        ("ADMIN", "wrong"),
        ("ABSENT", "admin:secret"),
        ("", "there is no such key"),
        ("ADMIN", ""),
    ):
        tried.append(LoginClient(guarded.http, user, password))
    for header in ("Basic !!!", "Basic", "Bearer abc", "Basic QURNSU4="):
        tried.append(RestClient(guarded.http))
        tried[-1].headers["authorization"] = header
    for rest in tried:
        for answer in (rest.get("/subjects"), rest.get("/nothing/here"), rest.register("orders-value", TEXT)):
            assert answer == Answer(401, {"error_code": 401, "message": "Unauthorized"}), rest.headers
            assert rest.received["www-authenticate"] == 'Basic realm="schema registry"'
    failures = guarded.metric("penstock_registry_authentication_failures_total") - before
    assert failures == 3 * len(tried)


def test_keys_that_name_only_actions_of_sqs_have_no_rights(guarded: BrokerProcess) -> None:
    rest = LoginClient(guarded.http, "QUEUES", "queues-secret")
    for answer in (rest.get("/subjects"), rest.get("/schemas/types"), rest.register("orders-value", TEXT)):
        assert (answer.status, answer.code) == (403, 40301)


def test_a_reader_changes_nothing(guarded: BrokerProcess, admin: LoginClient) -> None:
    rest = LoginClient(guarded.http, "READER", "reader-secret")
    assert rest.get("/subjects").body == admin.get("/subjects").body
    version = admin.get("/subjects/orders-value/versions/1").body
    assert rest.get(f"/schemas/ids/{version['id']}").body["schema"] == version["schema"]
    assert rest.post("/subjects/orders-value", {"schema": version["schema"]}).status == 200
    check = rest.post("/compatibility/subjects/orders-value/versions/latest", {"schema": version["schema"]})
    assert check.body == {"is_compatible": True}
    assert rest.get("/config").status == 200
    for answer in (
        rest.register("orders-value", version["schema"]),
        rest.delete("/subjects/orders-value"),
        rest.delete("/subjects/orders-value/versions/1"),
        rest.put("/config", {"compatibility": "NONE"}),
        rest.put("/config/orders-value", {"compatibility": "NONE"}),
        rest.delete("/config/orders-value"),
        rest.put("/mode/orders-value", {"mode": "READONLY"}),
        rest.delete("/mode/orders-value"),
        rest.delete("/contexts/.staging"),
    ):
        assert (answer.status, answer.code) == (403, 40301)
    assert admin.get("/subjects/orders-value/versions").body == [1]


def test_a_key_sees_only_its_subjects(orders: LoginClient, admin: LoginClient) -> None:
    assert orders.get("/subjects").body == [":.staging:orders-value", "orders-value"]
    assert {each["subject"] for each in orders.get("/schemas").body} == {"orders-value"}
    assert orders.get("/subjects?subjectPrefix=:.staging:").body == [":.staging:orders-value"]
    assert orders.get("/contexts/.staging/subjects").body == [":.staging:orders-value"]
    for path in (
        "/subjects/secrets-value/versions",
        "/subjects/secrets-value/versions/1",
        "/subjects/secrets-value/versions/1/schema",
        "/subjects/secrets-value/versions/1/referencedby",
        "/subjects/secrets-value/metadata",
        "/subjects/:.staging:secrets-value/versions",
        "/contexts/.staging/subjects/secrets-value/versions/1",
        "/config/secrets-value",
        "/mode/secrets-value",
    ):
        assert orders.get(path).code == 40301, path
        assert admin.get(path).code != 40301, path
    hidden = admin.get("/subjects/secrets-value/versions/1").body
    for path in ("", "/schema", "/subjects", "/versions"):
        assert orders.get(f"/schemas/ids/{hidden['id']}{path}").code == 40403, path
        assert admin.get(f"/schemas/ids/{hidden['id']}{path}").status == 200, path
    assert orders.get(f"/schemas/ids/{hidden['id']}?subject=secrets-value").code == 40301
    assert orders.get(f"/schemas/guids/{hidden['guid']}").code == 40403
    assert orders.get(f"/schemas/guids/{hidden['guid']}/ids").body == []
    own = orders.get("/subjects/orders-value/versions/1").body
    assert orders.get(f"/schemas/guids/{own['guid']}/ids").body == [{"context": ".", "id": own["id"]}]
    assert orders.get(f"/schemas/ids/{own['id']}?subject=orders-value").status == 200
    assert orders.get("/config").status == 200


def test_a_key_registers_only_under_its_subjects(orders: LoginClient, admin: LoginClient) -> None:
    assert orders.register("orders-key", TEXT).status == 200
    assert orders.register("secrets-key", TEXT).code == 40301
    assert orders.put("/config/orders-key", {"compatibility": "NONE"}).code == 40301
    assert orders.delete("/subjects/orders-key").code == 40301
    refers = {"references": [{"name": "Order", "subject": "secrets-value", "version": 1}]}
    assert orders.register("orders-reference", '"Order"', **refers).code == 40301
    assert orders.post("/subjects/orders-reference", {"schema": '"Order"'} | refers).code == 40301
    assert admin.register("orders-reference", '"Order"', **refers).status == 200
    assert admin.put("/config/orders-alias", {"alias": "secrets-value"}).status == 200
    assert orders.get("/subjects/orders-alias/versions/1").code == 40301
    assert admin.get("/subjects/orders-alias/versions/1").status == 200


def test_clients_send_user_and_password(guarded: BrokerProcess) -> None:
    url = f"http://{guarded.http}/registry"
    with SchemaRegistryClient({"url": url, "basic.auth.user.info": "ORDERS:orders-secret"}) as client:
        assert client.register_schema("orders-python", Schema(TEXT, "AVRO")) > 0
        with pytest.raises(SchemaRegistryError) as caught:
            client.register_schema("secrets-python", Schema(TEXT, "AVRO"))
        assert (caught.value.http_status_code, caught.value.error_code) == (403, 40301)
    with SchemaRegistryClient({"url": url}) as client, pytest.raises(SchemaRegistryError) as caught:
        client.get_subjects()
    assert caught.value.http_status_code == 401
    registry = BlockingSchemaRegistry(url, user="READER", password="reader-secret")
    try:
        assert registry.by_id(1).schema.text == record("f0:int")
    finally:
        registry.close()


def test_commands_take_a_user(guarded: BrokerProcess) -> None:
    cli, login = Cli(guarded.kafka), ("--registry-user", "ADMIN:admin:secret")
    assert "Unauthorized" in cli.refused("schema", "list", code=1)
    assert "orders-value" in cli.ok("schema", "list", *login)
    assert "orders-value" in cli.ok(
        "schema", "list", "--registry", f"http://READER:reader-secret@{guarded.http}/registry"
    )
    assert "denied operation Admin" in cli.refused(
        "schema", "mode", "orders-value", "READONLY", "--registry-user", "READER:reader-secret", code=1
    )
    assert "already serves" in cli.ok("schema", "own", "--yes", *login)
    said = cli("schema", "list", "--registry-user", "ADMIN").stderr.decode()
    assert "expected USER:PASSWORD" in said


def test_keys_are_read_again(tmp_path: Path) -> None:
    broker = guard(tmp_path).start()
    try:
        rest = LoginClient(broker.http, "LATER", "later-secret")
        assert rest.get("/subjects").status == 401
        (tmp_path / "keys.yaml").write_text(KEYS + "  - {access_key: LATER, secret: later-secret}\n")
        os.kill(broker.pid, signal.SIGHUP)
        wait_until(lambda: rest.get("/subjects").status == 200, "the new key is known")
    finally:
        broker.finish()


def test_rights_hold_on_a_broker_that_forwards_requests(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(KEYS)
    cluster = ClusterProcesses(tmp_path, credentials=keys)
    try:
        for broker in cluster.brokers.values():
            orders = LoginClient(broker.http, "ORDERS", "orders-secret")
            assert RestClient(broker.http).get("/subjects").status == 401
            assert orders.register("orders-value", TEXT).status == 200
            assert orders.register("secrets-value", TEXT).code == 40301
            assert orders.get("/subjects").body == ["orders-value"]
    finally:
        cluster.finish()
