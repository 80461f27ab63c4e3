"""The registry with access keys of users in the store, as users of HTTP Basic."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.access_keys import NewAccessKey
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.sqs.key_lab import SETTING, ask, create, new_secret_key

from .rest_client import RestClient, record
from .test_access import LoginClient

TEXT = record("id:long")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, {SETTING: new_secret_key()}).start()
    yield made
    made.finish()


def login(http: str, key: NewAccessKey, secret: str | None = None) -> LoginClient:
    return LoginClient(http, key.access_key, key.secret if secret is None else secret)


def test_a_key_may_use_its_subjects(broker: BrokerProcess) -> None:
    assert RestClient(broker.http).get("/subjects").status == 401
    admin = login(broker.http, create(broker.kafka, "admin"))
    key = create(broker.kafka, actions=["schema:Read", "schema:Write"], subjects=["orders-*"])
    orders = login(broker.http, key)
    assert admin.register("bank-value", TEXT).status == 200
    assert orders.register("orders-value", TEXT).status == 200
    assert orders.register("bank-value", TEXT).code == 40301
    assert orders.delete("/subjects/orders-value").code == 40301
    assert orders.get("/subjects").body == ["orders-value"]
    assert login(broker.http, key, "wrong").get("/subjects").status == 401
    assert login(broker.http, create(broker.kafka, actions=["sqs:*"])).get("/subjects").status == 403
    ask(broker.kafka, lambda keys: keys.set_enabled(key.access_key, False))
    assert orders.get("/subjects").status == 401
    ask(broker.kafka, lambda keys: keys.set_enabled(key.access_key, True))
    assert orders.get("/subjects").status == 200
    ask(broker.kafka, lambda keys: keys.delete(key.access_key))
    assert orders.get("/subjects").status == 401


def test_all_brokers_of_a_cluster_know_the_rights_of_a_key(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, 2, {SETTING: new_secret_key()})
    try:
        first, second = cluster.brokers.values()
        key = create(first.kafka, actions=["schema:*"], subjects=["orders-*"])
        for http in (first.http, second.http):
            orders = login(http, key)
            wait_until(lambda orders=orders: orders.get("/subjects").status == 200, "the broker knows the key")
            assert orders.register("orders-value", TEXT).status == 200
            assert orders.register("bank-value", TEXT).code == 40301
    finally:
        cluster.finish()
