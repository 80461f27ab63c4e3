"""Tokens for OAUTHBEARER: which ones are accepted, and when the keys of the issuer are read."""

import asyncio
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.oauth_settings import TokenRules
from penstock.foundation.small_download import DownloadFailed
from penstock.security.bearer_tokens import TOKEN_CHARS_MAX, BearerTokens, CheckedToken
from penstock.security.errors import LoginFailed, TokensNotChecked
from penstock.security.exchanges import OAuthBearerExchange
from penstock.security.issuer_keys import KEYS_MAX, UNKNOWN_PAUSE_S, IssuerKeys, KeysInvalid, parse_keys
from tests.token_issuer import AUDIENCE, CLIENT, NAME, Issuer

RULES = TokenRules(
    keys_url="https://issuer.test/keys",
    authorities="",
    refresh_s=3600,
    backoff_s=0.1,
    backoff_max_s=10,
    audiences=("other", AUDIENCE),
    issuer=NAME,
    skew_s=30,
    subject_claim="sub",
    algorithms=("RS256", "ES256"),
)
ISSUER = Issuer()
STRANGER = rsa.generate_private_key(65537, 2048)
PUBLIC = ISSUER.rsa.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def keys_of(issuer: Issuer, rules: TokenRules = RULES) -> IssuerKeys:
    async def read() -> bytes:
        return issuer.key_set

    return IssuerKeys(rules, read)


def check(token: str, rules: TokenRules = RULES, issuer: Issuer = ISSUER) -> CheckedToken:
    return asyncio.run(BearerTokens(rules, keys_of(issuer, rules)).check(token))


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ISSUER.token(),
        lambda: ISSUER.token(algorithm="ES256"),
        lambda: ISSUER.token(aud=["billing", AUDIENCE]),
        lambda: ISSUER.token(headers={"kid": None}, algorithm="ES256"),
        lambda: ISSUER.token(exp=int(time.time()) - 10),
        lambda: ISSUER.token(nbf=int(time.time()) + 10, iat=int(time.time()) + 10),
    ],
    ids=["RSA", "elliptic curve", "several audiences", "no id of a key", "within the skew", "clock ahead"],
)
def test_a_good_token_proves_its_user(make: Callable[[], str]) -> None:
    token = make()
    proven = check(token)
    assert proven.user == CLIENT
    assert proven.expires_s == jwt.decode(token, options={"verify_signature": False})["exp"]


