"""Clients that create delegation tokens, log in with them, and renew and expire them."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from penstock.client.address import parse_bootstrap
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.security import SecuritySettings
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribedToken,
    DescribedTokenOwner,
)
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

SECRET = "the secret of all brokers"
ADMIN = "admin"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
Asked = tuple[ErrorCode, int]
"""The error code of an answer, and the expiry time in it."""


def settings_of(users: Iterable[str], **more: object) -> dict[str, object]:
    """Returns the settings of a broker with these users and delegation tokens."""
    passwords = " ".join(f'user_{name}="{name}"' for name in (ADMIN, *users))
    login = f'{PLAIN_MODULE} username="{ADMIN}" password="{ADMIN}" {passwords};'
    return {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
        "listener.name.sasl.plain.sasl.jaas.config": login,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "delegation.token.secret.key": SECRET,
        "group.initial.rebalance.delay.ms": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def properties(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
    }


def token_properties(token_id: str, password: str, mechanism: str = MECHANISMS[0]) -> dict[str, str]:
    """Returns the properties of a client that logs in with a token, as for a Java client."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM_MODULE} username="{token_id}" password="{password}" tokenauth="true";',
    }


@asynccontextmanager
async def connected(at: str, given: dict[str, str]) -> AsyncIterator[Connection]:
    settings = ConnectionSettings(security=SecuritySettings.parse(given))
    connection = await open_connection(parse_bootstrap(at)[0], settings)
    try:
        yield connection
    finally:
        await connection.close()


def split(principal: str) -> dict[str, Any]:
    kind, _, name = principal.partition(":")
    return {"principal_type": kind, "principal_name": name}


async def create(
    connection: Connection, *renewers: str, owner: str | None = None, lifetime_ms: int = -1
) -> CreateDelegationTokenResponse:
    of = {} if owner is None else {f"owner_{name}": text for name, text in split(owner).items()}
    answer: CreateDelegationTokenResponse = await connection.request(
        CreateDelegationTokenRequest(
            renewers=[CreatableRenewer(**split(each)) for each in renewers], max_lifetime_ms=lifetime_ms, **of
        )
    )
    return answer


async def renew(connection: Connection, hmac: bytes, period_ms: int = -1) -> Asked:
    answer = await connection.request(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    return ErrorCode(answer.error_code), answer.expiry_timestamp_ms


async def expire(connection: Connection, hmac: bytes, period_ms: int = -1) -> Asked:
    answer = await connection.request(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
    return ErrorCode(answer.error_code), answer.expiry_timestamp_ms


async def describe(connection: Connection, *owners: str) -> dict[str, DescribedToken]:
    """Returns the tokens that a client may describe, by id."""
    wanted = [DescribedTokenOwner(**split(each)) for each in owners] if owners else None
    answer = await connection.request(DescribeDelegationTokenRequest(owners=wanted))
    assert answer.error_code == ErrorCode.NONE, answer
    return {each.token_id: each for each in answer.tokens}


async def brokers_of(connection: Connection) -> int:
    answer: MetadataResponse = await connection.request(MetadataRequest(topics=[]))
    return len(answer.brokers)
