"""The audit log of a broker, as `penstock audit` and Spark read it."""

import json
import subprocess
from collections.abc import Iterator

import pytest
import uvloop
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.foundation.acls import Operation
from tests.clients.acl_lab import ADMIN, AclLab, Rule, grant
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S
from tests.fork_server import PENSTOCK

EVE = "eve"


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclLab]:
    lab = AclLab(tmp_path_factory.mktemp("audited"), [EVE])
    yield lab
    lab.broker.finish()


def test_denials_logins_and_changes_are_audited(lab: AclLab) -> None:
    lab.admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)

    async def change() -> None:
        admin = await lab.connect(ADMIN)
        try:
            await grant(admin, "ann", Rule(Operation.DESCRIBE))
        finally:
            await admin.close()

    uvloop.run(change())
    producer = Producer(lab.librdkafka(EVE, **{"enable.idempotence": False}))
    producer.produce("orders", b"x")
    producer.flush(PATIENCE_S)
    wrong = {**lab.librdkafka(EVE), "sasl.password": "very secret"}
    with pytest.raises(KafkaException):
        AdminClient({**wrong, **QUIET}).list_topics(timeout=2)
    lab.broker.stop()
    command = [PENSTOCK, "audit", "--data-dir", str(lab.broker.data_dir), "--json", "--max", "1000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    seen = {(each["event"], each["principal"], each.get("operation"), each.get("name")) for each in events}
    assert ("change", f"User:{ADMIN}", "create_topics", "orders") in seen
    assert ("change", f"User:{ADMIN}", "create_acls", "User:ann, kafka-cluster") in seen
    assert ("denied", f"User:{EVE}", "describe", "orders") in seen
    assert ("login", f"User:{EVE}", None, None) in seen
    failed = next(each for each in events if each["event"] == "login_failed")
    assert (failed["principal"], failed["mechanism"]) == (f"User:{EVE}", "PLAIN")
    assert "very secret" not in done.stdout
    shown = subprocess.run(
        [*command[:4], "--event", "denied", "--user", EVE],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "topic orders" in shown.stdout
    lab.broker.start()
