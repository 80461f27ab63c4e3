"""Security settings of clients, and the properties files that hold them."""

from pathlib import Path

import pytest

from penstock.client.security import SecuritySettings, librdkafka_options
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import parse_properties, read_properties
from penstock.foundation.sasl_settings import SaslSettings
from tests.certificates import Certificates, properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=b\nc:d\ne f\n", {"a": "b", "c": "d", "e": "f"}),
        ("  a = b c  \r\n", {"a": "b c  "}),
        ("# a=b\n! c=d\n\n  # e=f\n", {}),
        ("a=b#c!d=e", {"a": "b#c!d=e"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\\n   c\\\n  d\ne=f", {"a": "bcd", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b=c\\u00e9\\n\\t\\x", {"a=b": "cé\n\tx"}),
        ("a", {"a": ""}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*missing.properties: no such file"):
        read_properties(tmp_path / "missing.properties")
    bad = tmp_path / "bad.properties"
    bad.write_bytes(b"\xff")
    with pytest.raises(InvalidConfig, match="is not UTF-8 text"):
        read_properties(bad)
    with pytest.raises(InvalidConfig, match="four hexadecimal digits"):
        parse_properties("a=\\u12")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism, one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "NTLM"}, "it is NTLM"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "set sasl.username and sasl.password, or"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "a.ScramLoginModule required;",
            },
            "has the login module ScramLoginModule; PLAIN needs PlainLoginModule",
        ),
        ({"security.protocol": "SSL", "ssl.trust.location": "x"}, "ssl.trust.location is not a setting of clients"),
        ({"ssl.client.auth": "required"}, "ssl.client.auth is not a setting of clients"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"}, "cannot read /no/such.pem"),
    ],
)
def test_mistakes_are_refused_with_advice(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SecuritySettings.parse(given)
    assert said in str(caught.value)


def test_other_properties_of_kafka_clients_are_ignored() -> None:
    found = SecuritySettings.parse({"client.id": "orders", "acks": "all"})
    assert found.context is None


def test_a_client_checks_the_host_unless_told_not_to(tmp_path: Path) -> None:
    trust = Certificates(tmp_path).trust
    for algorithm, checks in (("https", True), ("", False)):
        given = properties(trust, ssl_endpoint_identification_algorithm=algorithm)
        context = SecuritySettings.parse(given).context
        assert context is not None
        assert context.check_hostname is checks


def test_the_same_properties_by_the_names_of_librdkafka() -> None:
    assert librdkafka_options(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "client.pem",
            "ssl.key.password": "x",
            "ssl.endpoint.identification.algorithm": "",
            "acks": "all",
        }
    ) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "client.pem",
        "ssl.key.location": "client.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "none",
    }


BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
JAVA_MODULE = "a.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"OAUTHBEARER needs {TOKEN_URL}, https://… or file:///…; it is not set"),
        ({TOKEN_URL: "http://id.test/token"}, "it is http://id.test/token"),
        ({TOKEN_URL: "https://id.test/token"}, "needs sasl.oauthbearer.client.credentials.client.id and"),
        (
            {TOKEN_URL: "https://id.test/token", "sasl.jaas.config": f'{JAVA_MODULE} clientId="orders";'},
            "needs sasl.oauthbearer.client.credentials.client.id and",
        ),
        ({TOKEN_URL: "https://id.test/token", "sasl.jaas.config": "nonsense"}, "sasl.jaas.config is not valid"),
    ],
)
def test_mistakes_about_tokens_are_refused_with_advice(given: dict[str, str], said: str) -> None:
    for parse in (SecuritySettings.parse, librdkafka_options):
        with pytest.raises(InvalidConfig) as caught:
            parse({**BEARER, **given})
        assert said in str(caught.value)


