"""`penstock acl check`: whether a user may do something, and which ACL decides it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

import click

from penstock.cli.acl.options import (
    PRINCIPAL,
    OperationType,
    ParsedType,
    acl_json,
    echo_acls,
    resource_options,
)
from penstock.cli.acl.rules import USER, Resources, check_operation, filter_of, operation_name, resource_name
from penstock.cli.common import cluster_options, echo_json, run_client
from penstock.client.acls import AclBinding, Acls
from penstock.client.cluster import KafkaClient, Target
from penstock.client.configs import Resource, describe_configs
from penstock.client.errors import check as check_code
from penstock.foundation.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.foundation.authorizer_settings import ALLOW_IF_NONE, AUTHORIZER, SUPER_USERS, AuthorizerSettings
from penstock.security.authorizer import Authorizer, decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a client wants to do."""

    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    is_allowed: bool
    reason: str
    binding: AclBinding | None = None
    """The ACL that decides, if one does."""


def _parse_host(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not the IP address of a client, such as 10.0.0.7") from None


@click.command()
@click.option("--as", "principal", required=True, metavar="USER", type=PRINCIPAL, help="User name, or TYPE:NAME.")
@click.option(
    "--host", required=True, metavar="ADDRESS", type=ParsedType(_parse_host), help="IP address of the client."
)
@click.option(
    "--operation",
    required=True,
    metavar="OPERATION",
    type=OperationType(Operation.ANY, Operation.ALL),
    help="read, write, create, delete, alter, describe, ….",
)
@resource_options
@cluster_options
@click.pass_context
def check(
    ctx: click.Context,
    principal: str,
    host: str,
    operation: Operation,
    resources: Resources,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Tell whether a user may do something, and which ACL decides it. Exits with 1 if it is denied.

    Needs the permissions for describe and describe-configs on the cluster. The resource need not exist.

    \b
    Examples:
      penstock acl check --as orders --host 10.0.0.7 --operation write --topic orders
      penstock acl check --as billing --host 10.0.0.7 --operation read --group billing --json
    """
    patterns = resources.patterns()
    if len(patterns) != 1 or patterns[0].name == WILDCARD:
        raise click.UsageError("name one resource, such as --topic orders")
    if principal == USER + WILDCARD:
        raise click.UsageError("--as names one user")
    resource_type, _, name = patterns[0]
    check_operation(resource_type, operation)
    action = Action(principal=principal, host=host, operation=operation, resource_type=resource_type, name=name)
    verdict = run_client(bootstrap, lambda client: _ask(client, action))
    if as_json:
        found = None if verdict.binding is None else acl_json(verdict.binding)
        echo_json({"allowed": verdict.is_allowed, "reason": verdict.reason, "acl": found})
    else:
        click.echo(f"{'allowed' if verdict.is_allowed else 'denied'}: {verdict.reason}")
        if verdict.binding is not None:
            echo_acls([verdict.binding])
    if not verdict.is_allowed:
        ctx.exit(1)


async def _ask(client: KafkaClient, action: Action) -> Verdict:
    acls, settings = Acls(client), await _settings(client)

    async def decide_now(action: Action) -> Verdict:
        pattern = Pattern(action.resource_type, PatternType.MATCH, action.name)
        return decide(action, await acls.find(filter_of(pattern)), settings)

    if (action.operation, action.resource_type) == (Operation.CREATE, ResourceType.TOPIC):
        in_cluster = await decide_now(replace(action, resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME))
        if in_cluster.is_allowed:
            return in_cluster  # brokers check the topic only if this is denied
    return await decide_now(action)


async def _settings(client: KafkaClient) -> AuthorizerSettings:
    """Returns the settings of the controller's authorizer. Without one, the request about ACLs fails later."""
    node_id = (await client.refresh()).controller
    (result,) = await describe_configs(
        client, Resource.BROKER, [str(node_id)], [AUTHORIZER, SUPER_USERS, ALLOW_IF_NONE], target=Target.CONTROLLER
    )
    check_code(result.error_code, f"the settings of broker {node_id}", result.error_message)
    values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return AuthorizerSettings.parse(values) or AuthorizerSettings(super_users=frozenset(), allow_if_none=False)


def decide(action: Action, bindings: Sequence[AclBinding], settings: AuthorizerSettings) -> Verdict:
    """Decides as brokers do. `bindings`: all ACLs that apply to the resource."""
    acls: dict[Pattern, tuple[Acl, ...]] = {}
    for pattern, acl in bindings:
        acls[pattern] = (*acls.get(pattern, ()), acl)
    authorizer = Authorizer(lambda: acls, settings.super_users, allow_if_none=settings.allow_if_none)
    if authorizer.is_super_user(action.principal):
        return Verdict(is_allowed=True, reason=f"{action.principal} is one of the brokers' {SUPER_USERS}")
    is_allowed = authorizer.allows(action.principal, action.host, action.operation, action.resource_type, action.name)
    permission = Permission.ALLOW if is_allowed else Permission.DENY
    for binding in bindings:
        acl = binding.acl
        if acl.permission is permission and decides(acl, action.principal, action.host, action.operation):
            return Verdict(is_allowed=is_allowed, reason="by this ACL", binding=binding)
    what = f"{action.principal} from {action.host}: {operation_name(action.operation)}"
    where = f"{resource_name(action.resource_type)} {action.name}"
    if is_allowed:
        return Verdict(is_allowed=True, reason=f"{where} has no ACL, and {ALLOW_IF_NONE} is true")
    return Verdict(is_allowed=False, reason=f"no ACL allows {what} on {where}")
