"""Access keys of users in the store: requests for queues that are signed with them."""

import asyncio
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from botocore import UNSIGNED as NO_SIGNATURE

from penstock.client.access_keys import AccessKeys, NewAccessKey
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.errors import ServerError
from penstock.client.security import SecuritySettings
from penstock.client.users import SaltedPassword, Users
from penstock.cluster.access_keys import KEYS_PER_USER_MAX
from penstock.foundation.codes import ErrorCode
from penstock.foundation.scram import ScramMechanism
from tests.brokers import BrokerProcess
from tests.certificates import Certificates, properties
from tests.clients.waiting import PATIENCE_S
from tests.fork_server import PENSTOCK
from tests.ports import free_port
from tests.sqs_clients import PROTOCOLS, sqs_client

from .key_lab import (
    INVALID,
    MISMATCH,
    SETTING,
    UNSIGNED,
    ask,
    client_of,
    create,
    is_accepted,
    new_secret_key,
    refusal,
)
from .queue_calls import bodies, code_of, receive, refused

ITERATIONS = 4096
MANY = 700


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has a secret key, but no --credentials."""
    broker = BrokerProcess(tmp_path_factory.mktemp("keyed"), {SETTING: new_secret_key()}).start()
    yield broker
    broker.finish()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_key_signs_requests(keyed: BrokerProcess, models: Path, name: str, protocol: str) -> None:
    key = create(keyed.kafka)
    assert (len(key.access_key), key.access_key[:4], len(key.secret)) == (20, "AKIA", 40)
    with client_of(keyed.http, models, key, protocol=protocol) as sqs:
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        assert bodies(receive(sqs, url, 1, 20)) == ["hello"]
    assert refusal(keyed.http, models, key, protocol=protocol, secret="wrong" * 8)[0] == MISMATCH
    ask(keyed.kafka, lambda keys: keys.delete_all("orders"))


def test_a_broker_with_a_secret_key_asks_for_signatures_before_there_is_a_key(
    own_broker: Callable[..., BrokerProcess], models: Path
) -> None:
    broker = own_broker(settings={SETTING: new_secret_key()})
    sqs = sqs_client(broker.http, "json", models, signature_version=NO_SIGNATURE)
    for _ in range(2):
        with refused() as raised:
            sqs.list_queues()
        assert code_of(raised) == UNSIGNED
        create(broker.kafka)
    sqs.close()


def test_a_key_is_disabled_enabled_and_deleted(keyed: BrokerProcess, models: Path) -> None:
    key, other = create(keyed.kafka, "ann"), create(keyed.kafka, "ann")
    for is_enabled in (False, True):
        ask(keyed.kafka, lambda keys, wanted=is_enabled: keys.set_enabled(key.access_key, wanted))
        found = {each.access_key: each.is_enabled for each in ask(keyed.kafka, lambda keys: keys.all("ann"))}
        assert found == {key.access_key: is_enabled, other.access_key: True}
        assert is_accepted(keyed.http, models, key) is is_enabled
        assert is_accepted(keyed.http, models, other)
    ask(keyed.kafka, lambda keys: keys.delete(key.access_key))
    code, said = refusal(keyed.http, models, key)
    assert (code, "The security token included in the request is invalid" in said) == (INVALID, True)
    assert is_accepted(keyed.http, models, other)
    ask(keyed.kafka, lambda keys: keys.delete_all("ann"))
    assert not is_accepted(keyed.http, models, other)


def test_the_secret_key_is_replaced(tmp_path: Path, models: Path) -> None:
    """Clients keep their access keys; brokers with the new secret key alone can use them afterwards."""
    old, new = new_secret_key(), new_secret_key()
    made: list[NewAccessKey] = []
    for number, setting in enumerate((old, f"{new},{old}", new)):
        folder = tmp_path / str(number)
        folder.mkdir()
        broker = BrokerProcess(folder, {SETTING: setting}, data_dir=tmp_path / "data").start()
        try:
            for key in made:
                assert is_accepted(broker.http, models, key)
            if number == 1:
                with pytest.raises(ServerError, match="penstock user access-key reencrypt"):
                    create(broker.kafka)
                command = [PENSTOCK, "user", "access-key", "reencrypt", "--bootstrap", broker.kafka]
                done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
                assert "all access keys are encrypted with the first key of sqs.secret.key" in done.stdout
                for key in made:
                    assert is_accepted(broker.http, models, key)
            made.append(create(broker.kafka, f"user-{number}"))
        finally:
            broker.finish()


def test_a_secret_key_that_is_lacking_is_reported(tmp_path: Path, models: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    broker = BrokerProcess(folder, {SETTING: new_secret_key()}, data_dir=tmp_path / "data").start()
    key = create(broker.kafka)
    broker.finish()
    broker = BrokerProcess(tmp_path, {SETTING: new_secret_key()}, data_dir=tmp_path / "data").start()
    try:
        with pytest.raises(ServerError, match=f"1 access keys, such as {key.access_key}, cannot be decrypted"):
            ask(broker.kafka, lambda keys: keys.reencrypt())
        assert refusal(broker.http, models, key)[0] == INVALID
    finally:
        broker.finish()


def test_keys_end_with_their_user(keyed: BrokerProcess, models: Path) -> None:
    async def set_password() -> None:
        async with KafkaClient(keyed.kafka) as client:
            mechanism = ScramMechanism.SHA_256
            await Users(client).set_password("bob", [SaltedPassword.of("b" * 8, mechanism, ITERATIONS)])

    async def delete(name: str) -> None:
        async with KafkaClient(keyed.kafka) as client:
            await Users(client).delete(name)

    uvloop.run(set_password())
    both, only = create(keyed.kafka, "bob"), create(keyed.kafka, "only keys")
    for key, user in ((both, "bob"), (only, "only keys")):
        assert is_accepted(keyed.http, models, key)
        uvloop.run(delete(user))
        assert not is_accepted(keyed.http, models, key)
        assert ask(keyed.kafka, lambda keys, user=user: keys.all(user)) == []
        with pytest.raises(ServerError):
            uvloop.run(delete(user))
    again = create(keyed.kafka, "bob")
    assert is_accepted(keyed.http, models, again)
    assert not is_accepted(keyed.http, models, both)
    uvloop.run(delete("bob"))


def test_a_key_may_do_what_it_was_created_for(keyed: BrokerProcess, models: Path, name: str) -> None:
    account = "111122223333"
    admin = create(keyed.kafka, "carl", owner=account)
    sender = create(keyed.kafka, "carl", owner=account, actions=["SendMessage", "GetQueueUrl"], queues=["shop-*"])
    stranger = create(keyed.kafka, "dora")
    with client_of(keyed.http, models, admin) as sqs:
        shop = sqs.create_queue(QueueName=f"shop-{name}")["QueueUrl"]
        bank = sqs.create_queue(QueueName=f"bank-{name}")["QueueUrl"]
        assert shop.endswith(f"/{account}/shop-{name}")
    with client_of(keyed.http, models, sender) as sqs:
        sqs.send_message(QueueUrl=shop, MessageBody="x")
        for work in (
            lambda: sqs.send_message(QueueUrl=bank, MessageBody="x"),
            lambda: sqs.receive_message(QueueUrl=shop),
        ):
            with refused() as raised:
                work()
            assert code_of(raised) == "AccessDenied"
    with client_of(keyed.http, models, stranger) as sqs:
        assert shop not in sqs.list_queues().get("QueueUrls", [])
        with refused():
            sqs.send_message(QueueUrl=shop, MessageBody="x")
    for user in ("carl", "dora"):
        ask(keyed.kafka, lambda keys, user=user: keys.delete_all(user))


def test_keys_outlast_a_restart(own_broker: Callable[..., BrokerProcess], models: Path) -> None:
    broker = own_broker(settings={SETTING: new_secret_key()})
    key, disabled = create(broker.kafka), create(broker.kafka)
    ask(broker.kafka, lambda keys: keys.set_enabled(disabled.access_key, False))
    broker.stop()
    broker.start()
    assert is_accepted(broker.http, models, key)
    assert not is_accepted(broker.http, models, disabled)
    stored = b"".join(file.read_bytes() for file in broker.data_dir.rglob("*") if file.is_file())
    assert key.access_key.encode() in stored
    assert key.secret.encode() not in stored
    assert key.secret not in broker.log


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"user": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ({"owner": "payments"}, ErrorCode.INVALID_REQUEST, "expected 12 digits"),
        ({"owner": "\u0661" * 12}, ErrorCode.INVALID_REQUEST, "expected 12 digits"),
        ({"queues": [""]}, ErrorCode.INVALID_REQUEST, "queues has the pattern ''"),
        ({"actions": ["Send\n"]}, ErrorCode.INVALID_REQUEST, "actions has the pattern"),
        ({"subjects": ["x" * 100] * 50}, ErrorCode.INVALID_REQUEST, "subjects has patterns of 5000 characters"),
        ({"actions": ["x" * 500], "queues": ["x" * 1500]}, ErrorCode.INVALID_REQUEST, "give it fewer patterns"),
    ],
)
def test_mistakes_are_explained(keyed: BrokerProcess, given: dict[str, Any], code: ErrorCode, said: str) -> None:
    with pytest.raises(ServerError, match=said) as raised:
        create(keyed.kafka, **{"user": "eve", **given})
    assert raised.value.code == code
    assert ask(keyed.kafka, lambda keys: keys.all("eve")) == []


def test_the_number_of_keys_of_a_user_is_limited(keyed: BrokerProcess) -> None:
    made = [create(keyed.kafka, "many").access_key for _ in range(KEYS_PER_USER_MAX)]
    assert [key.access_key for key in ask(keyed.kafka, lambda keys: keys.all("many"))] == made
    with pytest.raises(ServerError, match="user 'many' has 10 access keys, which is the limit") as raised:
        create(keyed.kafka, "many")
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    ask(keyed.kafka, lambda keys: keys.delete_all("many"))


def test_many_keys_are_created_at_once_and_listed(own_broker: Callable[..., BrokerProcess], models: Path) -> None:
    """More than one time slice lists."""
    broker = own_broker(settings={SETTING: new_secret_key()})

    async def create_many() -> list[NewAccessKey]:
        async with KafkaClient(broker.kafka) as client:
            keys = AccessKeys(client)
            return await asyncio.gather(*(keys.create(f"user-{number:04}") for number in range(MANY)))

    made = uvloop.run(create_many())
    listed = ask(broker.kafka, AccessKeys.all)
    assert [(key.user, key.access_key) for key in listed] == [
        (f"user-{number:04}", key.access_key) for number, key in enumerate(made)
    ]
    for key in (made[0], made[-1]):
        assert is_accepted(broker.http, models, key)


def test_unknown_keys_are_not_found(keyed: BrokerProcess) -> None:
    for work in (
        lambda keys: keys.delete("AKIAMISSING"),
        lambda keys: keys.set_enabled("AKIAMISSING", True),
        lambda keys: keys.delete_all("missing"),
    ):
        with pytest.raises(ServerError) as raised:
            ask(keyed.kafka, work)
        assert raised.value.code == ErrorCode.RESOURCE_NOT_FOUND


def test_without_a_secret_key_no_keys_are_created_and_requests_need_no_signature(
    own_broker: Callable[..., BrokerProcess], models: Path
) -> None:
    broker = own_broker()
    with pytest.raises(ServerError, match=r"no sqs\.secret\.key.*`penstock security key FILE` makes one") as raised:
        create(broker.kafka)
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    sqs = sqs_client(broker.http, "json", models, signature_version=NO_SIGNATURE)
    sqs.list_queues()
    sqs.close()


def test_a_broker_without_the_secret_key_stays_closed(tmp_path: Path, models: Path) -> None:
    """As soon as there are keys in the store, and until it stops: also when the last one is deleted."""
    broker = BrokerProcess(tmp_path, {SETTING: new_secret_key()}).start()
    key = create(broker.kafka)
    broker.stop()
    config = tmp_path / "penstock.toml"
    config.write_text("\n".join(line for line in config.read_text().splitlines() if SETTING not in line) + "\n")
    broker.start()
    assert f"access_keys_are_unusable keys={key.access_key} count=1" in broker.log
    assert "sqs.secret.key is not set" in broker.log
    code, said = refusal(broker.http, models, key)
    assert code == INVALID
    assert f"access key {key.access_key} cannot be used at this broker, whose sqs.secret.key is not set" in said
    (listed,) = ask(broker.kafka, AccessKeys.all)
    assert (listed.is_enabled, listed.is_usable) == (True, False)
    ask(broker.kafka, lambda keys: keys.delete(key.access_key))
    sqs = sqs_client(broker.http, "json", models, signature_version=NO_SIGNATURE)
    with refused() as raised:
        sqs.list_queues()
    assert code_of(raised) == UNSIGNED
    broker.stop()
    broker.start()
    sqs.list_queues()
    sqs.close()
    broker.finish()


def own_address() -> str:
    """Returns an address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(sock.getsockname()[0])


