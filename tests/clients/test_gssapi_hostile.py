"""GSSAPI: clients that send tokens of others, twice, too late or malformed, or choose what was not offered."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.clients.gssapi_lab import MECHANISM, NO_LAYER, REFUSED, SASL, SHORT, USER, GssapiLab, RawLogin
from tests.clients.raw import Closed
from tests.clients.waiting import wait_until
from tests.kdc import OTHER_REALM, REALM, SERVICE, gssapi, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SPNEGO = (1, 3, 6, 1, 5, 5, 2)
IAKERB = bytes.fromhex("2b0601050205")
HINTS_BYTES = 140
"""Kerberos does not protect the beginning of a token: the names of the service, and the number of its key."""
NO_KEY = "No credentials were supplied"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GssapiLab]:
    lab = GssapiLab(tmp_path_factory.mktemp("gssapi"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lab.kdc.environment.items():
            patch.setenv(name, value)
        yield lab
    lab.close()


def user(lab: GssapiLab, **options: Any) -> Any:
    return lab.context(USER, lab.keytab, **options)


def first(raw: RawLogin, token: bytes) -> Any:
    raw.begin()
    return raw.say(token)


def replayed(lab: GssapiLab, raw: RawLogin) -> Any:
    token = user(lab).step()
    with lab.raw() as other:
        assert first(other, token).error_code == ErrorCode.NONE
    return first(raw, token)


def of_another_service(lab: GssapiLab, raw: RawLogin) -> Any:
    lab.kdc.keytab("kafka/elsewhere")
    return first(raw, user(lab, service="kafka/elsewhere").step())


def of_another_realm(lab: GssapiLab, raw: RawLogin) -> Any:
    return raw.log_in(lab.context(f"ann@{OTHER_REALM}", lab.kdc.keytab("ann", realm=OTHER_REALM)))


def with_spnego(lab: GssapiLab, raw: RawLogin) -> Any:
    return first(raw, user(lab, mech=gssapi.OID.from_int_seq(SPNEGO)).step())


def with_iakerb(lab: GssapiLab, raw: RawLogin) -> Any:
    """The token asks the broker to speak to a KDC. Its mechanism's identifier has six bytes."""
    inner = b"\6\6" + IAKERB + b"\5\1" + bytes(60)
    return first(raw, b"\x60" + bytes([len(inner)]) + inner)


def with_dce_style(lab: GssapiLab, raw: RawLogin) -> Any:
    context = user(lab, flags=["mutual_authentication", "dce_style"])
    return first(raw, context.step())


def out_of_order(lab: GssapiLab, raw: RawLogin) -> Any:
    raw.establish(user(lab))
    return raw.say(user(lab).step())


def with_the_last_message_of_another_login(lab: GssapiLab, raw: RawLogin) -> Any:
    other = user(lab)
    with lab.raw() as their:
        their.establish(other)
    raw.establish(user(lab))
    raw.say(b"")
    return raw.say(other.wrap(NO_LAYER, False).message)


def choosing(choice: bytes) -> Callable[[GssapiLab, RawLogin], Any]:
    return lambda lab, raw: raw.log_in(user(lab), choice)


