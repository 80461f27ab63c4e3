"""Settings of GSSAPI, of brokers and of clients, by the names of Java clients and of librdkafka."""

import sys

import pytest

from penstock.client.security import SecuritySettings, librdkafka_options
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.gss import load_gssapi
from penstock.foundation.kerberos_settings import TicketSource
from penstock.foundation.sasl_settings import SaslSettings, inter_broker_login, listener_setting

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = f'{MODULE} useKeyTab=true storeKey=true keyTab="/k" principal="kafka/queue-1@EXAMPLE.ORG";'
BROKER = {"sasl.enabled.mechanisms": "GSSAPI", "listener.name.a.gssapi.sasl.jaas.config": KEYTAB}
CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
SERVICE = {"sasl.kerberos.service.name": "kafka"}


def test_the_key_of_a_broker_and_its_rules_may_differ_between_listeners() -> None:
    other = KEYTAB.replace("/k", "/other")
    given = {
        **BROKER,
        "listener.name.b.gssapi.sasl.jaas.config": other,
        "listener.name.b.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/L, DEFAULT",
    }
    assert all(listener_setting(name) is not None for name in given if name.startswith("listener."))
    first, second = SaslSettings.parse(given, "A").kerberos, SaslSettings.parse(given, "B").kerberos
    assert first is not None
    assert second is not None
    assert (first.keytab, first.principal, first.rules) == ("/k", "kafka/queue-1@EXAMPLE.ORG", ("DEFAULT",))
    assert (second.keytab, second.rules) == ("/other", ("RULE:[1:$1]/L", "DEFAULT"))
    assert SaslSettings.parse({}, "A").kerberos is None


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        ("", "GSSAPI needs the key of this broker; set listener.name.a.gssapi.sasl.jaas.config to 'com.sun.security"),
        (f"{MODULE};", "must have useKeyTab=true, keyTab and principal"),
        (f"{MODULE} useTicketCache=true;", "must have useKeyTab=true, keyTab and principal"),
        (f'{MODULE} useKeyTab=true keyTab="/k";', "must have useKeyTab=true, keyTab and principal"),
        (f'{MODULE} useKeyTab=false keyTab="/k" principal="p";', "must have useKeyTab=true, keyTab and principal"),
        ("a.ScramLoginModule required;", "has the login module ScramLoginModule; GSSAPI needs Krb5LoginModule"),
    ],
)
def test_a_broker_needs_a_key(jaas: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SaslSettings.parse({**BROKER, "listener.name.a.gssapi.sasl.jaas.config": jaas}, "A")
    assert said in str(caught.value)


def test_brokers_log_in_to_each_other_with_their_key() -> None:
    given = {**BROKER, **SERVICE, "sasl.mechanism.inter.broker.protocol": "GSSAPI"}
    login = inter_broker_login(given, "A")
    assert login.tickets == TicketSource(service="kafka", principal="kafka/queue-1@EXAMPLE.ORG", keytab="/k")
    with pytest.raises(InvalidConfig, match=r"GSSAPI needs sasl.kerberos.service.name"):
        inter_broker_login({**given, "sasl.kerberos.service.name": ""}, "A")
    with pytest.raises(InvalidConfig, match=r"needs the key of this broker; set listener.name.b.gssapi"):
        inter_broker_login(given, "B")


@pytest.mark.parametrize(
    ("given", "source", "librdkafka"),
    [
        (
            {"sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="/k" principal="orders@EXAMPLE.ORG";'},
            TicketSource(service="kafka", principal="orders@EXAMPLE.ORG", keytab="/k"),
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "orders@EXAMPLE.ORG"},
        ),
        (
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "orders"},
            TicketSource(service="kafka", principal="orders", keytab="/k"),
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "orders"},
        ),
        # A key is better than a ticket that kinit must renew.
        (
            {"sasl.jaas.config": f'{MODULE} useTicketCache=true useKeyTab=true keyTab="/k" principal="orders";'},
            TicketSource(service="kafka", principal="orders", keytab="/k"),
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "orders"},
        ),
        (
            {"sasl.jaas.config": f"{MODULE} useTicketCache=true;"},
            TicketSource(service="kafka"),
            {"sasl.kerberos.min.time.before.relogin": "0"},
        ),
        ({}, TicketSource(service="kafka"), {"sasl.kerberos.min.time.before.relogin": "0"}),
    ],
)
def test_the_tickets_of_a_client_by_all_names_that_clients_have(
    given: dict[str, str], source: TicketSource, librdkafka: dict[str, str]
) -> None:
    properties = {**CLIENT, **SERVICE, **given}
    login = SecuritySettings.parse(properties).login
    assert login is not None
    assert login.tickets == source
    assert librdkafka_options(properties) == {**CLIENT, **SERVICE, **librdkafka}


def test_the_service_may_be_in_the_login_module() -> None:
    jaas = f'{MODULE} useTicketCache=true serviceName="queues";'
    login = SecuritySettings.parse({**CLIENT, "sasl.jaas.config": jaas}).login
    assert login is not None
    assert login.tickets == TicketSource(service="queues")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl.kerberos.service.name": ""}, "GSSAPI needs sasl.kerberos.service.name"),
        ({"sasl.jaas.config": f"{MODULE};"}, "sasl.jaas.config has no tickets; add useKeyTab=true keyTab="),
        ({"sasl.jaas.config": f'{MODULE} useKeyTab=true keyTab="/k";'}, "which needs keyTab and principal"),
        ({"sasl.kerberos.keytab": "/k"}, "sasl.kerberos.principal is not; set it to the client of the keytab"),
        ({"sasl.jaas.config": "a.PlainLoginModule required;"}, "GSSAPI needs Krb5LoginModule"),
        ({"sasl.jaas.config": f'{MODULE} useTicketCache=true serviceName="x";'}, "differs from serviceName=x"),
    ],
)
def test_mistakes_about_tickets_are_refused_with_advice(given: dict[str, str], said: str) -> None:
    for parse in (SecuritySettings.parse, librdkafka_options):
        with pytest.raises(InvalidConfig) as caught:
            parse({**CLIENT, **SERVICE, **given})
        assert said in str(caught.value)


def test_confluent_kafka_has_the_ticket_cache_of_the_environment_only() -> None:
    jaas = f'{MODULE} useTicketCache=true ticketCache="/tickets";'
    properties = {**CLIENT, **SERVICE, "sasl.jaas.config": jaas}
    login = SecuritySettings.parse(properties).login
    assert login is not None
    assert login.tickets == TicketSource(service="kafka", cache="/tickets")
    with pytest.raises(InvalidConfig, match="remove it, and set KRB5CCNAME=/tickets"):
        librdkafka_options(properties)


def test_without_the_library_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidConfig, match=r"libkrb5-dev and gcc\), and run: pip install 'penstock\[kerberos\]'"):
        load_gssapi()
