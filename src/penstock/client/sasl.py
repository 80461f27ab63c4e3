"""SASL logins of clients: PLAIN, SCRAM, OAUTHBEARER and GSSAPI over SaslHandshake and SaslAuthenticate requests."""

import asyncio
import hmac
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.client.address import Address
from penstock.client.errors import ConnectionFailed, LoginRefused
from penstock.client.kerberos import KerberosLogin
from penstock.client.tokens import forget, token_of
from penstock.foundation.codes import ErrorCode
from penstock.foundation.oauth_settings import TokenSource
from penstock.foundation.sasl_settings import TOKEN_AUTH, SaslLogin
from penstock.foundation.scram import (
    ScramMechanism,
    ScramMessageInvalid,
    ServerFirst,
    client_proof,
    escaped,
    mechanism_of,
    server_signature_of,
)
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ITERATIONS_MAX: Final = 1_000_000
"""Maximum number of iterations that a client computes: more may be an attack of a server."""
_NONCE_BYTES: Final = 18
_HEADER: Final = "n,,"

Request = Callable[[SaslHandshakeRequest | SaslAuthenticateRequest], Awaitable[object]]
"""A function that sends a request to the broker and returns the response."""


async def log_in(login: SaslLogin, request: Request, address: Address) -> int:
    """Authenticates on a new connection, or again on an open one. Raises LoginRefused or ConnectionFailed.

    Returns the milliseconds after which the client must authenticate again; 0 for never.
    """
    handshake = await request(SaslHandshakeRequest(mechanism=login.mechanism))
    assert isinstance(handshake, SaslHandshakeResponse)
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginRefused(
            f"{address} does not allow {login.mechanism}; set sasl.mechanism to one of "
            f"{', '.join(handshake.mechanisms)}"
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ConnectionFailed(f"{address} is a listener without SASL; set security.protocol to PLAINTEXT or SSL")
    if handshake.error_code:
        raise LoginRefused(f"{address} refused the login: {ErrorCode(handshake.error_code).name}")

    named = f" of user {login.username!r}" if login.username else ""
    if login.has_token:
        named = f" with the delegation token {login.username!r}, which may have expired"

    async def send(token: bytes) -> SaslAuthenticateResponse:
        answer = await request(SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            raise ConnectionFailed(f"{address}: {answer.error_message}")
        if answer.error_code:
            raise LoginRefused(f"{address} refused the login{named}: {answer.error_message}; check sasl.jaas.config")
        return answer

    scram = mechanism_of(login.mechanism)
    if login.tokens is not None:
        answer = await _bearer(login.tokens, send, address)
    elif login.tickets is not None:
        answer = await _kerberos(KerberosLogin(login.tickets, address.host, address), send)
    elif scram is None:
        answer = await send(f"\0{login.username}\0{login.password}".encode())
    else:
        answer = await _scram(scram, login, send, address)
    return answer.session_lifetime_ms


async def _bearer(
    source: TokenSource, send: Callable[[bytes], Awaitable[SaslAuthenticateResponse]], address: object
) -> SaslAuthenticateResponse:
    token = await token_of(source)
    extensions = "".join(f"{name}={text}\1" for name, text in source.extensions)
    answer = await send(f"{_HEADER}\1auth=Bearer {token}\1{extensions}\1".encode())
    if answer.auth_bytes:
        forget(source)
        await send(b"\1")
        raise LoginRefused(f"{address} cannot be trusted: it refused the token and then accepted it")
    return answer


async def _kerberos(
    login: KerberosLogin, send: Callable[[bytes], Awaitable[SaslAuthenticateResponse]]
) -> SaslAuthenticateResponse:
    first = await login.start()
    try:
        answer = await send(first)
    except LoginRefused:
        await login.replace_tickets()
        raise
    answer = await send(await login.check_server(answer.auth_bytes))
    return await send(await login.choose_layer(answer.auth_bytes))


async def _scram(
    mechanism: ScramMechanism,
    login: SaslLogin,
    send: Callable[[bytes], Awaitable[SaslAuthenticateResponse]],
    address: object,
) -> SaslAuthenticateResponse:
    nonce = b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
    bare = f"n={escaped(login.username)},r={nonce}" + (f",{TOKEN_AUTH}=true" if login.has_token else "")
    try:
        first = ServerFirst.parse((await send(f"{_HEADER}{bare}".encode())).auth_bytes)
        if not first.nonce.startswith(nonce) or first.nonce == nonce or not 0 < first.iterations <= ITERATIONS_MAX:
            raise ScramMessageInvalid("its nonce or its iterations are wrong")
        salted = await asyncio.to_thread(mechanism.salted_password, login.password, first.salt, first.iterations)
        unproved = f"c={b64encode(_HEADER.encode()).decode()},r={first.nonce}"
        auth_message = f"{bare},{first.text},{unproved}".encode()
        proof = b64encode(client_proof(mechanism, salted, auth_message)).decode()
        answer = await send(f"{unproved},p={proof}".encode())
        expected = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), auth_message)
        if not hmac.compare_digest(server_signature_of(answer.auth_bytes), expected):
            raise ScramMessageInvalid("it does not know the password of the user")
    except ScramMessageInvalid as error:
        raise LoginRefused(f"{address} cannot be trusted: {error}") from error
    return answer