def test_another_claim_may_be_the_name() -> None:
    assert check(ISSUER.token(azp="robot"), replace(RULES, subject_claim="azp")).user == "robot"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: "", "Not enough segments"),
        (lambda: "a.b.c", "Invalid header"),
        (lambda: "." * 5, "Invalid header"),
        (lambda: "a" * (TOKEN_CHARS_MAX + 1), "more than 65,536 characters"),
        (lambda: "[" * 40_000 + ".a.b", "Invalid header"),
        (lambda: urlsafe_b64encode(b"[" * 40_000).decode() + ".a.b", ""),
        (lambda: unsigned({"alg": "none"}, ISSUER.claims()), "algorithm is not allowed"),
        (lambda: unsigned({"alg": "None", "kid": "rsa"}, ISSUER.claims()), "algorithm is not allowed"),
        (lambda: unsigned({"alg": ["RS256"]}, ISSUER.claims()), "algorithm is not allowed"),
        (lambda: unsigned({"kid": "rsa"}, ISSUER.claims()), "algorithm is not allowed"),
        (lambda: unsigned({"alg": "RS256", "kid": "rsa"}, ISSUER.claims()), "Signature verification failed"),
        (lambda: jwt.encode(ISSUER.claims(), "secret" * 10, "HS256", {"kid": "rsa"}), "algorithm is not allowed"),
        (lambda: ISSUER.token(algorithm="RS512"), "algorithm is not allowed"),
        (lambda: ISSUER.token(key=STRANGER), "Signature verification failed"),
        (lambda: ISSUER.token()[:-8] + "AAAAAAAA", "Signature verification failed"),
        (lambda: ISSUER.token(headers={"kid": "ec"}), "no such key"),
        (lambda: ISSUER.token(headers={"kid": "unknown"}), "no such key"),
        (lambda: ISSUER.token(headers={"kid": "../../etc/passwd"}), "no such key"),
        (lambda: unsigned({"alg": "RS256", "kid": 7}, ISSUER.claims()), ""),
        (lambda: unsigned({"alg": "RS256", "kid": "k" * 2000}, ISSUER.claims()), "id of its key is not valid"),
        (lambda: ISSUER.token(headers={"crit": ["exp"]}), "ritical"),
        (lambda: ISSUER.token(headers={"crit": ["b64"], "b64": False}), ""),
        (lambda: ISSUER.token(headers={"jwk": ISSUER.keys[0]}, key=STRANGER), "Signature verification failed"),
        (lambda: ISSUER.token(iss="https://issuer.test.evil"), "Invalid issuer"),
        (lambda: ISSUER.token(iss=[NAME]), "ssuer"),
        (lambda: ISSUER.token(iss=["https://evil", NAME]), "ssuer"),
        (lambda: ISSUER.token(iss="https://issuer"), "Invalid issuer"),
        (lambda: ISSUER.token(iss=None), 'missing the "iss" claim'),
        (lambda: ISSUER.token(aud=None), 'missing the "aud" claim'),
        (lambda: ISSUER.token(aud="billing"), "Audience doesn't match"),
        (lambda: ISSUER.token(aud=[]), "aud"),
        (lambda: ISSUER.token(aud={AUDIENCE: 1}), "Invalid claim format"),
        (lambda: ISSUER.token(exp=None), 'missing the "exp" claim'),
        (lambda: ISSUER.token(exp=int(time.time()) - 31), "expired"),
        (lambda: ISSUER.token(exp="tomorrow"), "must be an integer"),
        (lambda: ISSUER.token(exp=float("inf")), ""),
        (lambda: ISSUER.token(iat=None), 'missing the "iat" claim'),
        (lambda: ISSUER.token(iat=int(time.time()) + 300), "not yet valid"),
        (lambda: ISSUER.token(nbf=int(time.time()) + 300), "not yet valid"),
        (lambda: ISSUER.token(sub=None), "claim sub is not the name"),
        (lambda: ISSUER.token(sub=""), "claim sub is not the name"),
        (lambda: ISSUER.token(sub=" "), "claim sub is not the name"),
        (lambda: ISSUER.token(sub="u" * 2000), "claim sub is not the name"),
    ],
)
def test_a_bad_token_is_refused_with_the_reason_for_the_log(make: Callable[[], str], reason: str) -> None:
    with pytest.raises(LoginFailed) as refused:
        check(make())
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reason in refused.value.reason
    assert len(refused.value.reason) <= 200
    assert refused.value.message in ("the token is not valid", "the issuer has no such key")


def test_a_public_key_is_not_a_secret_to_sign_with() -> None:
    """The classic attack: HS256 with the public RSA key as the secret."""
    signed = unsigned({"alg": "HS256", "kid": "rsa"}, ISSUER.claims()).rpartition(".")[0]
    signature = urlsafe_b64encode(hmac.digest(PUBLIC, signed.encode(), "sha256")).rstrip(b"=").decode()
    token = f"{signed}.{signature}"
    with pytest.raises(LoginFailed):
        check(token, replace(RULES, algorithms=("RS256", "ES256")))


def test_short_keys_are_refused() -> None:
    weak = Issuer()
    weak.__dict__["rsa"] = rsa.generate_private_key(65537, 1024)
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        token = weak.token()
    with pytest.raises(LoginFailed) as refused:
        check(token, issuer=weak)
    assert "2048" in refused.value.reason


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: urlsafe_b64encode(data).decode() + ".e30.AAAA"))
def test_garbage_is_refused(token: str) -> None:
    with pytest.raises(LoginFailed):
        check(token)


# -- the keys


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"keys": 1}',
        b'{"keys": [1]}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        b'{"keys": [{"kty": "RSA", "use": "enc"}]}',
        json.dumps({"keys": [{"kty": "RSA"}] * (KEYS_MAX + 1)}).encode(),
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_not_a_set_of_public_keys_is_refused(content: bytes) -> None:
    with pytest.raises(KeysInvalid):
        parse_keys(content)


