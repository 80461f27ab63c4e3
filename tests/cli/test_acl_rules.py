"""The ACLs and filters that the options of `penstock acl` stand for, and the verdicts of `penstock acl check`."""

import random

import click
import pytest
from click.testing import CliRunner

from penstock.cli.acl.check import Action, decide
from penstock.cli.acl.commands import acl as command
from penstock.cli.acl.rules import Resources, Rules, filter_of, parse_principal, user_of, user_resource
from penstock.client.acls import AclBinding
from penstock.foundation.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.foundation.authorizer_settings import AuthorizerSettings
from penstock.security.authorizer import Authorizer, decides

TOPIC = Pattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")
GROUP = Pattern(ResourceType.GROUP, PatternType.LITERAL, "billing")
NO_SUPER_USERS = AuthorizerSettings(super_users=frozenset(), allow_if_none=False)


def rules(
    *patterns: Pattern,
    allow: str | None = "User:ann",
    prefix: bool = False,
    operations: tuple[Operation, ...] = (),
    producer: bool = False,
    consumer: bool = False,
) -> Rules:
    names: dict[ResourceType, tuple[str, ...]] = {}
    for kind, _, name in patterns:
        names[kind] = (*names.get(kind, ()), name)
    return Rules(
        resources=Resources(names=names, prefix=prefix),
        permitted=[] if allow is None else [(allow, Permission.ALLOW)],
        hosts=(),
        operations=operations,
        producer=producer,
        consumer=consumer,
    )


@pytest.mark.parametrize("principal", ["User:ann", "User:*", "Group:staff", "User:a:b", "User:CN=ann,OU=sales"])
def test_a_shortened_principal_is_parsed_again(principal: str) -> None:
    assert parse_principal(user_of(principal)) == principal


def test_names_of_users_as_resources() -> None:
    assert [user_resource(text) for text in ("ann", "User:ann", "*")] == ["User:ann", "User:ann", "*"]


def test_what_add_creates_is_what_remove_deletes() -> None:
    for each in (
        rules(TOPIC, GROUP, producer=True, consumer=True),
        rules(TOPIC, prefix=True, operations=(Operation.READ, Operation.ALTER)),
        rules(TOPIC, GROUP),
    ):
        added, filters = each.to_add(), each.to_remove()
        assert added
        for pattern, acl in added:
            assert any(one.matches_pattern(pattern) and one.matches(acl) for one in filters)


def test_the_operations_of_the_roles() -> None:
    found = {(pattern, acl.operation) for pattern, acl in rules(TOPIC, GROUP, producer=True, consumer=True).to_add()}
    on_topic = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.READ)
    assert found == {*((TOPIC, each) for each in on_topic), (GROUP, Operation.READ)}


def test_the_cluster_has_no_prefix() -> None:
    cluster = Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
    assert [pattern for pattern, _ in rules(cluster, TOPIC, prefix=True).to_add()] == [
        cluster,
        TOPIC._replace(pattern_type=PatternType.PREFIXED),
    ]


def test_options_that_are_not_given_match_all_acls_to_remove() -> None:
    (only,) = rules(TOPIC, allow=None).to_remove()
    assert only == filter_of(TOPIC)
    assert (only.principal, only.host, only.operation, only.permission) == (None, None, Operation.ANY, Permission.ANY)
    (of_user,) = rules().to_remove()
    assert (of_user.resource_type, of_user.name, of_user.principal) == (ResourceType.ANY, None, "User:ann")
    assert {each.permission for each in rules(TOPIC, allow=None, producer=True).to_remove()} == {Permission.ALLOW}
    with pytest.raises(click.UsageError, match="nothing says what to remove"):
        rules(allow=None).to_remove()
    with pytest.raises(click.UsageError, match="need --topic NAME"):
        rules(producer=True).to_remove()


def _random_binding(rng: random.Random) -> AclBinding:
    name = rng.choice(["a", "ab", "abc", "b", "*"])
    pattern_type = PatternType.LITERAL if name == "*" else rng.choice([PatternType.LITERAL, PatternType.PREFIXED])
    acl = Acl(
        rng.choice(["User:ann", "User:bob", "User:*"]),
        rng.choice(["*", "*", "10.0.0.7", "10.1.0.0/16"]),
        rng.choice([Operation.ALL, *OPERATIONS_OF[ResourceType.TOPIC]]),
        rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )
    return AclBinding(Pattern(rng.choice([ResourceType.TOPIC, ResourceType.GROUP]), pattern_type, name), acl)


