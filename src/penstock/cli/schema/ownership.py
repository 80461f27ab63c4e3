"""`penstock schema own|disown`: whether the brokers' registry or another one writes to the topic `_schemas`."""

import asyncio
from dataclasses import dataclass
from typing import Final

import click

from penstock.cli.common import client_settings, cluster_options, echo_result, plural, run, run_client
from penstock.cli.deletion import confirm
from penstock.cli.schema.access import Login, registry_user_option
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_errors import STORE_FAILED, RegistryError
from penstock.client.schema_registry_urls import find_registry
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import SCHEMAS_TOPIC
from penstock.log.setting_table import BROKERS, CLIENTS, WRITE_ACCESS

_UNKNOWN: Final = "unknown"
LOAD_S: Final = 60.0
"""How long to wait until the brokers' registry has loaded the topic, in seconds."""
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    partitions: int
    write_access: str


async def _find_topic(client: KafkaClient) -> _Topic | None:
    admin = Admin(client)
    try:
        found = await admin.topic(SCHEMAS_TOPIC)
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
    access = {entry.name: entry.value for entry in await admin.configs(SCHEMAS_TOPIC)}.get(WRITE_ACCESS)
    return _Topic(partitions=len(found.partitions), write_access=access or _UNKNOWN)


def _find(bootstrap: str) -> _Topic:
    found = run_client(bootstrap, _find_topic)
    if found is None:
        raise click.ClickException(
            f"there is no topic {SCHEMAS_TOPIC}, and so no registry whose schemas can be taken over; the brokers' "
            "registry creates it when a first schema is registered"
        )
    if found.write_access == _UNKNOWN:
        raise click.ClickException(
            f"the brokers do not know {WRITE_ACCESS}: upgrade them to this version of Penstock"
        )
    return found


def _change(bootstrap: str, owner: str) -> None:
    run_client(bootstrap, lambda client: Admin(client).alter(SCHEMAS_TOPIC, configs={WRITE_ACCESS: owner}))


@click.command()
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@registry_user_option
@cluster_options
def own(yes: bool, registry_user: Login | None, bootstrap: str, as_json: bool) -> None:
    """Let the brokers' registry take over the schemas of another registry that used this cluster.

    Other registries (Confluent's, Karapace) keep their schemas in the topic _schemas, too. This command reserves the
    topic for the brokers (write.access=brokers), which then serve its schemas with the same ids. Stop the other
    registry first: its writes are refused from then on. `penstock schema disown` reverses this.

    \b
    Examples:
      penstock schema own
      penstock schema own --bootstrap queue-1:9092 --yes
    """
    found = _find(bootstrap)
    if found.partitions != 1:
        raise click.ClickException(
            f"topic {SCHEMAS_TOPIC} has {found.partitions} partitions; a registry's topic has one: export the "
            "schemas of the other registry with `penstock schema export`, and import them"
        )
    if found.write_access != BROKERS:
        confirm(
            f"Let the brokers' registry take over topic {SCHEMAS_TOPIC}? Another registry that uses it must be "
            "stopped: its writes are refused from now on.",
            yes,
            verb="take over the topic",
            participle="changed",
        )
        _change(bootstrap, BROKERS)
    count = run(_count_subjects(bootstrap, registry_user or Login()))
    facts = {"topic": SCHEMAS_TOPIC, "owner": BROKERS, "subjects": count, "changed": found.write_access != BROKERS}
    done = "serves" if found.write_access != BROKERS else "already serves"
    echo_result(facts, f"the brokers' registry {done} {plural(count, 'subject')}", as_json=as_json)


async def _count_subjects(bootstrap: str, login: Login) -> int:
    """Returns the number of subjects once the brokers have loaded the topic."""
    deadline_s = asyncio.get_running_loop().time() + LOAD_S
    urls = await find_registry(bootstrap, client_settings())
    async with SchemaRegistryClient(urls, user=login.user, password=login.password, retry_for_s=LOAD_S) as client:
        while True:
            try:
                return len(await client.subjects())
            except RegistryError as error:  # a broker learns of the change a moment later
                if error.error_code != STORE_FAILED or asyncio.get_running_loop().time() > deadline_s:
                    raise
            await asyncio.sleep(_POLL_S)


@click.command()
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def disown(yes: bool, bootstrap: str, as_json: bool) -> None:
    """Stop the brokers' registry, so that another registry can use its topic and schemas.

    Clients may write to the topic _schemas from then on (write.access=clients), and the brokers' registry answers
    every request with an error (50001). Point another registry at the cluster: it finds all schemas with their ids.

    \b
    Examples:
      penstock schema disown
      penstock schema disown --yes && schema-registry-start schema-registry.properties
    """
    found = _find(bootstrap)
    if found.write_access == BROKERS:
        confirm(
            f"Stop the brokers' registry, and let clients write to topic {SCHEMAS_TOPIC}? Producers and consumers "
            "that need the registry fail until another one serves the topic.",
            yes,
            verb="stop the registry",
            participle="changed",
        )
        _change(bootstrap, CLIENTS)
    facts = {"topic": SCHEMAS_TOPIC, "owner": CLIENTS, "changed": found.write_access == BROKERS}
    text = f"clients may write to topic {SCHEMAS_TOPIC}; the brokers' registry does not serve it"
    echo_result(facts, text, as_json=as_json)
