"""The rules of Kafka's StandardAuthorizer."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.acls import IMPLIED_BY, Acl, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.security.authorizer import Acls, Authorizer

ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ANN, HOST = "User:ann", "10.1.2.3"
Row = tuple[Permission, Operation, PatternType, str]


def acls_of(rows: Sequence[Row], principal: str = ANN, host: str = "*") -> Acls:
    found: dict[Pattern, tuple[Acl, ...]] = {}
    for permission, operation, pattern_type, name in rows:
        pattern = Pattern(TOPIC, pattern_type, name)
        found[pattern] = (*found.get(pattern, ()), Acl(principal, host, operation, permission))
    return found


def authorizer(rows: Sequence[Row], **how: bool) -> Authorizer:
    acls = acls_of(rows)
    return Authorizer(lambda: acls, ["User:admin"], **how)


LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    ("rows", "operation", "name", "expected"),
    [
        ([], READ, "orders", False),
        ([(ALLOW, READ, LITERAL, "orders")], READ, "orders", True),
        ([(ALLOW, READ, LITERAL, "orders")], WRITE, "orders", False),
        ([(ALLOW, READ, LITERAL, "orders")], READ, "orders-2", False),
        ([(ALLOW, READ, PREFIXED, "orders")], READ, "orders-2", True),
        ([(ALLOW, READ, PREFIXED, "orders")], READ, "order", False),
        ([(ALLOW, READ, LITERAL, "*")], READ, "anything", True),
        ([(ALLOW, ALL, LITERAL, "orders")], WRITE, "orders", True),
        ([(ALLOW, WRITE, LITERAL, "orders")], DESCRIBE, "orders", True),
        ([(ALLOW, DESCRIBE, LITERAL, "orders")], READ, "orders", False),
        ([(ALLOW, Operation.ALTER_CONFIGS, LITERAL, "orders")], Operation.DESCRIBE_CONFIGS, "orders", True),
        ([(ALLOW, ALL, LITERAL, "*"), (DENY, READ, LITERAL, "orders")], READ, "orders", False),
        ([(ALLOW, ALL, LITERAL, "*"), (DENY, READ, LITERAL, "orders")], WRITE, "orders", True),
        # What is denied is not denied by implication.
        ([(ALLOW, ALL, LITERAL, "*"), (DENY, READ, LITERAL, "orders")], DESCRIBE, "orders", True),
        ([(ALLOW, READ, LITERAL, "orders"), (DENY, ALL, PREFIXED, "ord")], READ, "orders", False),
    ],
)
def test_rules(rows: list[Row], operation: Operation, name: str, expected: bool) -> None:
    assert authorizer(rows).allows(ANN, HOST, operation, TOPIC, name) is expected


def test_super_users_may_do_everything() -> None:
    assert authorizer([(DENY, ALL, LITERAL, "*")]).allows("User:admin", HOST, WRITE, TOPIC, "orders")


@pytest.mark.parametrize(("name", "expected"), [("free", True), ("orders", False), ("orders-2", True)])
def test_resources_without_acls_may_be_open(name: str, expected: bool) -> None:
    open_if_none = authorizer([(ALLOW, WRITE, LITERAL, "orders")], allow_if_none=True)
    assert open_if_none.allows("User:bob", HOST, READ, TOPIC, name) is expected


@pytest.mark.parametrize(
    ("rule", "host", "expected"),
    [
        ("*", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False),
        ("10.1.2.3", "/10.1.2.3", True),
        ("fd00::/8", "/fd00::1", True),
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("fd00::/8", "fd00::1", True),
        ("fd00::/8", "10.0.0.1", False),
        ("FD00:0::1", "fd00::1", True),
        ("10.0.0.0/8", "??", False),
    ],
)
def test_hosts(rule: str, host: str, expected: bool) -> None:
    acls = acls_of([(ALLOW, READ, LITERAL, "orders")], host=rule)
    assert Authorizer(lambda: acls).allows(ANN, host, READ, TOPIC, "orders") is expected


def test_rules_for_all_users() -> None:
    acls = acls_of([(ALLOW, READ, LITERAL, "orders")], principal="User:*")
    assert Authorizer(lambda: acls).allows("User:ANONYMOUS", HOST, READ, TOPIC, "orders")


def test_a_change_of_acls_is_seen_at_once() -> None:
    now: list[Acls] = [acls_of([])]
    authorizer = Authorizer(lambda: now[0])
    assert not authorizer.allows(ANN, HOST, READ, TOPIC, "orders-1")
    assert not authorizer.allows_any(ANN, HOST, READ, TOPIC)
    now[0] = acls_of([(ALLOW, READ, PREFIXED, "orders")])
    assert authorizer.allows(ANN, HOST, READ, TOPIC, "orders-1")
    assert authorizer.allows_any(ANN, HOST, READ, TOPIC)
    now[0] = acls_of([])
    assert not authorizer.allows(ANN, HOST, READ, TOPIC, "orders-1")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], False),
        ([(ALLOW, WRITE, LITERAL, "orders")], True),
        ([(ALLOW, READ, LITERAL, "orders")], False),
        ([(ALLOW, WRITE, LITERAL, "orders"), (DENY, WRITE, LITERAL, "orders")], False),
        ([(ALLOW, WRITE, LITERAL, "orders"), (DENY, WRITE, PREFIXED, "ord")], False),
        ([(ALLOW, WRITE, LITERAL, "orders"), (DENY, WRITE, PREFIXED, "orders-")], True),
        ([(ALLOW, WRITE, PREFIXED, "ord"), (DENY, WRITE, PREFIXED, "orders")], True),
        ([(ALLOW, WRITE, LITERAL, "*"), (DENY, WRITE, PREFIXED, "orders")], True),
        ([(ALLOW, WRITE, LITERAL, "*"), (DENY, ALL, LITERAL, "*")], False),
        ([(ALLOW, WRITE, PREFIXED, "ord"), (DENY, ALL, LITERAL, "*")], False),
    ],
)
def test_any_resource_of_a_type(rows: list[Row], expected: bool) -> None:
    assert authorizer(rows).allows_any(ANN, HOST, WRITE, TOPIC) is expected
    assert not authorizer(rows).allows_any(ANN, HOST, WRITE, GROUP)


def test_operations_are_a_bit_field() -> None:
    found = authorizer([(ALLOW, WRITE, LITERAL, "orders")]).operations(ANN, HOST, TOPIC, "orders")
    assert found == 1 << WRITE | 1 << DESCRIBE


ROWS = st.tuples(
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([ALL, READ, WRITE, DESCRIBE]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["a", "ab", "abc", "b", "*"]),
).filter(lambda row: row[2:] != (PREFIXED, "*"))


@given(
    st.lists(ROWS, max_size=6),
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from(["a", "ab", "abcd", "b", "c"]),
)
def test_decisions_are_those_of_all_rules_one_by_one(rows: list[Row], operation: Operation, name: str) -> None:
    def matches(row: Row) -> bool:
        return row[3] in (name, "*") if row[2] is LITERAL else name.startswith(row[3])

    matching = [row for row in rows if matches(row)]
    implied = {ALL, operation, *IMPLIED_BY.get(operation, ())}
    expected = any(row[0] is ALLOW and row[1] in implied for row in matching) and not any(
        row[0] is DENY and row[1] in (ALL, operation) for row in matching
    )
    assert authorizer(rows).allows(ANN, HOST, operation, TOPIC, name) is expected
