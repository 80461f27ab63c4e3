"""`penstock topic create|list|alter|delete|trim`: topics, their settings and partitions."""

import contextlib

import click

from penstock.cli.common import (
    Pairs,
    cluster_options,
    echo_list,
    echo_result,
    pairs_option,
    parse_time,
    plural,
    run_client,
)
from penstock.cli.deletion import confirm, delete_each
from penstock.cli.topic.describe import describe
from penstock.client.admin import DEFAULT, TO_THE_END, Admin
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.offsets import LogRange, list_offsets, log_ranges
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition


@click.group()
def topic() -> None:
    """Create, list, describe, alter, delete and trim topics.

    \b
    Examples:
      penstock topic create orders --partitions 3
      penstock topic list
      penstock topic describe orders
    """


topic.add_command(describe)


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions.  [the cluster's default]")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32767), help="Replicas per partition.  [the cluster's default]"
)
@pairs_option("--config", "configs", help="Set a topic setting. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@cluster_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Pairs,
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic.

    \b
    Examples:
      penstock topic create orders --partitions 3
      penstock topic create clicks --config retention.ms=3600000 --config compression.type=zstd
      penstock topic create cache --config storage=memory --if-not-exists
    """

    async def work(client: KafkaClient) -> tuple[int, int, bool]:
        admin = Admin(client)
        try:
            made = await admin.create(
                name,
                partitions=partitions or DEFAULT,
                replication_factor=replication_factor or DEFAULT,
                configs=dict(configs),
            )
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            known = await admin.topic(name)
            return len(known.partitions), len(known.partitions[0].replicas), False
        return *made, True

    count, replicas, created = run_client(bootstrap, work)
    facts = {"topic": name, "partitions": count, "replication_factor": replicas, "created": created}
    done = f"created topic {name}" if created else f"topic {name} already exists"
    echo_result(facts, f"{done}: {plural(count, 'partition')}, {plural(replicas, 'replica')} each", as_json=as_json)


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@cluster_options
def list_(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List topics.

    \b
    Examples:
      penstock topic list
      penstock topic list --internal --json
    """
    found = run_client(bootstrap, lambda client: Admin(client).topics())
    objects = [
        {
            "topic": known.name,
            "partitions": len(known.partitions),
            "replication_factor": max((len(entry.replicas) for entry in known.partitions.values()), default=0),
            "internal": known.is_internal,
        }
        for known in found
        if internal or not known.is_internal
    ]
    columns = ["TOPIC", "#PARTITIONS", "#REPLICAS"] + (["INTERNAL"] if internal else [])
    nothing = "No topics found; create one with `penstock topic create NAME`."
    echo_list(objects, columns, as_json=as_json, nothing=nothing)


@topic.command()
@click.argument("name")
@pairs_option("--config", "configs", help="Set a topic setting. Repeatable.")
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="NAME", help="Reset a setting to its default. Repeatable."
)
@click.option("--partitions", type=click.IntRange(1), help="Increase to this many partitions.")
@cluster_options
def alter(
    name: str, configs: Pairs, deleted: tuple[str, ...], partitions: int | None, bootstrap: str, as_json: bool
) -> None:
    """Change a topic's settings, or add partitions.

    Other settings stay as they are. Partitions can be added but not removed; afterwards, keys may map to other
    partitions than before.

    \b
    Examples:
      penstock topic alter orders --config retention.ms=86400000
      penstock topic alter orders --delete-config retention.ms --partitions 6
    """
    if not configs and not deleted and partitions is None:
        raise click.UsageError("nothing to change: give --config, --delete-config or --partitions")

    async def work(client: KafkaClient) -> None:
        admin = Admin(client)
        if configs or deleted:
            await admin.alter(name, configs=dict(configs), delete=deleted)
        if partitions is not None:
            try:
                await admin.create_partitions(name, partitions)
            except ServerError as error:
                done = "settings changed, but no partitions added: " if configs or deleted else ""
                raise ServerError(error.code, f"{done}{error}") from error

    run_client(bootstrap, work)
    facts = {"topic": name, "set": dict(configs), "deleted": list(deleted), "partitions": partitions}
    changes = [f"{key}={value}" for key, value in configs] + [f"{key} reset to its default" for key in deleted]
    changes += [plural(partitions, "partition")] if partitions is not None else []
    echo_result(facts, f"changed topic {name}: {', '.join(changes)}", as_json=as_json)


@topic.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics and their messages. Asks for confirmation; without a terminal, --yes is required.

    \b
    Examples:
      penstock topic delete orders
      penstock topic delete test-1 test-2 --yes
    """
    confirm(f"Delete {', '.join(names)} and all messages?", yes)
    delete_each("topic", names, lambda client, name: Admin(client).delete(name), bootstrap, as_json)


def _parse_before(ctx: click.Context, option: click.Parameter, value: str) -> tuple[str, int]:
    if value == "end":
        return "end", TO_THE_END
    if value.isdecimal():
        return "offset", int(value)
    with contextlib.suppress(ValueError):
        return "time", parse_time(value)
    raise click.BadParameter(
        f"{value!r} is not an offset, a time like 2026-01-31T12:00:00Z or @1767225600000, or end"
    )


@topic.command()
@click.argument("name")
@click.option(
    "--before", required=True, metavar="OFFSET|TIME|end", callback=_parse_before, help="Delete messages before this."
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.  [all]")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def trim(name: str, before: tuple[str, int], partition: int | None, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete the oldest messages of a topic. Asks for confirmation; without a terminal, --yes is required.

    A whole number is an offset; a topic with several partitions then needs --partition. A time is RFC 3339, or @ and
    milliseconds since 1970: older messages are deleted. `end` deletes all messages.

    \b
    Examples:
      penstock topic trim orders --before 1000 --partition 0
      penstock topic trim orders --before 2026-01-31T12:00:00Z
      penstock topic trim orders --before end --yes
    """
    kind, value = before

    async def plan(client: KafkaClient) -> tuple[dict[TopicPartition, int], int]:
        known = await client.topic(name)
        names = known.tps if partition is None else [known.partition(partition).tp]
        if kind == "offset" and len(names) > 1:
            raise click.UsageError(f"topic {name} has {len(names)} partitions; an offset needs --partition")
        offsets = dict.fromkeys(names, value)
        if kind == "time":
            found = await list_offsets(client, names, value)
            # No message is that new: all are older and are deleted.
            offsets = {entry: found[entry].offset if found[entry].offset >= 0 else TO_THE_END for entry in names}
        held = {} if yes else await log_ranges(client, names)
        return offsets, sum(_dropped(offsets[entry], found) for entry, found in held.items())

    offsets, count = run_client(bootstrap, plan)
    confirm(f"Delete {plural(count, 'message')} of topic {name} permanently?", yes)
    left = run_client(bootstrap, lambda client: Admin(client).trim(offsets))
    objects = [
        {"topic": name, "partition": entry.partition, "start_offset": start} for entry, start in sorted(left.items())
    ]
    echo_list(objects, ["TOPIC", "#PARTITION", "#STARTS AT"], as_json=as_json)


def _dropped(before: int, found: LogRange) -> int:
    """Returns how many messages trimming to offset `before` deletes at most: fewer if offsets have gaps."""
    return max(0, (found.end if before == TO_THE_END else min(before, found.end)) - found.start)
