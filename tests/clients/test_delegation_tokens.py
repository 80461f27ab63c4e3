"""Delegation tokens (KIP-48): who may create, renew, expire and describe them, and logins with them."""

import asyncio
import hashlib
import hmac
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

import penstock
from penstock.client.connection import Connection
from penstock.client.errors import LoginRefused
from penstock.client.sasl import log_in
from penstock.client.security import SecuritySettings
from penstock.foundation.acls import Operation, PatternType, ResourceType
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.acl_lab import Rule, grant, revoke_all
from tests.clients.raw import Closed, RawClient
from tests.clients.token_lab import (
    ADMIN,
    MECHANISMS,
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

SASL, OPEN, TLS = "SASL", "OPEN", "TLS"
ANN, BOB, EVE = "ann", "bob", "eve"
SHORT_MS = 3000
DAY_MS = 86_400_000
OWNER = "User:ann"
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
EXPIRED = ErrorCode.DELEGATION_TOKEN_EXPIRED
DENIED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
OK = ErrorCode.NONE


class TokenLab:
    """A broker with an authorizer, and listeners for clients with a password, a certificate, or nothing."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder / "certificates")
        self.broker = BrokerProcess(
            folder,
            {
                **settings_of((ANN, BOB, EVE)),
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": f"User:{ADMIN}",
                "ssl.keystore.location": str(self.certificates.server()),
                "ssl.truststore.location": str(self.certificates.trust),
                "listener.name.tls.ssl.client.auth": "requested",
            },
            listeners={SASL: "SASL_PLAINTEXT", OPEN: "PLAINTEXT", TLS: "SSL"},
        ).start()
        self.at = self.broker.at

    @asynccontextmanager
    async def clients(self, *users: str) -> AsyncIterator[list[Connection]]:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(connected(self.at[SASL], properties(user))) for user in users]

    def with_token(self, token: CreateDelegationTokenResponse, mechanism: str = MECHANISMS[0]) -> Any:
        return connected(self.at[SASL], login_of(token, mechanism))


def login_of(token: CreateDelegationTokenResponse, mechanism: str = MECHANISMS[0]) -> dict[str, str]:
    return token_properties(token.token_id, b64encode(token.hmac).decode(), mechanism)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenLab]:
    lab = TokenLab(tmp_path_factory.mktemp("tokens"))
    yield lab
    lab.broker.finish()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(work())


# -- logins


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_is_a_login_as_its_owner(lab: TokenLab, mechanism: str) -> None:
    async def work() -> None:
        async with lab.clients(ANN, ADMIN) as (ann, admin):
            before_ms = time.time_ns() // 1_000_000
            token = await create(ann, "User:bob")
            assert token.error_code == OK
            assert hmac.digest(SECRET.encode(), token.token_id.encode(), hashlib.sha512) == token.hmac
            assert (token.principal_type, token.principal_name) == ("User", ANN)
            assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", ANN)
            assert before_ms <= token.issue_timestamp_ms <= time.time_ns() // 1_000_000
            assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
            assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
            async with lab.with_token(token, mechanism) as client:
                assert await brokers_of(client) == 1
                quotas = DescribeClientQuotasRequest(components=(), strict=False)
                assert (await client.request(quotas)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                await grant(admin, ANN, Rule(Operation.DESCRIBE_CONFIGS))
                assert (await client.request(quotas)).error_code == OK
            assert await revoke_all(admin, ANN) == 1

    run(work)


def test_wrong_passwords_and_ids_are_refused(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN) as (ann,):
            token = await create(ann)
        password = b64encode(token.hmac).decode()
        wrong = password.swapcase()
        never = b64encode(hmac.digest(SECRET.encode(), b"A" * 22, hashlib.sha512)).decode()
        for token_id, given in (
            (token.token_id, wrong),
            ("A" * 22, password),
            ("A" * 22, never),  # good for a token that does not exist
            (ANN, ANN),
            ("x" * 200, password),
        ):
            with pytest.raises(LoginRefused, match="due to invalid credentials with SASL mechanism SCRAM-SHA-256"):
                async with connected(lab.at[SASL], token_properties(token_id, given)):
                    pass
        # Without the extension, it is the name of a user.
        jaas = login_of(token)["sasl.jaas.config"].replace("true", "false")
        with pytest.raises(LoginRefused):
            async with connected(lab.at[SASL], {**login_of(token), "sasl.jaas.config": jaas}):
                pass

    run(work)


def test_a_client_with_a_token_may_not_use_apis_of_tokens(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN) as (ann,):
            token = await create(ann)
            async with lab.with_token(token) as client:
                await refuses_all(client, token.hmac)
            assert await expire(ann, token.hmac) != (NOT_ALLOWED, -1)

    run(work)


async def refuses_all(client: Connection, known: bytes) -> None:
    answer = await create(client)
    assert (answer.error_code, answer.token_id, answer.hmac, answer.issue_timestamp_ms) == (NOT_ALLOWED, "", b"", -1)
    assert await renew(client, known) == (NOT_ALLOWED, -1)
    assert await expire(client, known) == (NOT_ALLOWED, -1)
    described = await client.request(DescribeDelegationTokenRequest(owners=None))
    assert (described.error_code, list(described.tokens)) == (NOT_ALLOWED, [])


def test_only_clients_that_have_authenticated_may_use_apis_of_tokens(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN) as (ann,):
            token = await create(ann)
        async with connected(lab.at[OPEN], {}) as anonymous:
            await refuses_all(anonymous, token.hmac)
        trust = {"security.protocol": "SSL", "ssl.truststore.location": str(lab.certificates.trust)}
        async with connected(lab.at[TLS], trust) as anonymous:
            await refuses_all(anonymous, token.hmac)
        own = {**trust, "ssl.keystore.location": str(lab.certificates.issue("orders"))}
        async with connected(lab.at[TLS], own) as client:
            made = await create(client)
            assert (made.error_code, made.principal_type) == (OK, "User")
            async with lab.with_token(made) as with_token:
                assert await brokers_of(with_token) == 1

    run(work)


def test_a_session_ends_with_its_token(lab: TokenLab) -> None:
    """The client has to log in again (KIP-368): it can if the token was renewed."""
    host, _, port = lab.at[SASL].rpartition(":")

    async def make() -> CreateDelegationTokenResponse:
        async with lab.clients(ANN) as (ann,):
            token = await create(ann)
            assert (await expire(ann, token.hmac, SHORT_MS))[0] == OK
            return token

    async def prolong() -> None:
        async with lab.clients(ANN) as (ann,):
            assert (await renew(ann, token.hmac))[0] == OK

    token = uvloop.run(make())
    with RawClient((host, int(port))) as raw, RawClient((host, int(port))) as renewed:
        for each in (raw, renewed):
            assert 0 < log_in_raw(each, token) <= SHORT_MS
            assert len(each.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        uvloop.run(prolong())
        time.sleep(1.2 * SHORT_MS / 1000)  # the lifetime itself is what is tested
        assert SHORT_MS < log_in_raw(renewed, token) <= DAY_MS
        assert len(renewed.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        raw.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(Closed):
            raw.receive()


def log_in_raw(raw: RawClient, token: CreateDelegationTokenResponse) -> int:
    """Logs in by hand; returns the lifetime of the session."""

    async def ask(request: Any) -> Any:
        return raw.ask(request, 1 if isinstance(request, SaslHandshakeRequest) else 2)

    login = SecuritySettings.parse(login_of(token)).login
    assert login is not None
    return asyncio.run(log_in(login, ask, "the broker"))


def test_a_token_that_has_expired_is_refused(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN) as (ann,):
            token = await create(ann)
            assert (await expire(ann, token.hmac, 0))[0] == OK
            assert token.token_id in await describe(ann)  # until the controller removes it
        with pytest.raises(LoginRefused):
            async with lab.with_token(token):
                pass

    run(work)


def test_confluent_kafka_has_no_logins_with_tokens(lab: TokenLab) -> None:
    with pytest.raises(penstock.InvalidArgument, match="confluent-kafka cannot log in with delegation tokens"):
        penstock.connect(lab.at[SASL], security=token_properties("A" * 22, "x"))


# -- rights


def test_owner_and_renewers_may_renew_and_expire(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN, BOB, EVE, ADMIN) as (ann, bob, eve, admin):
            token = await create(ann, "User:bob", "User:bob")
            for other in (eve, admin):
                assert await renew(other, token.hmac) == (MISMATCH, -1)
                assert await expire(other, token.hmac) == (MISMATCH, -1)
            for allowed in (ann, bob):
                code, expires_ms = await expire(allowed, token.hmac, 60_000)
                assert code == OK
                assert expires_ms < token.expiry_timestamp_ms
                code, expires_ms = await renew(allowed, token.hmac)
                assert code == OK
                assert expires_ms >= token.expiry_timestamp_ms
            described = (await describe(ann))[token.token_id]
            assert described.expiry_timestamp == expires_ms
            assert [(each.principal_type, each.principal_name) for each in described.renewers] == [("User", BOB)]
            assert (await expire(bob, token.hmac))[0] == OK
            assert await renew(ann, token.hmac) == (NOT_FOUND, -1)
            assert await expire(ann, token.hmac) == (NOT_FOUND, -1)
            assert token.token_id not in await describe(ann)

    run(work)


def test_lifetimes_are_limited(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ANN) as (ann,):
            long = await create(ann, lifetime_ms=2**63 - 1)
            assert long.max_timestamp_ms == long.issue_timestamp_ms + 7 * DAY_MS
            code, expires_ms = await renew(ann, long.hmac, 2**63 - 1)
            assert code == OK
            assert expires_ms <= time.time_ns() // 1_000_000 + DAY_MS
            assert await expire(ann, long.hmac, 2**63 - 1) == (OK, long.max_timestamp_ms)
            short = await create(ann, lifetime_ms=60_000)
            assert short.expiry_timestamp_ms == short.max_timestamp_ms == short.issue_timestamp_ms + 60_000
            assert await renew(ann, short.hmac) == (OK, short.max_timestamp_ms)
            over = await create(ann, lifetime_ms=1)
            await asyncio.sleep(0.05)  # it lives for a millisecond
            assert await renew(ann, over.hmac) == (EXPIRED, -1)
            assert await expire(ann, over.hmac, 5) == (EXPIRED, -1)
            assert (await expire(ann, over.hmac))[0] == OK

    run(work)


def test_tokens_of_others_need_a_permission(lab: TokenLab) -> None:
    """KIP-373: the resource is the user, with its type."""

    async def work() -> None:
        async with lab.clients(ADMIN, BOB, ANN) as (admin, bob, ann):
            refused = await create(bob, owner=OWNER)
            assert (refused.error_code, refused.principal_name, refused.token_id) == (DENIED, ANN, "")
            await grant(admin, BOB, Rule(Operation.CREATE_TOKENS, ResourceType.USER, OWNER))
            made = await create(bob, owner=OWNER)
            assert (made.error_code, made.principal_name) == (OK, ANN)
            assert made.token_requester_principal_name == BOB
            assert await renew(bob, made.hmac) == (MISMATCH, -1)
            assert made.token_id not in await describe(bob)
            found = (await describe(ann))[made.token_id]
            assert (found.token_requester_principal_name, found.hmac) == (BOB, made.hmac)
            assert await revoke_all(admin, BOB) == 1
            # A client may always name itself.
            assert (await create(bob, owner="User:bob")).error_code == OK

    run(work)


def test_others_describe_tokens_by_acls(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ADMIN, ANN, BOB, EVE) as (admin, ann, bob, eve):
            one, other = await create(ann, "User:bob"), await create(ann)
            ids = {one.token_id, other.token_id}
            assert ids <= (await describe(ann)).keys()
            assert ids <= (await describe(admin)).keys()
            assert ids & (await describe(bob)).keys() == {one.token_id}
            assert ids & (await describe(eve)).keys() == set()
            for rule, visible in (
                (Rule(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, other.token_id), {other.token_id}),
                (Rule(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "*"), ids),
                (Rule(Operation.DESCRIBE_TOKENS, ResourceType.USER, OWNER), ids),
                (
                    Rule(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:a", pattern_type=PatternType.PREFIXED),
                    ids,
                ),
                (Rule(Operation.CREATE_TOKENS, ResourceType.USER, OWNER), set()),
            ):
                await grant(admin, EVE, rule)
                assert ids & (await describe(eve)).keys() == visible, rule
                await revoke_all(admin, EVE)
            # A filter finds the tokens of an owner, and those that it may renew.
            assert ids & (await describe(admin, "User:bob")).keys() == {one.token_id}
            assert ids & (await describe(admin, "User:bob", OWNER)).keys() == ids
            assert await describe(admin, "User:zoe") == {}
            nothing = await admin.request(DescribeDelegationTokenRequest(owners=[]))
            assert (nothing.error_code, list(nothing.tokens)) == (OK, [])

    run(work)


# -- bad input, restarts, secrets


def test_bad_requests_are_refused(lab: TokenLab) -> None:
    async def work() -> None:
        async with lab.clients(ADMIN, ANN) as (admin, ann):
            for principal, code in (
                ("Group:ops", ErrorCode.INVALID_PRINCIPAL_TYPE),
                (":bob", ErrorCode.INVALID_PRINCIPAL_TYPE),
                ("user:bob", ErrorCode.INVALID_PRINCIPAL_TYPE),
                ("User:", ErrorCode.INVALID_REQUEST),
                ("User:" + "x" * 4096, ErrorCode.INVALID_REQUEST),
            ):
                assert (await create(ann, principal)).error_code == code, principal
            assert (await create(admin, owner="Group:ops")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
            many = [f"User:{number}" for number in range(101)]
            assert (await create(ann, *many)).error_code == ErrorCode.INVALID_REQUEST
            for known in (b"", b"x", bytes(64), bytes(100_000)):
                assert await renew(ann, known) == (NOT_FOUND, -1)
                assert await expire(ann, known) == (NOT_FOUND, -1)

    run(work)


def test_tokens_are_kept_by_a_restart_and_removed_when_they_expire(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path,
        settings_of((ANN,), delegation_token_expiry_check_interval_ms=100),
        listeners={SASL: "SASL_PLAINTEXT"},
    ).start()

    async def make() -> CreateDelegationTokenResponse:
        async with connected(broker.at[SASL], properties(ANN)) as ann:
            return await create(ann)

    async def use(token: CreateDelegationTokenResponse) -> None:
        async with connected(broker.at[SASL], login_of(token)) as client:
            assert await brokers_of(client) == 1
        async with connected(broker.at[SASL], properties(ANN)) as ann:
            assert (await renew(ann, token.hmac, 50))[0] == OK
            deadline_s = time.monotonic() + PATIENCE_S
            while token.token_id in await describe(ann):
                assert time.monotonic() < deadline_s
            assert await renew(ann, token.hmac) == (NOT_FOUND, -1)

    token = uvloop.run(make())
    broker.stop()
    broker.start()
    uvloop.run(use(token))
    assert "expired_delegation_tokens_removed count=1" in broker.log
    broker.finish()