@pytest.mark.parametrize(
    "credentials",
    [
        {
            "sasl.oauthbearer.client.credentials.client.id": "orders",
            "sasl.oauthbearer.client.credentials.client.secret": "x",
            "sasl.oauthbearer.scope": "read",
            "https.ca.location": "ca.pem",
        },
        {
            "sasl.oauthbearer.client.id": "orders",
            "sasl.oauthbearer.client.secret": "x",
            "sasl.oauthbearer.scope": "read",
            "https.ca.location": "ca.pem",
        },
        {
            "sasl.jaas.config": f'{JAVA_MODULE} clientId="orders" clientSecret="x" scope="read" '
            'ssl.truststore.location="ca.pem" extension_pool="7";'
        },
    ],
    ids=["Kafka 4.1", "librdkafka", "older Java clients"],
)
def test_the_source_of_tokens_by_all_names_that_clients_have_for_it(credentials: dict[str, str]) -> None:
    given = {**BEARER, TOKEN_URL: "https://id.test/token", **credentials}
    login = SecuritySettings.parse(given).login
    assert login is not None
    source = login.tokens
    assert source is not None
    assert (source.client_id, source.client_secret, source.scope) == ("orders", "x", "read")
    assert source.authorities == "ca.pem"
    assert "client_secret" not in repr(source)
    options = librdkafka_options(given)
    assert options.pop("sasl.oauthbearer.extensions", "pool=7") == "pool=7"
    assert options == {
        **BEARER,
        "sasl.oauthbearer.method": "oidc",
        TOKEN_URL: "https://id.test/token",
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "x",
        "sasl.oauthbearer.scope": "read",
        "https.ca.location": "ca.pem",
    }


def test_confluent_kafka_cannot_read_tokens_from_files() -> None:
    given = {**BEARER, TOKEN_URL: "file:///run/token"}
    assert SecuritySettings.parse(given).login is not None
    with pytest.raises(InvalidConfig, match=r"confluent-kafka reads tokens from https://… only"):
        librdkafka_options(given)


RULES = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.issuer": "https://id.test",
    "sasl.oauthbearer.expected.audience": "penstock, other",
}


def test_rules_of_tokens_may_differ_between_listeners() -> None:
    own = "listener.name.b.oauthbearer.sasl.oauthbearer."
    given = {**RULES, f"{own}expected.audience": "b", f"{own}algorithms": "ES256"}
    first, second = SaslSettings.parse(given, "A").tokens, SaslSettings.parse(given, "B").tokens
    assert first is not None
    assert second is not None
    assert (first.audiences, second.audiences) == (("penstock", "other"), ("b",))
    assert second.algorithms == ("ES256",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience is not set"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "sasl.oauthbearer.expected.issuer is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "sasl.oauthbearer.jwks.endpoint.url is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://id.test/keys"}, "expected https://… or file:///…"),
        ({"sasl.oauthbearer.algorithms": "HS256"}, "expected a list of at least 1 of RS256"),
        ({"sasl.oauthbearer.algorithms": "none"}, "expected a list of at least 1 of RS256"),
        (
            {"sasl.server.callback.handler.class": "com.example.Own"},
            "sasl.server.callback.handler.class='com.ex",
        ),
        (
            {"listener.name.a.oauthbearer.sasl.jaas.config": f'{JAVA_MODULE} unsecuredLoginStringClaim_sub="admin";'},
            "tokens without a signature are never accepted",
        ),
    ],
)
def test_brokers_do_not_start_with_rules_that_accept_too_much(change: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SaslSettings.parse({**RULES, **change}, "A")
    assert said in str(caught.value)


# -- delegation tokens (KIP-48)

TOKEN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'a.ScramLoginModule required username="id" password="hmac" tokenauth="TRUE";',
}


def test_a_login_with_a_delegation_token_is_that_of_java() -> None:
    login = SecuritySettings.parse(TOKEN).login
    assert login is not None
    assert (login.username, login.password, login.has_token) == ("id", "hmac", True)
    for other in ("false", "yes"):
        jaas = TOKEN["sasl.jaas.config"].replace("TRUE", other)
        login = SecuritySettings.parse({**TOKEN, "sasl.jaas.config": jaas}).login
        assert login is not None
        assert not login.has_token


def test_confluent_kafka_cannot_log_in_with_a_delegation_token() -> None:
    with pytest.raises(InvalidConfig, match="confluent-kafka cannot log in with delegation tokens; log in as a user"):
        librdkafka_options(TOKEN)
