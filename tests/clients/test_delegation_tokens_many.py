"""As many delegation tokens as a user may have: the next one is refused, and all of them are usable."""

import asyncio
from base64 import b64encode
from pathlib import Path

import uvloop

from penstock.cluster.delegation_tokens import TOKENS_PER_OWNER_MAX
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients.token_lab import (
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

SASL, ANN, BOB = "SASL", "ann", "bob"


def test_a_user_has_a_limited_number_of_tokens(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, settings_of((ANN, BOB)), listeners={SASL: "SASL_PLAINTEXT"}).start()
    at = broker.at[SASL]

    async def fill() -> dict[str, bytes]:
        async with connected(at, properties(ANN)) as ann, connected(at, properties(BOB)) as bob:
            made = {}
            for _ in range(TOKENS_PER_OWNER_MAX):
                token = await create(ann)
                assert token.error_code == ErrorCode.NONE
                made[token.token_id] = token.hmac
            refused = await create(ann)
            assert (refused.error_code, refused.token_id) == (ErrorCode.POLICY_VIOLATION, "")
            assert (await create(bob)).error_code == ErrorCode.NONE
            return made

    async def use(made: dict[str, bytes]) -> None:
        async with connected(at, properties(ANN)) as ann:
            assert {each.token_id: each.hmac for each in (await describe(ann, "User:ann")).values()} == made
            (first, *_, last) = made.items()
            for token_id, password in (first, last):
                assert (await renew(ann, password))[0] == ErrorCode.NONE
                async with connected(at, token_properties(token_id, b64encode(password).decode())) as client:
                    assert await brokers_of(client) == 1
            # A token that has expired makes room for one more.
            assert (await expire(ann, first[1], 0))[0] == ErrorCode.NONE
            await asyncio.sleep(0.05)  # it expires after this millisecond
            assert (await create(ann)).error_code == ErrorCode.NONE
            assert (await create(ann)).error_code == ErrorCode.POLICY_VIOLATION
            assert first[0] not in await describe(ann)

    made = uvloop.run(fill())
    broker.kill()
    broker.start()
    uvloop.run(use(made))
    broker.finish()
