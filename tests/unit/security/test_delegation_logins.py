"""Logins with delegation tokens: what is derived, what is remembered, and what a client without the token learns."""

import hmac
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from penstock.coordination.store import StoreUnavailable
from penstock.foundation.codes import ErrorCode
from penstock.foundation.scram import ScramMechanism, ServerFirst, client_proof, server_signature_of
from penstock.security import delegation_logins
from penstock.security.accounts import Accounts
from penstock.security.delegation_logins import DelegationLogins, TokenNotLookedUp
from penstock.security.errors import LoginFailed
from penstock.security.exchanges import ScramExchange

TOKEN, UNKNOWN = "token-id-of-22-letters", "another_id_of_22_signs"
SHA_256, SHA_512 = ScramMechanism
KEY = b"secret"


@dataclass
class FoundToken:
    user: str
    expires_ms: int


class TokenTable:
    """The delegation tokens of a cluster."""

    def __init__(self) -> None:
        self.is_enabled = True
        self.is_reachable = True
        self.found: dict[str, FoundToken] = {TOKEN: FoundToken("ann", 5_000)}
        self.derived = 0

    def hmac(self, token_id: str) -> bytes:
        self.derived += 1
        return hmac.digest(KEY, token_id.encode(), "sha512")

    async def current(self, token_id: str) -> FoundToken | None:
        if not self.is_reachable:
            raise StoreUnavailable("down")
        return self.found.get(token_id)


class Lab:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.tokens = TokenTable()
        self.logins = DelegationLogins(self.tokens, threads)
        self.accounts = Accounts(dict, lambda: "login secret", threads)

    def exchange(self, mechanism: ScramMechanism = SHA_256) -> ScramExchange:
        return ScramExchange(mechanism, self.accounts, self.logins)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with ThreadPoolExecutor(1) as threads:
        yield Lab(threads)


def password_of(token_id: str) -> str:
    return b64encode(hmac.digest(KEY, token_id.encode(), "sha512")).decode()


async def begin(exchange: ScramExchange, token_id: str, extension: str = "tokenauth=true") -> tuple[str, ServerFirst]:
    bare = f"n={token_id},r=nonce,{extension}"
    return bare, ServerFirst.parse(await exchange.step(f"n,,{bare}".encode()))


async def log_in(exchange: ScramExchange, token_id: str, password: str, mechanism: ScramMechanism = SHA_256) -> None:
    """Does what a client does. Raises LoginFailed."""
    bare, first = await begin(exchange, token_id)
    salted = mechanism.salted_password(password, first.salt, first.iterations)
    unproved = f"c={b64encode(b'n,,').decode()},r={first.nonce}"
    auth_message = f"{bare},{first.text},{unproved}".encode()
    proof = b64encode(client_proof(mechanism, salted, auth_message)).decode()
    signature = server_signature_of(await exchange.step(f"{unproved},p={proof}".encode()))
    assert signature == mechanism.hmac(mechanism.hmac(salted, b"Server Key"), auth_message)


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_the_bearer_of_a_token_logs_in_as_its_owner(lab: Lab, mechanism: ScramMechanism) -> None:
    exchange = lab.exchange(mechanism)
    await log_in(exchange, TOKEN, password_of(TOKEN), mechanism)
    assert (exchange.is_done, exchange.user, exchange.token_id, exchange.expires_s) == (True, "ann", TOKEN, 5.0)


@pytest.mark.parametrize("extension", ["tokenauth=false", "tokenauth=truer", "other=true"])
async def test_without_the_extension_the_id_is_the_name_of_a_user(lab: Lab, extension: str) -> None:
    exchange = lab.exchange()
    await begin(exchange, TOKEN, extension)
    assert (exchange.user, exchange.token_id, lab.tokens.derived) == (TOKEN, "", 0)


@pytest.mark.parametrize("token_id", [UNKNOWN, TOKEN])
async def test_a_wrong_password_tells_nothing(lab: Lab, token_id: str) -> None:
    """Salts, iterations and refusals of an id do not depend on whether there is a token, and are always the same."""
    salts = set()
    for _ in range(2):
        _, first = await begin(lab.exchange(), token_id)
        salts.add((first.salt, first.iterations))
        with pytest.raises(LoginFailed, match="due to invalid credentials") as caught:
            await log_in(lab.exchange(), token_id, "wrong")
        assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(salts) == 1


async def test_a_token_that_was_removed_is_refused(lab: Lab) -> None:
    exchange = lab.exchange()
    with pytest.raises(LoginFailed) as caught:
        await log_in(exchange, UNKNOWN, password_of(UNKNOWN))
    assert caught.value.reason == "the delegation token has expired"
    assert not exchange.is_done


async def test_ids_that_cannot_be_are_refused_without_work(lab: Lab) -> None:
    for token_id in ("x", "x" * 23, "x" * 1000, "ü" * 22):
        with pytest.raises(LoginFailed):
            await log_in(lab.exchange(), token_id, "x")
    assert lab.tokens.derived == 0


async def test_only_proven_credentials_are_remembered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_logins, "CREDENTIALS_MAX", 1)
    for _ in range(2):
        with pytest.raises(LoginFailed):
            await log_in(lab.exchange(), TOKEN, "wrong")
    assert lab.tokens.derived == 2
    for _ in range(3):
        await log_in(lab.exchange(), TOKEN, password_of(TOKEN))
    assert lab.tokens.derived == 3
    await log_in(lab.exchange(SHA_512), TOKEN, password_of(TOKEN), SHA_512)
    assert lab.tokens.derived == 4
    await log_in(lab.exchange(), TOKEN, password_of(TOKEN))  # the other one took its place
    assert lab.tokens.derived == 5


async def test_a_client_tries_again_if_the_token_cannot_be_looked_up(lab: Lab) -> None:
    lab.tokens.is_reachable = False
    with pytest.raises(TokenNotLookedUp) as caught:
        await log_in(lab.exchange(), TOKEN, password_of(TOKEN))
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_broker_without_the_secret_refuses_tokens(lab: Lab) -> None:
    exchange = ScramExchange(SHA_256, lab.accounts)
    with pytest.raises(LoginFailed) as caught:
        await begin(exchange, TOKEN)
    assert caught.value.reason == "delegation tokens are disabled: delegation.token.secret.key is not set"
    assert "disabled" not in caught.value.message
