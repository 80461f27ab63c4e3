"""Kafka's rules from Kerberos principals to users."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import InvalidConfig
from penstock.security.errors import PrincipalRefused
from penstock.security.kerberos_principal import local_names

REALM = "REALM.COM"
# The examples of Kafka's tests and documentation.
APP = [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"]
CASES = [
    "RULE:[1:$1]/{}",
    "RULE:[2:$1](Test.*)s/ABC///{}",
    "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/{}",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/{}",
    "RULE:[2:$1]/{}",
    "DEFAULT",
]
LOWER, UPPER = [rule.format("L") for rule in CASES], [rule.format("U") for rule in CASES]
DOCUMENTED = [r"RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "DEFAULT"]


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "user/host@REALM.COM", "user"),
        (["DEFAULT"], "user@REALM.COM", "user"),
        (APP, "App.service-name/example.com@REALM.COM", "service-name"),
        (APP, "App.service-name@REALM.COM", "service-name"),
        (APP, "user/host@REALM.COM", "user"),
        (LOWER, "User@REALM.COM", "user"),
        (LOWER, "TestABC/host@FOO.COM", "test"),
        (LOWER, "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (LOWER, "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        (LOWER, "User/root@REALM.COM", "user"),
        (UPPER, "User@REALM.COM", "USER"),
        (UPPER, "TestABC/host@FOO.COM", "TEST"),
        (UPPER, "ABC_User_ABC/host@FOO.COM", "XYZ_USER_XYZ"),
        (UPPER, "App.SERVICE-name/example.com@REALM.COM", "SERVICE-NAME"),
        (DOCUMENTED, "alice@MYDOMAIN.COM", "alice"),
        (DOCUMENTED, "bob@REALM.COM", "bob"),
        # Those of docs/security.md.
        (["RULE:[1:$1@$0](.*@SHOP.ORG)s/@.*//L"], "Ann@SHOP.ORG", "ann"),
        (["RULE:[2:$1](app-.*)s/app-(.*)/$1/"], "app-billing/host-7@EXAMPLE.ORG", "billing"),
        (["RULE:[2:$1-$2]"], "kafka/queue-1@ANY.COM", "kafka-queue-1"),
        (["RULE:[1:hello $0]"], "eve@REALM.COM", "hello REALM.COM"),
        # Only the first match, and with g all of them.
        (["RULE:[1:$1]s/a/b/"], "banana@X", "bbnana"),
        (["RULE:[1:$1]s/a/b/g"], "banana@X", "bbnbnb"),
        # References as in Java: further digits count if there is such a group.
        (["RULE:[1:$1]s/(b)(a)/$2$1-$12$0/"], "banana@X", "ab-b2banana"),
        (["RULE:[1:$1]s/(?P<last>a)$/${last}s/"], "banana@X", "bananas"),
        ([r"RULE:[1:$1]s/b/\$\\/"], "banana@X", "$\\anana"),
        (["RULE:[1:$1]s/(x)?b/$1c/"], "banana@X", "canana"),
        # The pattern must match the whole name; the first rule that applies decides.
        (["RULE:[1:$1](ban)", "RULE:[1:$1](ban.*)s/.*/second/", "RULE:[1:$1]"], "banana@X", "second"),
    ],
)
def test_rules_map_a_principal_to_a_user(rules: list[str], principal: str, user: str) -> None:
    assert local_names(rules, REALM)(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "said"),
    [
        (
            ["DEFAULT"],
            "user@OTHER.COM",
            "no rule of sasl.kerberos.principal.to.local.rules applies to user@OTHER.COM",
        ),
        (["RULE:[2:$1]"], "user@REALM.COM", "no rule"),
        # Like in Kafka, a rule that makes no simple name refuses the client, and the rules after it are not tried.
        (["RULE:[1:$1@$0]", "DEFAULT"], "user@REALM.COM", "not a simple name"),
        (["RULE:[2:$1/$2]", "DEFAULT"], "user/host@REALM.COM", "not a simple name"),
        (["RULE:[1:$1]s/.*//"], "user@REALM.COM", "an empty name"),
        (["RULE:[3:$1]", "DEFAULT"], "a/b/c@REALM.COM", "is not NAME@REALM"),
        (["DEFAULT"], "user", "is not NAME@REALM"),
        (["DEFAULT"], "@REALM.COM", "is not NAME@REALM"),
        (["DEFAULT"], "user@REALM.COM@REALM.COM", "is not NAME@REALM"),
        # An administrator's name within a component, as Kerberos writes it.
        (["DEFAULT"], r"admin\/x@REALM.COM", "is not NAME@REALM"),
        (["DEFAULT"], r"admin\@REALM.COM@REALM.COM", "is not NAME@REALM"),
        (["DEFAULT"], "ad\tmin@REALM.COM", "is not NAME@REALM"),
        (["DEFAULT"], "x" * 2000 + "@REALM.COM", "is not NAME@REALM"),
        (["RULE:[2:$1]"], "WELLKNOWN/ANONYMOUS@REALM.COM", "the client is anonymous"),
    ],
)
def test_a_principal_that_is_no_user_is_refused(rules: list[str], principal: str, said: str) -> None:
    with pytest.raises(PrincipalRefused, match=re.escape(said)):
        local_names(rules, REALM)(principal)


def test_without_a_default_realm_the_default_rule_applies_to_no_principal() -> None:
    with pytest.raises(PrincipalRefused, match="no rule"):
        local_names(["DEFAULT"], "")("user@REALM.COM")


@pytest.mark.parametrize(
    "rule",
    [
        # Kafka's examples.
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/g",
        "rule:[1:$1]",
        "RULE:[1:$1]/L/U",
        "RULE:[1:$1]/U/L",
        "RULE:[1:$1]/LU",
        "RULE:[1:$1/L",
        "RULE:[1:$1]/l",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
        "RULE:[:$1]",
        # Those that Kafka accepts, and with which no client can log in.
        "RULE:[1:$2]",
        "RULE:[1:$a]",
        "RULE:[1:$1](*)",
        "RULE:[1:$1]s/(/x/",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$x/",
        "RULE:[1:$1]s/a/${x}/",
        "RULE:[1:$1]s/a/x\\/",
    ],
)
def test_rules_that_are_wrong_are_named(rule: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(f"sasl.kerberos.principal.to.local.rules has {rule!r}")):
        local_names(["DEFAULT", rule], REALM)


NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(NAMES, NAMES, NAMES)
def test_the_default_rule_makes_a_user_only_of_a_name_of_its_realm(name: str, host: str, realm: str) -> None:
    for principal in (f"{name}@{realm}", f"{name}/{host}@{realm}", f"{name}@{REALM}"):
        try:
            user = local_names(["DEFAULT"], REALM)(principal)
        except PrincipalRefused:
            continue
        assert principal in (f"{user}@{REALM}", f"{user}/{host}@{REALM}")
        assert user
        assert not set(user) & set("/@\\")


@given(st.text("ab$1\\{}/@[]():;LUgs.*", max_size=20))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    for rule in (text, f"RULE:[1:{text}]", f"RULE:[1:$1]({text})", f"RULE:[1:$1]s/{text}/{text}/g"):
        try:
            user = local_names([rule], REALM)("banana@REALM.COM")
        except (InvalidConfig, PrincipalRefused):
            continue
        assert user
        assert not set(user) & set("/@")


@given(st.text("ab", max_size=8), st.sampled_from(["a", "b*", "(a)(b)?", "a|b", "^a", "b$"]))
def test_replacements_are_those_of_regular_expressions(name: str, pattern: str) -> None:
    rule = local_names([f"RULE:[1:$1]s/{pattern}/[$0]/g"], REALM)
    expected = re.sub(pattern, lambda found: f"[{found[0]}]", f"x{name}")
    assert rule(f"x{name}@REALM.COM") == expected
