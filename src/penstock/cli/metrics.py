"""`penstock metrics`: subscriptions to metrics that Kafka clients push to brokers (KIP-714)."""

import click

from penstock.cli.common import Pairs, cluster_options, echo_list, echo_result, pairs_option, run_client
from penstock.client.cluster import KafkaClient
from penstock.client.telemetry import INTERVAL, MATCH, METRICS, MetricsSubscriptions
from penstock.foundation.durations import parse_duration

_EVERYTHING = "*"


@click.group()
def metrics() -> None:
    """Subscribe to metrics that Kafka clients push (KIP-714). Brokers export them at /metrics.

    Supported by Kafka clients from 3.7 and librdkafka from 2.5, unless they set enable.metrics.push=false.

    \b
    Examples:
      penstock metrics subscribe all
      penstock metrics subscribe orders --metrics org.apache.kafka.producer. --every 10s --match client_id=orders-.*
      penstock metrics list
      penstock metrics unsubscribe orders
    """


@metrics.command()
@click.argument("name")
@click.option(
    "--metrics",
    "prefixes",
    multiple=True,
    metavar="PREFIX",
    default=(_EVERYTHING,),
    show_default="all metrics",
    help="Metrics whose names start with this. Repeatable.",
)
@click.option("--every", metavar="DURATION", help="How often clients push, from 100ms to 1h.  [5m]")
@pairs_option(
    "--match",
    "matches",
    metavar="NAME=PATTERN",
    help="Only clients whose client_id, client_instance_id, client_software_name, client_software_version, "
    "client_source_address or client_source_port matches this regular expression. Repeatable; all must match.",
)
@cluster_options
def subscribe(
    name: str, prefixes: tuple[str, ...], every: str | None, matches: Pairs, bootstrap: str, as_json: bool
) -> None:
    """Create or replace a subscription. Clients then push the metrics that it selects.

    A client that matches several subscriptions pushes the metrics of all, at their shortest interval. Clients learn
    of a new subscription with their next push, or within five minutes.

    \b
    Examples:
      penstock metrics subscribe all --every 30s
      penstock metrics subscribe lags --metrics org.apache.kafka.consumer.fetch. --match client_id=orders-.*
    """
    settings = {METRICS: ",".join(prefixes), MATCH: ",".join(f"{key}={pattern}" for key, pattern in matches)}
    if every is not None:
        settings[INTERVAL] = str(_milliseconds(every))

    async def work(client: KafkaClient) -> dict[str, str]:
        subscriptions = MetricsSubscriptions(client)
        await subscriptions.replace(name, settings)
        return (await subscriptions.all()).get(name, settings)

    made = run_client(bootstrap, work)
    text = f"subscription {name}: {_which(made)}, every {_interval(made)}, from {_whose(made)}"
    echo_result({"subscription": name, **made}, text, as_json=as_json)


@metrics.command(name="list")
@cluster_options
def list_(bootstrap: str, as_json: bool) -> None:
    """List subscriptions to client metrics.

    \b
    Examples:
      penstock metrics list
      penstock metrics list --json
    """
    found = run_client(bootstrap, lambda client: MetricsSubscriptions(client).all())
    echo_list(
        [{"subscription": name, **settings} for name, settings in found.items()],
        ["SUBSCRIPTION", "METRICS", "EVERY", "CLIENTS"],
        [[name, _which(each), _interval(each), _whose(each)] for name, each in found.items()],
        as_json=as_json,
        nothing="No subscriptions found; create one with `penstock metrics subscribe NAME`.",
    )


@metrics.command()
@click.argument("name")
@cluster_options
def unsubscribe(name: str, bootstrap: str, as_json: bool) -> None:
    """Remove a subscription. Clients stop pushing its metrics with their next push.

    \b
    Examples:
      penstock metrics unsubscribe orders
    """

    async def work(client: KafkaClient) -> bool:
        subscriptions = MetricsSubscriptions(client)
        was_there = name in await subscriptions.all()
        await subscriptions.remove(name)
        return was_there

    if not run_client(bootstrap, work):
        raise click.ClickException(f"there is no subscription {name!r}; `penstock metrics list` lists them")
    echo_result({"subscription": name, "removed": True}, f"removed subscription {name}", as_json=as_json)


def _milliseconds(text: str) -> int:
    try:
        return round(parse_duration(text) * 1000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--every") from None


def _interval(settings: dict[str, str]) -> str:
    return f"{int(settings[INTERVAL]) / 1000:g} s"


def _which(settings: dict[str, str]) -> str:
    named = settings[METRICS]
    return "all metrics" if _EVERYTHING in named.split(",") else named or "no metrics"


def _whose(settings: dict[str, str]) -> str:
    return settings[MATCH] or "all clients"
