"""`penstock group describe` for share groups, where a partition may have several members."""

import click

from penstock.cli.common import echo_table, plural
from penstock.client.groups import GroupDetail
from penstock.client.share_groups import ShareOffset
from penstock.foundation.ids import TopicPartition

Offsets = dict[TopicPartition, ShareOffset]


def show_share_group(detail: GroupDetail, offsets: Offsets) -> None:
    readers = {
        name: [member for member in detail.members if name in member.partitions]
        for name in sorted(offsets.keys() | {name for member in detail.members for name in member.partitions})
    }
    click.echo(
        f"{detail.group}: {detail.state}, share group, {plural(len(detail.members), 'member')}, "
        f"coordinator {detail.coordinator}\n"
    )
    if not readers:
        click.echo("The group has no partitions and no start offsets.")
        return
    rows = []
    for name, members in readers.items():
        known = offsets.get(name, ShareOffset(start=None, lag=None))
        clients = ", ".join(f"{member.client_id}@{member.host}" for member in members)
        rows.append((name.topic, name.partition, known.start, known.lag, len(members), clients or None))
    echo_table(["TOPIC", "#PARTITION", "#START", "#LEFT", "#MEMBERS", "CLIENTS"], rows)


def share_partitions(offsets: Offsets) -> list[dict[str, object]]:
    """Returns the share group's start offset and lag in each partition, as JSON objects."""
    return [
        {"topic": name.topic, "partition": name.partition, "start_offset": known.start, "lag": known.lag}
        for name, known in sorted(offsets.items())
    ]
