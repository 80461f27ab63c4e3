"""`penstock topic describe`: a topic's partitions, offsets, sizes and settings."""

import click

from penstock.cli.common import cluster_options, echo_json, echo_table, format_bytes, plural, run_client
from penstock.client.admin import Admin, ConfigEntry, ConfigSource, DescribedPartition
from penstock.client.cluster import KafkaClient
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.foundation.ids import uuid_text


@click.command()
@click.argument("name")
@click.option("--all-configs", is_flag=True, help="Include settings that have their default.")
@cluster_options
def describe(name: str, all_configs: bool, bootstrap: str, as_json: bool) -> None:
    """Show a topic's partitions and settings. Only settings that differ from their defaults are shown.

    \b
    Examples:
      penstock topic describe orders
      penstock topic describe orders --all-configs
      penstock topic describe orders --json | jq '.partitions[].end_offset'
    """

    async def work(client: KafkaClient) -> tuple[TopicInfo, list[DescribedPartition], list[ConfigEntry]]:
        admin = Admin(client)
        partitions = await admin.describe(name)
        return client.view.topics[name], partitions, await admin.configs(name)

    topic, partitions, configs = run_client(bootstrap, work)
    if not all_configs:
        configs = [entry for entry in configs if entry.source is not ConfigSource.DEFAULT]
    if as_json:
        echo_json(_as_json(topic, partitions, configs))
        return
    replicas = max((len(entry.replicas) for entry in partitions), default=0)
    internal = ", internal" if topic.is_internal else ""
    click.echo(
        f"{name}: {plural(len(partitions), 'partition')}, {plural(replicas, 'replica')} each, "
        f"id {uuid_text(topic.topic_id)}{internal}\n"
    )
    _echo_partitions(partitions)
    click.echo()
    if configs:
        echo_table(["SETTING", "VALUE", "SOURCE"], [(entry.name, entry.value, _source(entry)) for entry in configs])
    else:
        click.echo("All settings have their defaults; --all-configs shows them.")


def _echo_partitions(partitions: list[DescribedPartition]) -> None:
    columns = ["#PARTITION", "#LEADER", "#EPOCH", "REPLICAS", "IN SYNC", "#START", "#END", "#SIZE"]
    echo_table(
        columns,
        [
            (
                entry.tp.partition,
                None if entry.leader == NO_NODE else entry.leader,
                entry.leader_epoch,
                ",".join(map(str, entry.replicas)),
                ",".join(map(str, entry.isr)),
                entry.held.start if entry.held else None,
                entry.held.end if entry.held else None,
                None if entry.size_bytes is None else format_bytes(entry.size_bytes),
            )
            for entry in partitions
        ],
    )
    for entry in partitions:
        if entry.problem is not None:
            click.echo(f"partition {entry.tp.partition} is not available: {entry.problem}")


def _source(entry: ConfigEntry) -> str:
    return entry.source.name.lower().replace("_", "-")


def _as_json(topic: TopicInfo, partitions: list[DescribedPartition], configs: list[ConfigEntry]) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": entry.tp.partition,
                "leader": None if entry.leader == NO_NODE else entry.leader,
                "leader_epoch": entry.leader_epoch,
                "replicas": entry.replicas,
                "isr": entry.isr,
                "start_offset": entry.held.start if entry.held else None,
                "end_offset": entry.held.end if entry.held else None,
                "size_bytes": entry.size_bytes,
                "problem": entry.problem,
            }
            for entry in partitions
        ],
        "configs": [{"name": entry.name, "value": entry.value, "source": _source(entry)} for entry in configs],
    }