def test_verdicts_from_matching_acls_are_those_of_a_broker_with_all_acls() -> None:
    seed = random.randrange(2**32)
    print(f"{seed=}")  # noqa: T201
    rng = random.Random(seed)
    counts = {True: 0, False: 0}
    for _ in range(2000):
        bindings = sorted({_random_binding(rng) for _ in range(rng.randint(0, 8))})
        settings = AuthorizerSettings(
            super_users=frozenset(rng.sample(["User:bob"], rng.randint(0, 1))), allow_if_none=rng.random() < 0.2
        )
        action = Action(
            principal=rng.choice(["User:ann", "User:bob"]),
            host=rng.choice(["10.0.0.7", "10.1.2.3", "::1"]),
            operation=rng.choice(OPERATIONS_OF[ResourceType.TOPIC]),
            resource_type=ResourceType.TOPIC,
            name=rng.choice(["a", "ab", "abcd", "c"]),
        )
        acls: dict[Pattern, tuple[Acl, ...]] = {}
        for pattern, acl in bindings:
            acls[pattern] = (*acls.get(pattern, ()), acl)
        broker = Authorizer(lambda acls=acls: acls, settings.super_users, allow_if_none=settings.allow_if_none)
        expected = broker.allows(action.principal, action.host, action.operation, action.resource_type, action.name)
        wanted = filter_of(Pattern(action.resource_type, PatternType.MATCH, action.name))
        verdict = decide(action, [each for each in bindings if wanted.matches_pattern(each.pattern)], settings)
        assert verdict.is_allowed == expected
        counts[expected] += 1
        if verdict.binding is not None:
            acl = verdict.binding.acl
            assert verdict.binding in bindings
            assert (acl.permission is Permission.ALLOW) == expected
            assert decides(acl, action.principal, action.host, action.operation)
    assert min(counts.values()) > 100


def test_the_reason_of_a_verdict_without_an_acl() -> None:
    action = Action(
        principal="User:ann",
        host="10.0.0.7",
        operation=Operation.ALTER_CONFIGS,
        resource_type=ResourceType.TOPIC,
        name="orders",
    )
    denied = decide(action, [], NO_SUPER_USERS)
    assert denied.reason == "no ACL allows User:ann from 10.0.0.7: alter-configs on topic orders"
    assert not denied.is_allowed
    open_to_all = AuthorizerSettings(super_users=frozenset(), allow_if_none=True)
    assert (
        decide(action, [], open_to_all).reason
        == "topic orders has no ACL, and allow.everyone.if.no.acl.found is true"
    )


ADD = ["add", "--allow", "orders"]
CHECK = ["check", "--host", "10.0.0.7", "--operation", "read"]
MISTAKES = [
    ([*ADD, "--topic", "orders*"], "for all names that begin with 'orders', give --topic orders --prefix"),
    ([*ADD, "--topic", "*", "--prefix"], "* stands for all names already; leave out --prefix"),
    (ADD, "give --topic, --group, --transactional-id, --cluster or --user"),
    ([*ADD, "--prefix"], "--prefix is about names; give --topic NAME, for example"),
    ([*ADD, "--topic", "a", "--host", "example.org"], "names of hosts are not looked up"),
    ([*ADD, "--topic", "a", "--operation", "writ"], "'writ' is no operation; expected one of all, read, write,"),
    ([*ADD, "--group", "a", "--operation", "write"], "there is no operation write for --group; expected all, read"),
    ([*ADD, "--producer"], "--producer and --consumer need --topic NAME"),
    ([*ADD, "--consumer", "--topic", "a"], "--consumer needs --group NAME"),
    ([*ADD, "--producer", "--topic", "a", "--group", "b"], "--group has nothing to do with this role"),
    ([*ADD, "--producer", "--topic", "a", "--operation", "read"], "leave out --operation"),
    ([*ADD, "--producer", "--topic", "a", "--deny", "ann"], "leave out --operation, --deny"),
    (["add", "--topic", "a"], "give --allow USER or --deny USER"),
    (["add", "--allow", "team-*", "--topic", "a"], "name each user, or give * for all users"),
    (["add", "--allow", "user:ann", "--topic", "a"], "write User:ann"),
    (["add", "--allow", ":ann", "--topic", "a"], "':ann' is no user"),
    (["remove", "--yes"], "nothing says what to remove"),
    (["remove", "--topic", "a"], "no terminal to ask for confirmation: give --yes"),
    (["list", "--all-matching", "a", "--topic", "b"], "--all-matching names a topic itself"),
    ([*CHECK, "--as", "ann"], "name one resource"),
    ([*CHECK, "--as", "ann", "--topic", "*"], "name one resource"),
    ([*CHECK, "--as", "ann", "--topic", "a", "--topic", "b"], "name one resource"),
    ([*CHECK, "--as", "*", "--topic", "a"], "--as names one user"),
    (
        [*CHECK, "--as", "ann", "--topic", "a", "--host", "10.0.0.0/8"],
        "'10.0.0.0/8' is not the IP address of a client",
    ),
    ([*CHECK, "--as", "ann", "--topic", "a", "--operation", "all"], "'all' is no operation; expected one of read"),
]


@pytest.mark.parametrize(
    ("arguments", "advice"), MISTAKES, ids=lambda each: " ".join(each) if isinstance(each, list) else ""
)
def test_mistakes_are_refused_with_advice(arguments: list[str], advice: str) -> None:
    """None of them is sent: there is no broker at this address."""
    done = CliRunner().invoke(command, [*arguments, "--bootstrap", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert advice in done.output
