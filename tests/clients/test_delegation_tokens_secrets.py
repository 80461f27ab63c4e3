"""What is written about delegation tokens: events of the audit log, but no secrets; and brokers without a secret."""

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.client.errors import LoginRefused
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import QUIET
from tests.clients.token_lab import (
    SECRET,
    brokers_of,
    connected,
    create,
    describe,
    expire,
    properties,
    renew,
    settings_of,
    token_properties,
)
from tests.clients.waiting import PATIENCE_S
from tests.fork_server import PENSTOCK

SASL, ANN, BOB = "SASL", "ann", "bob"
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = settings_of((ANN, BOB), audit_events="logins,changes")
    broker = BrokerProcess(tmp_path, settings, listeners={SASL: "SASL_PLAINTEXT"}).start()
    yield broker
    broker.finish()


def test_tokens_are_audited_and_their_secrets_are_written_nowhere(broker: BrokerProcess) -> None:
    at = broker.at[SASL]

    async def use() -> CreateDelegationTokenResponse:
        async with connected(at, properties(ANN)) as ann, connected(at, properties(BOB)) as bob:
            token = await create(ann)
            login = token_properties(token.token_id, b64encode(token.hmac).decode())
            async with connected(at, login) as client:
                await brokers_of(client)
            await describe(ann)
            assert (await renew(ann, token.hmac))[0] == ErrorCode.NONE
            assert (await expire(bob, token.hmac))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            assert (await expire(ann, token.hmac))[0] == ErrorCode.NONE
            with pytest.raises(LoginRefused):
                async with connected(at, login):
                    pass
            return token

    token = uvloop.run(use())
    admin = AdminClient({"bootstrap.servers": at, **properties(ANN), **QUIET})
    (config,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    secret = config.result(PATIENCE_S)["delegation.token.secret.key"]
    assert (secret.value, secret.is_sensitive, secret.is_read_only) == (None, True, True)
    broker.stop()
    command = [PENSTOCK, "audit", "--data-dir", str(broker.data_dir), "--json", "--max", "1000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    known = [
        (each["event"], each["principal"], each["operation"], each["name"])
        for each in events
        if "delegation" in each.get("operation", "")
    ]
    names = ", ".join(sorted((token.token_id, "User:ann")))
    assert known == [
        ("change", "User:ann", "create_delegation_token", names),
        ("change", "User:ann", "renew_delegation_token", names),
        ("change_failed", "User:bob", "expire_delegation_token", ""),
        ("change", "User:ann", "expire_delegation_token", names),
    ]
    logins = [(each["event"], each["principal"], each.get("reason")) for each in events if "token" in each]
    assert logins == [
        ("login", "User:ann", None),
        ("login_failed", f"User:{token.token_id}", "the delegation token has expired"),
    ]
    written = [file for file in broker.data_dir.rglob("*") if file.is_file()]
    assert any(token.token_id.encode() in file.read_bytes() for file in written)
    for secret_bytes in (token.hmac, b64encode(token.hmac), token.hmac.hex().encode(), SECRET.encode()):
        assert not [file for file in written if secret_bytes in file.read_bytes()]
        assert secret_bytes not in broker.log.encode()
    broker.start()


def test_brokers_without_a_secret_have_no_tokens(tmp_path: Path) -> None:
    settings = {**settings_of((ANN,)), "delegation.token.secret.key": ""}
    broker = BrokerProcess(tmp_path, settings, listeners={SASL: "SASL_PLAINTEXT"}).start()

    async def ask() -> None:
        async with connected(broker.at[SASL], properties(ANN)) as ann:
            made = await create(ann)
            assert (made.error_code, made.token_id, made.principal_name) == (DISABLED, "", ANN)
            assert await renew(ann, b"x") == (DISABLED, -1)
            assert await expire(ann, b"x") == (DISABLED, -1)
            described = await ann.request(DescribeDelegationTokenRequest(owners=None))
            assert described.error_code == DISABLED
        with pytest.raises(LoginRefused):
            async with connected(broker.at[SASL], token_properties("A" * 22, "x")):
                pass

    uvloop.run(ask())
    assert "reason='delegation tokens are disabled: delegation.token.secret.key is not set'" in broker.log
    broker.finish()


def test_another_secret_makes_all_tokens_invalid(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, settings_of((ANN,)), listeners={SASL: "SASL_PLAINTEXT"}).start()

    async def make() -> CreateDelegationTokenResponse:
        async with connected(broker.at[SASL], properties(ANN)) as ann:
            return await create(ann)

    async def check(token: CreateDelegationTokenResponse) -> None:
        with pytest.raises(LoginRefused):
            async with connected(broker.at[SASL], token_properties(token.token_id, b64encode(token.hmac).decode())):
                pass
        async with connected(broker.at[SASL], properties(ANN)) as ann:
            assert await renew(ann, token.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
            # By its id, the owner still finds it, and can delete it.
            again = (await describe(ann))[token.token_id]
            assert again.hmac != token.hmac
            assert (await expire(ann, again.hmac))[0] == ErrorCode.NONE

    token = uvloop.run(make())
    broker.stop()
    config = tmp_path / "penstock.toml"
    config.write_text(config.read_text().replace(SECRET, "another secret"))
    broker.start()
    uvloop.run(check(token))
    broker.finish()
