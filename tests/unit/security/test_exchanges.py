"""Messages of PLAIN and SCRAM that are wrong: malformed, replayed, or of a client that does not know the password."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.users import User
from penstock.foundation.scram import (
    ScramCredential,
    ScramMechanism,
    ServerFirst,
    client_proof,
    server_signature_of,
)
from penstock.security.accounts import Accounts
from penstock.security.errors import LoginFailed
from penstock.security.exchanges import PlainExchange, ScramExchange

MECHANISM = ScramMechanism.SHA_256
NAME, PASSWORD, ITERATIONS = "ann", "wonderland", 4096
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
SALTED = MECHANISM.salted_password(PASSWORD, b"salt" * 4, ITERATIONS)
USERS = {
    NAME: User(
        name=NAME,
        scram={MECHANISM: ScramCredential.from_salted_password(MECHANISM, SALTED, b"salt" * 4, ITERATIONS)},
    )
}


@pytest.fixture(scope="module")
def accounts() -> Iterator[Accounts]:
    with ThreadPoolExecutor(1) as threads:
        yield Accounts(lambda: USERS, lambda: "login secret", threads)


class Client:
    """Does what a client of SCRAM does, as far as the test lets it."""

    def __init__(self, exchange: ScramExchange, *, user: str = NAME, password: str = PASSWORD) -> None:
        self._exchange = exchange
        self._password = password
        self._bare = f"n={user},r=own-nonce"
        self._first: ServerFirst | None = None
        self.header = "n,,"

    async def begin(self) -> ServerFirst:
        self._first = ServerFirst.parse(await self._exchange.step(f"{self.header}{self._bare}".encode()))
        return self._first

    def final(self, *, nonce: str | None = None, binding: str | None = None, proof: bytes | None = None) -> bytes:
        """The last message, with some parts replaced."""
        first = self._first
        assert first is not None
        shown = b64encode((binding or self.header).encode()).decode()
        unproved = f"c={shown},r={nonce or first.nonce}"
        salted = MECHANISM.salted_password(self._password, first.salt, first.iterations)
        right = client_proof(MECHANISM, salted, f"{self._bare},{first.text},{unproved}".encode())
        return f"{unproved},p={b64encode(right if proof is None else proof).decode()}".encode()

    async def end(self, message: bytes) -> bytes:
        return await self._exchange.step(message)


def test_a_client_and_a_server_that_know_the_password_agree(accounts: Accounts) -> None:
    async def log_in() -> None:
        exchange = ScramExchange(MECHANISM, accounts)
        client = Client(exchange)
        await client.begin()
        assert server_signature_of(await client.end(client.final()))
        assert (exchange.is_done, exchange.user) == (True, NAME)

    asyncio.run(log_in())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda client: client.final(nonce="another"), "nonce differs"),
        (lambda client: client.final(nonce="own-nonce"), "nonce differs"),
        (lambda client: client.final(binding="y,,"), "channel binding differs"),
        (lambda client: client.final(proof=bytes(32)), "wrong user or password"),
        (lambda client: client.final(proof=b"short"), "wrong user or password"),
        (lambda client: client.final(proof=b""), ""),
        (lambda client: client.final()[:-12], ""),
        (lambda client: b"c=biws", ""),
        (lambda client: b"c=biws,r=x,p=%%%", ""),
        (lambda client: b"", ""),
        (lambda client: b"\xff" * 100, ""),
        (lambda client: b"n,,n=ann,r=again", ""),
        (lambda client: b"," * 10_000, ""),
    ],
)
def test_a_wrong_last_message_is_refused(accounts: Accounts, make: Callable[[Client], bytes], reason: str) -> None:
    async def log_in() -> None:
        exchange = ScramExchange(MECHANISM, accounts)
        client = Client(exchange)
        await client.begin()
        with pytest.raises(LoginFailed) as refused:
            await client.end(make(client))
        assert reason in refused.value.reason
        assert not exchange.is_done

    asyncio.run(log_in())


def test_a_message_that_was_recorded_is_of_no_use_in_another_login(accounts: Accounts) -> None:
    async def log_in() -> None:
        client = Client(ScramExchange(MECHANISM, accounts))
        await client.begin()
        recorded = client.final()
        assert await client.end(recorded)
        victim = ScramExchange(MECHANISM, accounts)
        await Client(victim).begin()
        with pytest.raises(LoginFailed, match=REFUSED) as refused:
            await victim.step(recorded)
        assert "replayed" in refused.value.reason

    asyncio.run(log_in())


@pytest.mark.parametrize(("user", "password"), [(NAME, "wrong"), ("unknown", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_look_alike(accounts: Accounts, user: str, password: str) -> None:
    async def log_in() -> None:
        client = Client(ScramExchange(MECHANISM, accounts), user=user, password=password)
        first = await client.begin()
        assert (len(first.salt), first.iterations) == (16, ITERATIONS)
        again = await Client(ScramExchange(MECHANISM, accounts), user=user).begin()
        assert again.salt == first.salt, "a made-up salt is always the same"
        with pytest.raises(LoginFailed) as refused:
            await client.end(client.final())
        assert refused.value.message == REFUSED

    asyncio.run(log_in())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=ann",
        b"n,,r=nonce,n=ann",
        b"n,,n=,r=nonce",
        b"n,,n=a=b,r=nonce",
        b"p=tls-unique,,n=ann,r=nonce",
        b"n,a=eve,n=ann,r=nonce",
        b"n,,m=unknown,n=ann,r=nonce",
        b"n,,n=ann,r=non\x00ce",
        b"n,,n=\xff\xfe,r=nonce",
        b"x" * 100_000,
    ],
)
def test_a_first_message_that_is_malformed_is_refused(accounts: Accounts, message: bytes) -> None:
    exchange = ScramExchange(MECHANISM, accounts)
    with pytest.raises(LoginFailed):
        asyncio.run(exchange.step(message))
    assert not exchange.is_done


@given(
    st.lists(st.binary(max_size=80) | st.sampled_from([b"n,,n=ann,r=nonce", b"c=biws,r=nonce,p=AAAA"]), max_size=3)
)
def test_no_message_but_the_right_one_ends_a_login(messages: list[bytes]) -> None:
    with ThreadPoolExecutor(1) as threads:
        exchange = ScramExchange(MECHANISM, Accounts(lambda: USERS, lambda: "login secret", threads))

        async def send() -> None:
            for message in messages:
                await exchange.step(message)

        with suppress(LoginFailed):
            asyncio.run(send())
        assert not exchange.is_done


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "expected 3 tokens"),
        (b"ann\0wonderland", "expected 3 tokens"),
        (b"\0ann\0wonder\0land", "expected 3 tokens"),
        (b"\0\0wonderland", "username not specified"),
        (b"\0ann\0", "password not specified"),
        (b"eve\0ann\0wonderland", "different from username"),
        (b"\0ann\0wrong", "Invalid username or password"),
        (b"\0unknown\0wonderland", "Invalid username or password"),
        (b"\0ann\0\xff", "expected 3 tokens"),
    ],
)
def test_plain_messages_that_are_refused(accounts: Accounts, message: bytes, said: str) -> None:
    exchange = PlainExchange(accounts, {})
    with pytest.raises(LoginFailed) as refused:
        asyncio.run(exchange.step(message))
    assert said in refused.value.message
    assert not exchange.is_done


@pytest.mark.parametrize("message", [b"\0ann\0wonderland", b"ann\0ann\0wonderland"])
def test_plain_messages_that_are_accepted(accounts: Accounts, message: bytes) -> None:
    exchange = PlainExchange(accounts, {})
    assert asyncio.run(exchange.step(message)) == b""
    assert (exchange.is_done, exchange.user) == (True, NAME)