def test_a_secret_is_sent_over_a_network_only_with_tls(tmp_path: Path) -> None:
    host = own_address()
    made = Certificates(tmp_path / "certificates")
    listeners = {"PLAIN": "PLAINTEXT", "TLS": "SSL"}
    at = {name: f"{host}:{free_port()}" for name in listeners}
    settings = {
        SETTING: new_secret_key(),
        "ssl.keystore.location": str(made.issue("server", (host,))),
        "listeners": ",".join(f"{name}://{address}" for name, address in at.items()),
    }
    broker = BrokerProcess(tmp_path, settings, listeners=listeners).start()
    with pytest.raises(ServerError, match="sent only over TLS or to the broker's machine") as raised:
        create(at["PLAIN"])
    assert raised.value.code == ErrorCode.SECURITY_DISABLED
    assert ask(at["PLAIN"], AccessKeys.all) == []

    async def create_with_tls() -> NewAccessKey:
        connection = ConnectionSettings(security=SecuritySettings.parse(properties(made.trust)))
        async with KafkaClient(at["TLS"], settings=ClientSettings(connection=connection)) as client:
            return await AccessKeys(client).create("orders")

    key = uvloop.run(create_with_tls())
    assert [each.access_key for each in ask(at["PLAIN"], AccessKeys.all)] == [key.access_key]
    broker.finish()


@pytest.mark.parametrize("text", ["c2hvcnQ=", "not base64", "${file:/nowhere/key}"])
def test_a_wrong_secret_key_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    broker = BrokerProcess(tmp_path, {SETTING: text})
    with pytest.raises(AssertionError, match=r"sqs\.secret\.key (is not 32 bytes in base64; `penstock|refers to)"):
        broker.start()
    assert "c2hvcnQ=" not in broker.log
