"""`penstock acl list|add|remove`: the permissions of users for topics, groups and other resources."""

import sys
from collections.abc import Iterable, Sequence
from itertools import product

import click

from penstock.cli.acl.check import check
from penstock.cli.acl.options import (
    acl_json,
    echo_acls,
    echo_acls_to_delete,
    prefix_option,
    resource_options,
    rule_options,
    user_filter_option,
)
from penstock.cli.acl.rules import Resources, Rules, filter_of
from penstock.cli.common import cluster_options, echo_json, plural, run_client
from penstock.cli.deletion import confirm
from penstock.client.acls import AclBinding, Acls
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.foundation.acls import WILDCARD, AclFilter, Pattern, PatternType, ResourceType


@click.group()
def acl() -> None:
    """List, add and remove permissions (Kafka's ACLs): who may do what with which topics, groups and so on.

    Brokers need the setting authorizer.class.name, with the value
    org.apache.kafka.metadata.authorizer.StandardAuthorizer. Then a user may do only what an ACL allows; the users in
    super.users may do everything.

    \b
    Examples:
      penstock acl add --allow orders --producer --topic orders
      penstock acl add --allow billing --consumer --topic orders --group billing
      penstock acl list --topic orders
      penstock acl check --as orders --host 10.0.0.7 --operation write --topic orders
      penstock acl remove --user-filter orders --yes
    """


acl.add_command(check)


@acl.command(name="list")
@resource_options
@prefix_option
@click.option(
    "--all-matching",
    metavar="NAME",
    help="All ACLs that apply to a topic of this name: also those for a prefix of it, and for all topics.",
)
@user_filter_option
@cluster_options
def list_(
    resources: Resources, all_matching: str | None, users: tuple[str, ...], bootstrap: str, as_json: bool
) -> None:
    """List ACLs. With options for resources, only those with exactly these names; with --prefix, only prefixes.

    \b
    Examples:
      penstock acl list
      penstock acl list --topic orders --group billing
      penstock acl list --all-matching orders --json
      penstock acl list --user-filter orders
    """
    patterns: Sequence[Pattern | None]
    if all_matching is not None:
        if resources.names:
            raise click.UsageError("--all-matching names a topic itself; leave out the other resources")
        patterns = [Pattern(ResourceType.TOPIC, PatternType.MATCH, all_matching)]
    elif resources.prefix:
        patterns = resources.patterns()
    else:
        patterns = [each._replace(pattern_type=PatternType.ANY) for each in resources.patterns()]
    filters = [filter_of(pattern, user) for pattern, user in product(patterns or [None], users or [None])]
    found = run_client(bootstrap, lambda client: _matching(client, filters))
    echo_acls(found, as_json=as_json, nothing="No ACLs found; add one with `penstock acl add`.")


@acl.command()
@rule_options
@cluster_options
def add(rules: Rules, bootstrap: str, as_json: bool) -> None:
    """Add ACLs: each user, host, resource and operation that is given, combined. Existing ones stay as they are.

    An ACL that denies is stronger than all that allow. The permission for read, write, delete or alter includes
    describe; that for alter-configs includes describe-configs.

    \b
    Examples:
      penstock acl add --allow orders --producer --topic orders
      penstock acl add --allow orders --producer --topic orders --transactional-id orders-1
      penstock acl add --allow billing --consumer --topic orders --group billing
      penstock acl add --allow '*' --operation read --topic public- --prefix
      penstock acl add --deny billing --host 192.0.2.0/24 --topic orders
      penstock acl add --allow ops --operation alter --operation describe --cluster
    """
    bindings = rules.to_add()
    failures = run_client(bootstrap, lambda client: Acls(client).create(bindings))
    added = [each for each in bindings if each not in failures]
    if as_json:
        for each in bindings:
            error = failures.get(each)
            echo_json({**acl_json(each), "added": error is None, "error": None if error is None else str(error)})
    elif added:
        echo_acls(added)
        click.echo(f"added {plural(len(added), 'ACL')}")
    _raise_failures(failures.values())


@acl.command()
@rule_options
@user_filter_option
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def remove(rules: Rules, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Remove ACLs: all that match the options. Shows them and asks for confirmation; without a terminal, --yes is
    required. The same options as for `add` remove what it has added.

    Names are those of the ACLs: `--topic orders` removes no ACL for all topics, nor one for a prefix (see --prefix).
    Options that are not given match everything. Exits with 1 if no ACL matches.

    \b
    Examples:
      penstock acl remove --allow orders --producer --topic orders --yes
      penstock acl remove --topic public- --prefix --yes
      penstock acl remove --deny billing --yes
      penstock acl remove --user-filter ops --yes
    """
    filters = rules.to_remove()
    if not yes:
        if sys.stdin.isatty():
            echo_acls_to_delete(_found(run_client(bootstrap, lambda client: _matching(client, filters)), rules))
        confirm("Delete these ACLs?", yes)
    results = run_client(bootstrap, lambda client: Acls(client).delete(filters))
    failures = [failure for result in results for failure in result.failures]
    deleted = sorted({each for result in results for each in result.deleted})
    if as_json:
        for each in deleted:
            echo_json({**acl_json(each), "deleted": True})
    elif deleted:
        echo_acls(deleted)
        click.echo(f"deleted {plural(len(deleted), 'ACL')}")
    _raise_failures(failures)
    _found(deleted, rules)


async def _matching(client: KafkaClient, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Returns the ACLs that match any of the filters, sorted."""
    acls = Acls(client)
    return sorted({found for each in filters for found in await acls.find(each)})


def _found(bindings: list[AclBinding], rules: Rules) -> list[AclBinding]:
    """Returns the ACLs. Raises ClickException if there are none."""
    if not bindings:
        wildcards = [
            each.name for each in rules.resources.patterns() if each.name.rstrip(WILDCARD) not in ("", each.name)
        ]
        hint = f" ({wildcards[0]!r} is taken literally; see --prefix)" if wildcards else ""
        raise click.ClickException(f"no ACL matches{hint}, nothing was deleted; `penstock acl list` lists the ACLs")
    return bindings


def _raise_failures(failures: Iterable[ServerError]) -> None:
    """Raises ClickException if there are errors: with each of them once."""
    messages = dict.fromkeys(map(str, failures))
    if messages:
        raise click.ClickException("; ".join(messages))
