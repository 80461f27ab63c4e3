"""Options of `penstock acl` that name users, resources and operations; ACLs as tables and JSON."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import click

from penstock.cli.acl.rules import (
    Permitted,
    Resources,
    Rules,
    operation_name,
    parse_principal,
    resource_name,
    user_of,
    user_resource,
)
from penstock.cli.common import Command, echo_list, echo_table
from penstock.client.acls import AclBinding
from penstock.foundation.acls import CLUSTER_NAME, Operation, Permission, ResourceType

COLUMNS: Final = ["RESOURCE", "NAME", "PATTERN", "USER", "HOST", "OPERATION", "PERMISSION"]


class OperationType(click.ParamType[Operation]):
    """An operation: `describe-configs`, or as Kafka's tools write it: `DescribeConfigs`, `DESCRIBE_CONFIGS`."""

    name = "operation"

    def __init__(self, *excluded: Operation) -> None:
        self._known = {_bare(each.name): each for each in Operation if each not in excluded}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Operation:
        found = self._known.get(_bare(str(value)))
        if found is None:
            names = ", ".join(map(operation_name, self._known.values()))
            self.fail(f"{value!r} is no operation; expected one of {names}", param, ctx)
        return found


class ParsedType(click.ParamType[str]):
    """A value that a function parses, which raises ValueError."""

    name = "name"

    def __init__(self, parse: Callable[[str], str]) -> None:
        self._parse = parse

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


PRINCIPAL: Final = ParsedType(parse_principal)


def _bare(name: str) -> str:
    return name.upper().replace("-", "").replace("_", "")


def _name_option(name: str, help: str, parse: Callable[[str], str] = str) -> Callable[[Command], Command]:
    return click.option(name, multiple=True, metavar="NAME", type=ParsedType(parse), help=f"{help} Repeatable.")


def resource_options(command: Command) -> Command:
    """Decorator that adds options for resources, passed to the command as `resources`."""

    @functools.wraps(command)
    def with_resources(
        *,
        topic: tuple[str, ...],
        group: tuple[str, ...],
        transactional_id: tuple[str, ...],
        cluster: bool,
        user: tuple[str, ...],
        prefix: bool = False,
        **options: Any,
    ) -> Any:
        names = {
            ResourceType.TOPIC: topic,
            ResourceType.GROUP: group,
            ResourceType.TRANSACTIONAL_ID: transactional_id,
            ResourceType.CLUSTER: (CLUSTER_NAME,) if cluster else (),
            ResourceType.USER: user,
        }
        given = {kind: some for kind, some in names.items() if some}
        if prefix and not given:
            raise click.UsageError("--prefix is about names; give --topic NAME, for example")
        return command(resources=Resources(names=given, prefix=prefix), **options)

    found: Any = with_resources
    for option in (
        _name_option("--user", "A user, whose delegation tokens are used.", user_resource),
        click.option("--cluster", is_flag=True, help="The cluster as a whole."),
        _name_option("--transactional-id", "A transactional id."),
        _name_option("--group", "A group."),
        _name_option("--topic", "A topic; * for all topics."),
    ):
        found = option(found)
    return cast(Command, found)


def prefix_option(command: Command) -> Command:
    """Decorator for commands with `resource_options`."""
    return click.option("--prefix", is_flag=True, help="The names are prefixes: all resources whose names begin so.")(
        command
    )


def user_filter_option(command: Command) -> Command:
    return click.option(
        "--user-filter",
        "users",
        multiple=True,
        metavar="USER",
        type=PRINCIPAL,
        help="Only ACLs for this user; * for those that name all users. Repeatable.",
    )(command)


def rule_options(command: Command) -> Command:
    """Decorator that adds options for ACLs, passed to the command as `rules`. An option `users` adds permissions of
    any kind."""

    @functools.wraps(command)
    def with_rules(
        *,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        host: tuple[str, ...],
        operation: tuple[Operation, ...],
        producer: bool,
        consumer: bool,
        resources: Resources,
        users: tuple[str, ...] = (),
        **options: Any,
    ) -> Any:
        permitted: list[Permitted] = [(each, Permission.ALLOW) for each in allow]
        permitted += [(each, Permission.DENY) for each in deny]
        permitted += [(each, Permission.ANY) for each in users]
        rules = Rules(
            resources=resources,
            permitted=permitted,
            hosts=host,
            operations=operation,
            producer=producer,
            consumer=consumer,
        )
        return command(rules=rules, **options)

    found: Any = resource_options(prefix_option(cast(Command, with_rules)))
    for option in (
        click.option("--consumer", is_flag=True, help="What a consumer needs, on --topic and --group."),
        click.option("--producer", is_flag=True, help="What a producer needs, on --topic and --transactional-id."),
        click.option(
            "--operation",
            multiple=True,
            metavar="OPERATION",
            type=OperationType(Operation.ANY),
            help="read, write, create, delete, alter, describe, …. Repeatable.  [all]",
        ),
        click.option(
            "--host",
            multiple=True,
            metavar="ADDRESS",
            help="IP address of the client, or a network such as 10.0.0.0/8. Repeatable.  [all]",
        ),
        click.option(
            "--deny", multiple=True, metavar="USER", type=PRINCIPAL, help="The same, denied: stronger than --allow."
        ),
        click.option(
            "--allow",
            multiple=True,
            metavar="USER",
            type=PRINCIPAL,
            help="User name, * for all users, or TYPE:NAME. Repeatable.",
        ),
    ):
        found = option(found)
    return cast(Command, found)


def echo_acls(bindings: Sequence[AclBinding], *, as_json: bool = False, nothing: str | None = None) -> None:
    """Prints ACLs: one JSON object per line, or a table."""
    objects = [acl_json(each) for each in bindings]
    echo_list(objects, COLUMNS, map(_row, bindings), as_json=as_json, nothing=nothing)


def echo_acls_to_delete(bindings: Iterable[AclBinding]) -> None:
    """Prints a table on standard error, where the question about it is."""
    echo_table(COLUMNS, map(_row, bindings), err=True)


def acl_json(binding: AclBinding) -> dict[str, object]:
    pattern, acl = binding
    return {
        "resource": resource_name(pattern.resource_type),
        "name": pattern.name,
        "pattern": pattern.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": operation_name(acl.operation),
        "permission": acl.permission.name.lower(),
    }


def _row(binding: AclBinding) -> list[object]:
    cells = acl_json(binding)
    cells["principal"] = user_of(binding.acl.principal)
    return list(cells.values())
