"""The client's functions for ACLs, against a real broker whose clients are super users."""

from pathlib import Path

import pytest

from penstock.client.acls import AT_ONCE, AclBinding, Acls, _binding, describe
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.foundation.acls import Acl, AclFilter, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.foundation.authorizer_settings import AUTHORIZER, STANDARD_AUTHORIZER, SUPER_USERS
from penstock.foundation.codes import ErrorCode

from .nodes import running_node

READ = Acl("User:ann", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)


def topic(name: str) -> Pattern:
    return Pattern(ResourceType.TOPIC, PatternType.LITERAL, name)


def every_acl(name: str | None = None, operation: Operation = Operation.ANY) -> AclFilter:
    """Returns a filter for the ACLs of all topics, or of one."""
    return AclFilter(
        resource_type=ResourceType.TOPIC,
        pattern_type=PatternType.ANY,
        name=name,
        principal=None,
        host=None,
        operation=operation,
        permission=Permission.ANY,
    )


async def test_acls_are_created_found_and_deleted_with_an_error_for_each(tmp_path: Path) -> None:
    settings = {AUTHORIZER: STANDARD_AUTHORIZER, SUPER_USERS: "User:ANONYMOUS"}
    async with running_node(tmp_path, settings=settings) as node, KafkaClient(str(node.listen)) as client:
        acls = Acls(client)
        good = [AclBinding(topic("a"), READ), AclBinding(topic("a"), WRITE), AclBinding(topic("b"), READ)]
        bad = AclBinding(topic("b"), READ._replace(principal="ann"))
        failures = await acls.create([good[0], bad, *good[1:]])
        assert list(failures) == [bad]
        assert failures[bad].code is ErrorCode.INVALID_REQUEST
        assert "expected User:NAME" in str(failures[bad])
        assert await acls.find(every_acl()) == good
        assert await acls.find(every_acl("b")) == good[2:]

        wrong = every_acl(operation=99)  # type: ignore[arg-type]
        first, refused, last = await acls.delete([every_acl(operation=Operation.WRITE), wrong, every_acl("b")])
        assert ([first.deleted, last.deleted], first.failures, last.failures) == ([good[1:2], good[2:]], [], [])
        assert refused.deleted == ()
        assert [each.code for each in refused.failures] == [ErrorCode.INVALID_REQUEST]
        assert await acls.find(every_acl()) == good[:1]


async def test_more_acls_than_fit_in_one_request(tmp_path: Path) -> None:
    settings = {AUTHORIZER: STANDARD_AUTHORIZER, SUPER_USERS: "User:ANONYMOUS"}
    async with running_node(tmp_path, settings=settings) as node, KafkaClient(str(node.listen)) as client:
        many = [AclBinding(topic("a"), READ._replace(principal=f"User:{number:04}")) for number in range(AT_ONCE + 1)]
        many[-1] = many[-1]._replace(pattern=topic(""))
        assert list(await Acls(client).create(many)) == many[-1:]
        assert await Acls(client).find(every_acl()) == many[:-1]


async def test_without_an_authorizer_every_entry_says_what_to_set(bootstrap: str) -> None:
    async with KafkaClient(bootstrap) as client:
        acls = Acls(client)
        failures = await acls.create([AclBinding(topic("a"), READ), AclBinding(topic("b"), READ)])
        (deletion,) = await acls.delete([every_acl()])
        with pytest.raises(ServerError) as raised:
            await acls.find(every_acl())
        errors = [*failures.values(), *deletion.failures, raised.value]
        assert [each.code for each in errors] == [ErrorCode.SECURITY_DISABLED] * 4
        assert all(f"set {AUTHORIZER}={STANDARD_AUTHORIZER} and {SUPER_USERS}" in str(each) for each in errors)


def test_an_acl_of_a_newer_cluster_is_not_left_out() -> None:
    acl = ("User:ann", "*", int(Operation.READ), int(Permission.ALLOW))
    assert _binding((2, 3, "a"), acl) == AclBinding(topic("a"), READ)
    with pytest.raises(ServerError, match="an ACL for 'a' that this version does not understand"):
        _binding((99, 3, "a"), acl)


def test_an_acl_in_words() -> None:
    prefixed = Pattern(ResourceType.TOPIC, PatternType.PREFIXED, "ord")
    assert describe(AclBinding(prefixed, READ)) == "ALLOW READ on the prefixed TOPIC 'ord' for User:ann from *"
