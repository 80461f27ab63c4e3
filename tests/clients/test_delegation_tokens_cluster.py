"""Delegation tokens in a cluster: every broker knows a token at once; the controller removes those that expire."""

from base64 import b64encode
from pathlib import Path

import pytest
import uvloop

from penstock.client.errors import LoginRefused
from penstock.foundation.codes import ErrorCode
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
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

SASL, ANN, BOB = "SASL", "ann", "bob"
ROUNDS = 10


@pytest.mark.parametrize("kind", ["etcd", pytest.param("zookeeper", marks=pytest.mark.slow)])
def test_every_broker_knows_a_token_at_once(tmp_path: Path, kind: str) -> None:
    settings = settings_of((ANN, BOB), delegation_token_expiry_check_interval_ms=200)
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners={SASL: "SASL_PLAINTEXT"}, kind=kind)
    try:
        places = [broker.at[SASL] for broker in cluster.brokers.values()]
        uvloop.run(use_tokens(places))
        wait_until(lambda: removed(cluster), "the controller removes expired tokens")
        cluster.finish()
    finally:
        cluster.kill()


def removed(cluster: ClusterProcesses) -> bool:
    """Whether all tokens that have expired were removed, by the controller only."""
    counts = [broker.log.count("expired_delegation_tokens_removed") for broker in cluster.brokers.values()]
    assert counts.count(0) >= 2, counts
    return any(counts)


async def use_tokens(places: list[str]) -> None:
    """Each step is at another broker than the one before, and at once."""
    for number in range(ROUNDS):
        first, second, third = (places[(number + step) % 3] for step in range(3))
        async with (
            connected(first, properties(ANN)) as ann,
            connected(second, properties(BOB)) as bob,
            connected(third, properties(BOB)) as other_bob,
        ):
            token = await create(ann, "User:bob")
            login = token_properties(token.token_id, b64encode(token.hmac).decode())
            for place in (second, third):
                async with connected(place, login) as client:
                    assert await brokers_of(client) == 3
            code, _ = await renew(bob, token.hmac)
            assert code == ErrorCode.NONE
            # Another token, which only a renewal at another broker may find first.
            fresh = await create(ann, "User:bob")
            assert (await renew(other_bob, fresh.hmac, 60_000))[0] == ErrorCode.NONE
            assert (await expire(bob, fresh.hmac))[0] == ErrorCode.NONE
            assert (await expire(other_bob, token.hmac, 10))[0] == ErrorCode.NONE
            assert await renew(ann, bytes(64)) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    async with connected(places[0], properties(ANN)) as ann:
        while await describe(ann):
            pass
    for place in places:
        with pytest.raises(LoginRefused):
            async with connected(place, login):
                pass
