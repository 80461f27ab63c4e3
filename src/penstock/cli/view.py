"""`penstock view`: creates, lists, describes and drops views (filtered topics)."""

import click

from penstock.cli.common import cluster_options, echo_json, echo_list, echo_result, echo_table, plural, run_client
from penstock.cli.deletion import confirm, delete_each
from penstock.client.admin import Admin, DescribedPartition
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.views import ViewInfo, Views
from penstock.foundation.codes import ErrorCode


@click.group()
def view() -> None:
    """Create, list, describe and drop views (filtered topics). Any Kafka client can read a view like a topic.

    \b
    Examples:
      penstock view create orders-eu --of orders --where "tag IN ('eu', 'uk') AND priority > 3"
      penstock view list
      penstock subscribe orders-eu
      penstock view drop orders-eu
    """


@view.command()
@click.argument("name")
@click.option("--of", "of", required=True, metavar="TOPIC", help="The topic to filter.")
@click.option("--where", required=True, metavar="CONDITION", help="Which records of the topic the view contains.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if an identical view exists.")
@cluster_options
def create(name: str, of: str, where: str, if_not_exists: bool, bootstrap: str, as_json: bool) -> None:
    """Create a view of a topic. It takes no space and can be read at once, from the topic's first record on.

    CONDITION compares headers (by name, such as tag), key, timestamp, partition and JSON fields of the value
    ($.customer.country) with values: = <> < <= > >=, IN, LIKE, BETWEEN, IS NULL, AND, OR, NOT.

    \b
    Examples:
      penstock view create orders-eu --of orders --where "tag = 'eu'"
      penstock view create big --of orders --where "\\$.total > 1000 AND priority IN (1, 2)"
      penstock view create today --of orders --where "timestamp >= '2026-01-31T00:00:00Z'"
    """

    async def work(client: KafkaClient) -> tuple[int, bool]:
        views = Views(client)
        try:
            return await views.create(name, of=of, where=where), True
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            known = await views.one(name)
            if (known.of, known.where) != (of, where.strip()):
                raise ServerError(
                    error.code, f"a different view {name!r} exists, of {known.of!r} where {known.where}"
                ) from error
            return known.partitions, False

    try:
        count, created = run_client(bootstrap, work)
    except ServerError as error:
        if "\n" in str(error):  # the second line marks the position of a syntax error in the condition
            raise click.ClickException(str(error)) from error
        raise
    facts = {"view": name, "of": of, "where": where, "partitions": count, "created": created}
    done = f"created view {name}" if created else f"view {name} already exists,"
    echo_result(facts, f"{done} of topic {of}: {plural(count, 'partition')}", as_json=as_json)


@view.command(name="list")
@click.option("--of", "of", metavar="TOPIC", help="Only views of this topic.")
@cluster_options
def list_(of: str | None, bootstrap: str, as_json: bool) -> None:
    """List views. Temporary views of client programs, which are dropped when unused, are not listed.

    \b
    Examples:
      penstock view list
      penstock view list --of orders --json
    """
    found = run_client(bootstrap, lambda client: Views(client).all(of))
    echo_list(
        [_as_json(each) for each in found],
        ["VIEW", "OF", "#PARTITIONS", "WHERE"],
        [[each.name, each.of, each.partitions, each.where] for each in found],
        as_json=as_json,
        nothing="No views found; create one with `penstock view create NAME --of TOPIC --where ...`.",
    )


def _as_json(found: ViewInfo) -> dict[str, object]:
    return {
        "view": found.name,
        "of": found.of,
        "where": found.where,
        "partitions": found.partitions,
        "idle_ms": found.idle_ms,
    }


@view.command()
@click.argument("name")
@cluster_options
def describe(name: str, bootstrap: str, as_json: bool) -> None:
    """Show a view's condition and partitions. Its partitions, leaders and offsets are the topic's.

    \b
    Examples:
      penstock view describe orders-eu
      penstock view describe orders-eu --json
    """

    async def work(client: KafkaClient) -> tuple[ViewInfo, list[DescribedPartition]]:
        return await Views(client).one(name), await Admin(client).describe(name)

    found, partitions = run_client(bootstrap, work)
    columns = ["PARTITION", "LEADER", "ISR", "FIRST", "END"]
    rows = [
        [one.tp.partition, one.leader, ",".join(map(str, one.isr)), *(one.held or ("?", "?"))] for one in partitions
    ]
    if as_json:
        names = [column.lower() for column in columns]
        echo_json(_as_json(found) | {"offsets": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    click.echo(f"view {found.name} of topic {found.of}\nwhere {found.where}")
    if found.idle_ms:
        click.echo(f"dropped when not read for {found.idle_ms / 1000:g} s")
    echo_table(columns, rows)


@view.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def drop(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Drop views. Asks for confirmation; without a terminal, --yes is required.

    Their topics stay as they are. Offsets that groups have committed for the views are deleted.

    \b
    Examples:
      penstock view drop orders-eu
      penstock view drop orders-eu orders-us --yes
    """
    confirm(f"Drop {', '.join(names)} and the offsets that groups have committed?", yes)
    delete_each("view", names, lambda client, name: Views(client).drop(name), bootstrap, as_json)
