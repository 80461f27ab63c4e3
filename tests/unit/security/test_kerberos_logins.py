"""Keys that brokers cannot use, tickets that come too late, and realms of hosts: with a real KDC, and no broker."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client.errors import LoginRefused
from penstock.client.kerberos import KerberosLogin
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.kerberos_settings import KerberosKey, TicketSource
from penstock.security.errors import LoginFailed
from penstock.security.kerberos_logins import KerberosLogins
from tests.kdc import OTHER_REALM, REALM, SERVICE, Kdc, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
HOST = SERVICE.partition("/")[2]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kerberos") / "kdc") as kdc:
        yield kdc


@pytest.fixture(autouse=True)
def environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def logins_of(kdc: Kdc, threads: ThreadPoolExecutor, principal: str = SERVICE, *rules: str) -> KerberosLogins:
    key = KerberosKey(principal=principal, keytab=str(kdc.keytab(SERVICE)), rules=rules or ("DEFAULT",))
    return KerberosLogins(key, threads)


def client_of(kdc: Kdc, name: str = "orders", host: str = HOST, realm: str = REALM) -> KerberosLogin:
    keytab = str(kdc.keytab(name, realm=realm))
    return KerberosLogin(
        TicketSource(service="kafka", principal=f"{name}@{realm}", keytab=keytab), host, "the broker"
    )


def test_client_and_server_log_in(kdc: Kdc, threads: ThreadPoolExecutor) -> None:
    async def log_in() -> str:
        client, server = client_of(kdc), logins_of(kdc, threads).exchange()
        answer = await server.step(await client.start())
        assert answer
        answer = await server.step(await client.check_server(answer))
        assert answer
        assert await server.step(await client.choose_layer(answer)) is None
        assert server.is_done
        return server.user

    assert asyncio.run(log_in()) == "orders"


def test_the_user_of_a_broker_is_that_of_its_own_rules(kdc: Kdc, threads: ThreadPoolExecutor) -> None:
    assert logins_of(kdc, threads).user == "kafka"
    assert logins_of(kdc, threads, f"{SERVICE}@{REALM}", "RULE:[2:$1-$2]").user == f"kafka-{HOST}"
    assert logins_of(kdc, threads, SERVICE, "RULE:[1:$1]").user is None


@pytest.mark.parametrize(
    ("principal", "keytab", "said"),
    [
        ("kafka/elsewhere", "", "the key of kafka/elsewhere in .* cannot be used: .*`klist -k "),
        (SERVICE, "/no/such.keytab", "/no/such.keytab cannot be used: "),
        (f"{SERVICE}@{OTHER_REALM}", "", "cannot be used: "),
        ("kafka@a@b", "", "cannot be used: "),
    ],
)
def test_a_broker_without_its_key_does_not_start(
    kdc: Kdc, threads: ThreadPoolExecutor, principal: str, keytab: str, said: str
) -> None:
    key = KerberosKey(principal=principal, keytab=keytab or str(kdc.keytab(SERVICE)), rules=("DEFAULT",))
    with pytest.raises(InvalidConfig, match=said):
        KerberosLogins(key, threads)


def test_rules_that_are_wrong_stop_a_broker(kdc: Kdc, threads: ThreadPoolExecutor) -> None:
    with pytest.raises(InvalidConfig, match="has 'RULE:x'"):
        logins_of(kdc, threads, SERVICE, "RULE:x")


def test_a_ticket_that_comes_too_late_is_refused(
    kdc: Kdc, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker who has recorded it could send it later."""
    logins, strict = logins_of(kdc, threads), kdc.krb5_conf("strict.conf", "clockskew = 1")

    async def wait() -> str:
        token = await client_of(kdc).start()
        await asyncio.sleep(2.5)  # the time is what is checked
        monkeypatch.setenv("KRB5_CONFIG", str(strict))
        with pytest.raises(LoginFailed) as caught:
            await logins.exchange().step(token)
        return caught.value.reason

    assert asyncio.run(wait()) == "Clock skew too great"


def test_the_name_of_a_broker_is_not_looked_up_in_dns(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be localhost, and there is no kafka/localhost."""
    file = kdc.krb5_conf("dns.conf")
    text = file.read_text()
    for name in ("dns_canonicalize_hostname", "rdns"):
        assert f"\n{name} = false\n" in text
        text = text.replace(f"\n{name} = false", f"\n{name} = true")
    file.write_text(text)
    monkeypatch.setenv("KRB5_CONFIG", str(file))
    assert asyncio.run(client_of(kdc).start())


def test_the_realm_of_a_broker_is_that_of_its_host_in_krb5_conf(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kdc.krb5_conf("realms.conf")
    monkeypatch.setenv("KRB5_CONFIG", str(file))
    with pytest.raises(LoginRefused, match=r"no ticket for kafka/queue-1.shop.test: .* not found"):
        asyncio.run(client_of(kdc, host="Queue-1.shop.test").start())
    file.write_text(f"{file.read_text()}[domain_realm]\n.shop.test = {OTHER_REALM}\n")
    with pytest.raises(LoginRefused, match=OTHER_REALM):
        asyncio.run(client_of(kdc, host="queue-1.shop.test").start())
    kdc.keytab("kafka/queue-1.shop.test", realm=OTHER_REALM)
    assert asyncio.run(client_of(kdc, "ann", "queue-1.shop.test", OTHER_REALM).start())


def test_a_server_that_sends_anything_else_is_not_trusted(kdc: Kdc, tmp_path: Path) -> None:
    async def answer(token: bytes) -> bytes:
        client = client_of(kdc)
        await client.start()
        return await client.check_server(token)

    for token in (b"", b"garbage", b"\x60\x00", bytes(1000)):
        with pytest.raises(LoginRefused, match="the broker cannot be trusted: "):
            asyncio.run(answer(token))
