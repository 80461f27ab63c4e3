"""Access keys and the audit log: who has created, changed and deleted which key, and no secret."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from confluent_kafka.admin import ConfigResource, ResourceType

from penstock.client.access_keys import AccessKeys, NewAccessKey
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.errors import ServerError
from penstock.client.security import SecuritySettings
from penstock.foundation.codes import ErrorCode
from tests.clients.acl_lab import ADMIN, AclLab
from tests.clients.waiting import PATIENCE_S
from tests.fork_server import PENSTOCK
from tests.sqs.key_lab import SETTING, new_secret_key

EVE = "eve"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[AclLab]:
    lab = AclLab(tmp_path, [EVE], {SETTING: new_secret_key()})
    yield lab
    lab.broker.finish()


def client(lab: AclLab, user: str) -> KafkaClient:
    connection = ConnectionSettings(security=SecuritySettings.parse(lab.properties(user)))
    return KafkaClient(lab.at, settings=ClientSettings(connection=connection))


def test_changes_of_access_keys_are_audited_without_secrets(lab: AclLab) -> None:
    async def use() -> NewAccessKey:
        async with client(lab, ADMIN) as admin, client(lab, EVE) as eve:
            made = await AccessKeys(admin).create("orders", queues=["orders-*"])
            for work in (
                AccessKeys(eve).create("orders"),
                AccessKeys(eve).delete(made.access_key),
                AccessKeys(eve).all(),
            ):
                with pytest.raises(ServerError) as raised:
                    await work
                assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            await AccessKeys(admin).set_enabled(made.access_key, False)
            await AccessKeys(admin).delete(made.access_key)
            with pytest.raises(ServerError):
                await AccessKeys(admin).delete_all("orders")
            return made

    made = uvloop.run(use())
    (config,) = lab.admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    secret = config.result(PATIENCE_S)[SETTING]
    assert (secret.value, secret.is_sensitive, secret.is_read_only) == (None, True, True)
    lab.broker.stop()
    command = [PENSTOCK, "audit", "--data-dir", str(lab.broker.data_dir), "--json", "--max", "1000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    known = {
        (each["event"], each["principal"], each["operation"], each["name"])
        for each in events
        if "access_key" in each.get("operation", "")
    }
    key = made.access_key
    assert known == {
        ("change", "User:admin", "create_access_key", f"{key}, orders"),
        ("change_failed", "User:eve", "create_access_key", "orders"),
        ("change_failed", "User:eve", "alter_access_keys", key),
        ("change", "User:admin", "alter_access_keys", key),
        ("change_failed", "User:admin", "alter_access_keys", "orders"),
    }
    written = [file for file in lab.broker.data_dir.rglob("*") if file.is_file()]
    assert any(key.encode() in file.read_bytes() for file in written)
    assert not [file for file in written if made.secret.encode() in file.read_bytes()]
    assert made.secret not in lab.broker.log
    lab.broker.start()