ATTACKS: dict[str, tuple[Callable[[GssapiLab, RawLogin], Any], str]] = {
    "nothing": (lambda lab, raw: first(raw, b""), ""),
    "garbage": (lambda lab, raw: first(raw, b"garbage"), ""),
    "a large token": (lambda lab, raw: first(raw, b"\x60" + bytes(200_000)), "more than 131,072 bytes"),
    "a replayed ticket": (replayed, "replay"),
    "a ticket for another service": (of_another_service, "Cannot decrypt ticket for kafka/elsewhere@"),
    "a ticket of another realm": (of_another_realm, f"applies to ann@{OTHER_REALM}"),
    "SPNEGO": (with_spnego, NO_KEY),
    "IAKERB": (with_iakerb, NO_KEY),
    "DCE style": (with_dce_style, "DCE"),
    "a second ticket": (out_of_order, "after the last one"),
    "a message of another login": (with_the_last_message_of_another_login, ""),
    "integrity": (choosing(b"\2\0\xff\xff"), "security layer that was not offered"),
    "privacy": (choosing(b"\4\0\xff\xff"), "security layer that was not offered"),
    "all layers": (choosing(b"\7\0\xff\xff"), "security layer that was not offered"),
    "no choice": (choosing(b"\0\0\0\0"), "security layer that was not offered"),
    "half a choice": (choosing(b"\1\0"), "security layer that was not offered"),
    "another user": (choosing(NO_LAYER + b"eve"), "act as another user"),
    "another principal": (choosing(NO_LAYER + f"eve@{REALM}".encode()), "act as another user"),
    "the principal of a service": (choosing(NO_LAYER + f"kafka@{REALM}".encode()), "act as another user"),
    "bytes for a user": (choosing(NO_LAYER + b"\xff\xfe"), "not UTF-8"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_failed_login_gets_the_same_answer_and_its_reason_is_in_the_audit_log(
    lab: GssapiLab, name: str
) -> None:
    attack, reason = ATTACKS[name]
    before = lab.failures()
    with lab.raw() as raw:
        answer = attack(lab, raw)
        assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
        assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
        assert raw.is_closed_by_the_broker()
    assert lab.failures() == before + 1
    wait_until(lambda: reason in lab.audited(), f"the reason {reason!r} is in the audit log")


def test_tokens_that_are_changed_are_refused(lab: GssapiLab, rng: random.Random) -> None:
    for _ in range(40):
        token = bytearray(user(lab).step())
        at = rng.randrange(HINTS_BYTES, len(token))
        change = rng.choice(["flip", "cut", "insert"])
        if change == "flip":
            token[at] ^= 1 << rng.randrange(8)
        elif change == "cut":
            del token[at:]
        else:
            token[at:at] = rng.randbytes(rng.randrange(1, 100))
        with lab.raw() as raw:
            answer = first(raw, bytes(token))
            assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)


@pytest.mark.parametrize("authzid", ["", USER, f"{USER}@{REALM}", "kafka@localhost", f"{SERVICE}@{REALM}"])
@pytest.mark.parametrize("encrypt", [False, True])
def test_a_client_may_name_itself_or_the_service(lab: GssapiLab, authzid: str, encrypt: bool) -> None:
    """kafka-python and aiokafka name the service. The user is that of the ticket in each case."""
    with lab.raw() as raw:
        eve = lab.context("eve", lab.eve)
        as_eve = authzid.replace(USER, "eve")
        assert raw.log_in(eve, NO_LAYER + as_eve.encode(), encrypt=encrypt).error_code == ErrorCode.NONE
        assert "User:eve has no permission" in raw.refusal()


def test_a_client_need_not_ask_for_the_proof_of_the_broker(lab: GssapiLab) -> None:
    """Without mutual authentication, the answer to the ticket is the offer of layers."""
    context = user(lab, flags=["integrity"])
    with lab.raw() as raw:
        answer = first(raw, context.step())
        assert context.unwrap(answer.auth_bytes).message == NO_LAYER
        assert raw.say(context.wrap(NO_LAYER, False).message).error_code == ErrorCode.NONE


def test_messages_without_requests_as_of_old_clients(lab: GssapiLab) -> None:
    """After SaslHandshake version 0, a frame is a message of the mechanism. The last has no answer, as in Kafka."""
    context = user(lab)
    with lab.raw() as raw:
        raw.begin(0)

        def send(token: bytes) -> None:
            raw.socket.sendall(struct.pack(">i", len(token)) + token)

        send(context.step())
        assert context.step(raw.receive_frame()) is None
        send(b"")
        assert context.unwrap(raw.receive_frame()).message == NO_LAYER
        send(context.wrap(NO_LAYER, False).message)
        assert len(raw.ask(MetadataRequest(topics=[]), 9).brokers) == 1
    with lab.raw() as raw:
        raw.begin(0)
        raw.socket.sendall(struct.pack(">i", 7) + b"garbage")
        with pytest.raises(Closed):
            raw.receive_frame()


def test_the_last_message_twice_at_once_ends_the_login_once(lab: GssapiLab) -> None:
    """On a connection with a session, requests are handled while others wait."""
    context = user(lab)
    with lab.raw(SHORT) as raw:
        assert raw.log_in(user(lab)).error_code == ErrorCode.NONE
        raw.establish(context)
        assert context.unwrap(raw.say(b"").auth_bytes).message == NO_LAYER
        last = SaslAuthenticateRequest(auth_bytes=context.wrap(NO_LAYER, False).message)
        raw.send(last, 2)
        raw.send(last, 2)
        assert raw.receive().error_code == ErrorCode.NONE
        assert raw.receive().error_code in (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE)


def test_logins_that_are_not_finished_cost_little(lab: GssapiLab) -> None:
    """Each holds a security context until its deadline."""
    contexts = 200
    with lab.raw() as raw:
        raw.establish(user(lab))
    before_kib = lab.broker.rss_anon_kib()
    held = []
    for _ in range(contexts):
        held.append(lab.raw())
        held[-1].establish(user(lab))
    assert lab.broker.rss_anon_kib() - before_kib < contexts * 64
    for raw in held:
        raw.socket.close()
    assert MECHANISM in lab.audited()
    with lab.raw(SASL) as raw:
        assert raw.log_in(user(lab)).error_code == ErrorCode.NONE
