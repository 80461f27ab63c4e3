"""Security settings of clients, and the properties files that hold them."""

from pathlib import Path

import pytest

from penstock.client.security import SecuritySettings, librdkafka_options
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import parse_properties, read_properties
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
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "it is GSSAPI"),
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
