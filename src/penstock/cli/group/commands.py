"""`penstock group list|describe|delete`: groups, their members, committed offsets and lag."""

from collections.abc import Iterable

import click

from penstock.cli.common import cluster_options, echo_json, echo_list, echo_table, plural, run_client
from penstock.cli.deletion import confirm, delete_each
from penstock.cli.group.reset import reset
from penstock.cli.group.share import share_partitions, show_share_group
from penstock.client.cluster import KafkaClient
from penstock.client.groups import CommittedOffset, GroupDetail, GroupMember, Groups
from penstock.client.offsets import When, list_offsets_once
from penstock.client.share_groups import ShareOffset
from penstock.foundation.ids import TopicPartition


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer and share groups.

    \b
    Examples:
      penstock group list
      penstock group describe billing
      penstock group reset billing --topic orders --to earliest
    """


group.add_command(reset)


@group.command(name="list")
@click.option("--state", "states", multiple=True, help="Only groups in this state (Stable, Empty, …). Repeatable.")
@click.option(
    "--type",
    "kinds",
    multiple=True,
    type=click.Choice(["classic", "consumer", "share"]),
    help="Only groups of this type. Repeatable.",
)
@cluster_options
def list_(states: tuple[str, ...], kinds: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List groups.

    \b
    Examples:
      penstock group list
      penstock group list --state Empty --json
    """
    found = run_client(bootstrap, lambda client: Groups(client).list(states, kinds))
    objects = [{"group": each.group, "state": each.state, "type": each.kind} for each in found]
    nothing = "No groups found; a group is created when a consumer joins it."
    echo_list(objects, ["GROUP", "STATE", "TYPE"], as_json=as_json, nothing=nothing)


@group.command()
@click.argument("name")
@cluster_options
def describe(name: str, bootstrap: str, as_json: bool) -> None:
    """Show the members, committed offsets and lag of a group.

    \b
    Examples:
      penstock group describe billing
      penstock group describe billing --json | jq '.partitions[].lag'
    """

    async def work(client: KafkaClient) -> tuple[GroupDetail, list[_Row], dict[TopicPartition, ShareOffset]]:
        groups = Groups(client)
        detail = await groups.describe(name)
        if detail.kind == "share":
            return detail, [], await groups.share_offsets(name)
        return detail, await _rows(client, detail, await groups.offsets(name)), {}

    detail, rows, shared = run_client(bootstrap, work)
    if as_json:
        echo_json(_as_json(detail, share_partitions(shared) if detail.kind == "share" else map(_row_json, rows)))
        return
    if detail.kind == "share":
        show_share_group(detail, shared)
        return
    assignor = f", assignor {detail.assignor}" if detail.assignor else ""
    click.echo(
        f"{name}: {detail.state}, {detail.kind} group, {plural(len(detail.members), 'member')}{assignor}, "
        f"coordinator {detail.coordinator}\n"
    )
    if rows:
        echo_table(["TOPIC", "#PARTITION", "#OFFSET", "#END", "#LAG", "MEMBER", "CLIENT", "HOST"], map(_cells, rows))
    else:
        click.echo("The group has no partitions and no committed offsets.")
    idle = [member for member in detail.members if not member.partitions]
    if idle:
        click.echo()
        echo_table(["IDLE MEMBER", "CLIENT", "HOST"], [(one.member_id, one.client_id, one.host) for one in idle])


_Row = tuple[TopicPartition, int | None, int | None, GroupMember | None]
"""A tuple: topic-partition, committed offset, log end offset, and the member that owns the partition."""


async def _rows(
    client: KafkaClient, detail: GroupDetail, committed: dict[TopicPartition, CommittedOffset]
) -> list[_Row]:
    owners = {name: member for member in detail.members for name in member.partitions}
    names = sorted(committed.keys() | owners.keys())
    ends, _ = await list_offsets_once(client, await _known(client, names), When.LATEST)
    return [
        (
            name,
            committed[name].offset if name in committed else None,
            ends[name].offset if name in ends else None,
            owners.get(name),
        )
        for name in names
    ]


async def _known(client: KafkaClient, names: list[TopicPartition]) -> list[TopicPartition]:
    """Returns the partitions whose topics still exist: committed offsets of a deleted topic are kept for a while."""
    view = await client.refresh(None)
    return [name for name in names if name.topic in view.topics]


def _lag(row: _Row) -> int | None:
    _, offset, end, _ = row
    return None if offset is None or end is None else max(0, end - offset)


def _cells(row: _Row) -> tuple[object, ...]:
    name, offset, end, owner = row
    member = (owner.instance_id or owner.member_id, owner.client_id, owner.host) if owner else (None, None, None)
    return name.topic, name.partition, offset, end, _lag(row), *member


def _row_json(row: _Row) -> dict[str, object]:
    name, offset, end, owner = row
    return {
        "topic": name.topic,
        "partition": name.partition,
        "offset": offset,
        "end_offset": end,
        "lag": _lag(row),
        "member_id": owner.member_id if owner else None,
    }


def _as_json(detail: GroupDetail, partitions: Iterable[dict[str, object]]) -> dict[str, object]:
    return {
        "group": detail.group,
        "state": detail.state,
        "type": detail.kind,
        "assignor": detail.assignor,
        "coordinator": detail.coordinator,
        "members": [_member_json(member, detail.kind) for member in detail.members],
        "partitions": list(partitions),
    }


def _member_json(member: GroupMember, kind: str) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        **({} if kind == "share" else {"instance_id": member.instance_id}),  # share groups have no static members
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [str(name) for name in member.partitions],
    }


@group.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets.

    Asks for confirmation; without a terminal, --yes is required.

    \b
    Examples:
      penstock group delete billing
      penstock group delete billing billing-test --yes
    """
    confirm(f"Delete {', '.join(names)} and the committed offsets?", yes)
    delete_each("group", names, lambda client, name: Groups(client).delete(name), bootstrap, as_json)