class Reads:
    """Answers of the URL of the keys, in order; the last one is repeated."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = list(answers)
        self.count = 0

    async def __call__(self) -> bytes:
        self.count += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if found is None:
            raise DownloadFailed("the issuer is down")
        return found


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time only advances when it is told to."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


def on_clock(work: Callable[[Callable[[float], None]], Awaitable[None]]) -> None:
    """Runs `work` on an event loop whose time only advances by the function that it gets."""
    loop = SteppedLoop()
    try:
        loop.run_until_complete(work(loop.advance))
    finally:
        loop.close()


def test_keys_are_read_once_and_again_after_their_time() -> None:
    reads = Reads(ISSUER.key_set)

    async def work(advance: Callable[[float], None]) -> None:
        tokens = BearerTokens(RULES, IssuerKeys(RULES, reads))
        await asyncio.gather(*(tokens.check(ISSUER.token()) for _ in range(5)))
        assert reads.count == 1
        advance(RULES.refresh_s)
        await tokens.check(ISSUER.token())
        await asyncio.sleep(0)
        assert reads.count == 2

    on_clock(work)


def test_a_new_key_of_the_issuer_is_found_but_unknown_ones_do_not_make_brokers_read_all_the_time() -> None:
    new = Issuer()
    reads = Reads(ISSUER.key_set, new.key_set)

    async def work(advance: Callable[[float], None]) -> None:
        keys = IssuerKeys(RULES, reads)
        tokens = BearerTokens(RULES, keys)
        await tokens.check(ISSUER.token())
        fresh = new.token(headers={"kid": "rsa"})
        with pytest.raises(LoginFailed):
            await tokens.check(fresh)  # the known key of this id is another one
        for _ in range(3):
            with pytest.raises(LoginFailed):
                await tokens.check(new.token(headers={"kid": "unknown"}))
        assert reads.count == 1
        advance(UNKNOWN_PAUSE_S)
        with pytest.raises(LoginFailed):
            await tokens.check(new.token(headers={"kid": "unknown"}))
        assert reads.count == 2
        assert (await tokens.check(fresh)).user == CLIENT

    on_clock(work)


def test_while_the_issuer_is_down_clients_are_told_to_try_again_and_known_keys_stay() -> None:
    reads = Reads(None, None, ISSUER.key_set, None)

    async def work(advance: Callable[[float], None]) -> None:
        tokens = BearerTokens(RULES, IssuerKeys(RULES, reads))
        for expected, pause_s in ((1, 0.0), (1, 0.1), (2, 0.15), (2, 0.06)):
            with pytest.raises(TokensNotChecked) as refused:
                await tokens.check(ISSUER.token())
            assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert reads.count == expected
            advance(pause_s)
        assert (await tokens.check(ISSUER.token())).user == CLIENT
        advance(RULES.refresh_s)
        for _ in range(3):
            await asyncio.sleep(0)
            assert (await tokens.check(ISSUER.token())).user == CLIENT
        assert reads.count == 4

    on_clock(work)


# -- the messages of the mechanism


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01auth=Bearer x\x01", "Invalid OAUTHBEARER client first message"),
        (b"p=tls-unique,,\x01auth=Bearer x\x01\x01", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Bearer \x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Basic x\x01\x01", "Invalid scheme"),
        (b"n,a=eve,\x01auth=Bearer {}\x01\x01", "different from username"),
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", '{"status":"invalid_token"}'),
        (b"\x01", "Invalid OAUTHBEARER client first message"),
    ],
)
def test_messages_that_are_refused(message: bytes, said: str) -> None:
    exchange = OAuthBearerExchange(BearerTokens(RULES, keys_of(ISSUER)))
    with pytest.raises(LoginFailed) as refused:
        asyncio.run(exchange.step(message.replace(b"{}", ISSUER.token().encode())))
    assert said in refused.value.message
    assert not exchange.is_done


@pytest.mark.parametrize(
    "message", [b"n,,\x01auth=Bearer {}\x01\x01", b"y,a=orders-eu,\x01a=b\x01AUTH=bearer {} \x01c=d e\x01\x01"]
)
def test_messages_that_are_accepted(message: bytes) -> None:
    exchange = OAuthBearerExchange(BearerTokens(RULES, keys_of(ISSUER)))
    assert asyncio.run(exchange.step(message.replace(b"{}", ISSUER.token().encode()))) == b""
    assert (exchange.is_done, exchange.user) == (True, CLIENT)
