"""Mapping rules from subjects of certificates to principals (KIP-371)."""

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.security.certificate_principal import distinguished_name, principal_mapper

SUBJECT = (
    (("countryName", "US"),),
    (("organizationName", "Unknown"),),
    (("organizationalUnitName", "ServiceUsers"),),
    (("commonName", "ServiceUser"),),
)
NAME = "CN=ServiceUser,OU=ServiceUsers,O=Unknown,C=US"
# The examples of Kafka's documentation.
KAFKA = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


def subject(text: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    names = {
        "CN": "commonName",
        "OU": "organizationalUnitName",
        "O": "organizationName",
        "L": "localityName",
        "ST": "stateOrProvinceName",
        "C": "countryName",
    }
    parts = [part.split("=") for part in text.split(",")]
    return tuple(((names[name], value),) for name, value in reversed(parts))


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("", NAME, f"User:{NAME}"),
        ("DEFAULT", NAME, f"User:{NAME}"),
        (KAFKA, NAME, "User:ServiceUser"),
        (KAFKA, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "User:adminuser@admin"),
        (KAFKA, "CN=Orders.Shop,O=Shop", "User:orders.shop"),
        (KAFKA, "OU=No name", "User:OU=No name"),
        ("RULE:^CN=(.*?),.*$/$1/U", NAME, "User:SERVICEUSER"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", NAME, "User:serviceuser"),
        ("RULE:^CN=(.*?),.*$/$1-$7/", NAME, "User:ServiceUser-$7"),
        (r"RULE:^CN=(.*?),.*$/a\/\$1\\$1/", NAME, r"User:a/$1\ServiceUser"),
        ("RULE:^CN=Other$/x/", NAME, None),
        # The whole name must match.
        ("RULE:CN=ServiceUser/x/,DEFAULT", NAME, f"User:{NAME}"),
    ],
)
def test_rules_map_a_subject_to_a_principal(rules: str, name: str, principal: str | None) -> None:
    assert principal_mapper(rules)({"subject": subject(name)}) == principal


@pytest.mark.parametrize("certificate", [None, {}])
def test_a_client_without_a_certificate_is_anonymous(certificate: dict[str, object] | None) -> None:
    assert principal_mapper("RULE:^x$/y/")(certificate) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a,b+c"d\\e<f>g;h', 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        ("#1", "CN=\\#1"),
        (" x ", "CN=\\ x\\ "),
        (" ", "CN=\\ "),
        ("ü", "CN=ü"),
    ],
)
def test_special_characters_of_a_name_are_escaped(value: str, text: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == text


def test_a_part_of_several_attributes_and_an_attribute_without_a_short_name() -> None:
    parts = ((("commonName", "a"), ("userId", "b")), (("emailAddress", "x@y"),))
    assert distinguished_name(parts) == "emailAddress=x@y,CN=a+UID=b"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("RULE:^CN=/", "expected DEFAULT or RULE:PATTERN/REPLACEMENT/"),
        ("DEFAULT RULE:a/b/", "has 'DEFAULT RULE:a/b/'; expected"),
        ("RULE:a/b/X", "has 'RULE:a/b/X'; expected"),
        ("RULE:(a/b/", "which is not valid"),
        ("default", "has 'default'"),
    ],
)
def test_wrong_rules_are_refused(rules: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        principal_mapper(rules)
    assert said in str(caught.value)


def test_a_rule_takes_linear_time() -> None:
    name = "CN=" + "a" * 20_000 + "!"
    assert principal_mapper("RULE:^CN=(a+)+$/x/,DEFAULT")({"subject": subject(name)}) == f"User:{name}"
