"""Diagnosis of internal topics: wrong settings, missing partitions and replicas, interrupted repairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.broker.settings import PAUSED, SETTING_PREFIXES
from penstock.client.admin import Admin, ConfigSource
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin
from penstock.client.configs import Resource
from penstock.client.errors import refusal
from penstock.cluster.internal_topics import Fault, find_faults
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TRANSACTIONS_TOPIC

MIN_ISR = "transaction.state.log.min.isr"


class Step(NamedTuple):
    """A problem of an internal topic, and the step that repairs it."""

    kind: str
    problem: str
    repair: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The actual and the expected state of an internal topic; the fields `*_wanted` are expected values."""

    name: str
    partitions: int
    partitions_wanted: int
    replicas: int
    """Number of replicas of the partition that has the fewest."""
    replicas_wanted: int
    faults: tuple[Fault, ...]
    is_paused: bool
    """Whether the topic's coordinators are paused, because an earlier repair was interrupted."""
    own: Mapping[str, str]
    """Topic settings, with values, that the topic lacks; a repair of `faults` adds them."""

    @property
    def repairable(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.is_repairable]

    @property
    def must_move(self) -> bool:
        """Whether keys must be moved between partitions: partitions are missing, or a repair was interrupted."""
        return self.is_paused or self.partitions < self.partitions_wanted

    def steps(self) -> Iterator[Step]:
        for fault in self.faults:
            wanted = "remove it" if fault.repair is None else f"set it to {fault.repair}"
            repair = wanted if fault.is_repairable else "not repairable: create a new cluster, and migrate to it"
            yield Step("setting", f"{fault.setting} is {fault.found or 'not set'}, expected {fault.expected}", repair)
        if self.partitions < self.partitions_wanted:
            yield Step(
                "partitions",
                f"{self.partitions} of {self.partitions_wanted} partitions",
                "add partitions and move state to them, while coordinators pause",
            )
        elif self.is_paused:
            yield Step("partitions", "a repair was interrupted, coordinators are paused", "finish it")
        if self.replicas < self.replicas_wanted:
            yield Step("replicas", f"{self.replicas} of {self.replicas_wanted} replicas", "add replicas")


async def diagnose(client: KafkaClient) -> list[Diagnosis]:
    """Returns a diagnosis of each internal topic. Raises ServerError if the controller is too old for repairs."""
    admin = ClusterAdmin(client)
    brokers = (await admin.describe()).brokers
    wanted = [PAUSED, MIN_ISR]
    wanted += [p + name for p in SETTING_PREFIXES.values() for name in ("num.partitions", "replication.factor")]
    wanted += [prefix + "segment.bytes" for prefix in SETTING_PREFIXES.values()]
    reported = await admin.configs(Resource.BROKER, [str(client.view.controller)], wanted)
    settings = {name: value or "" for name, value in reported.get(str(client.view.controller), {}).items()}
    if PAUSED not in settings:
        raise refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "the controller",
            f"broker {client.view.controller} does not support {PAUSED}: upgrade all brokers first",
        )
    known = {topic.name: topic for topic in await Admin(client).topics()}
    found = []
    for name, prefix in SETTING_PREFIXES.items():
        topic = known.get(name)
        if topic is None:
            continue
        configs = await _own_configs(client, name)
        own = {"segment.bytes": settings[prefix + "segment.bytes"]}
        if name == TRANSACTIONS_TOPIC:
            own["min.insync.replicas"] = settings[MIN_ISR]
        found.append(
            Diagnosis(
                name=name,
                partitions=len(topic.partitions),
                partitions_wanted=int(settings[prefix + "num.partitions"]),
                replicas=min(len(partition.replicas) for partition in topic.partitions.values()),
                replicas_wanted=min(int(settings[prefix + "replication.factor"]), len(brokers)),
                faults=tuple(find_faults(configs)),
                is_paused=name in paused_in(settings[PAUSED]),
                own={key: value for key, value in own.items() if key not in configs},
            )
        )
    return found


async def _own_configs(client: KafkaClient, name: str) -> dict[str, str]:
    entries = await Admin(client).configs(name)
    return {entry.name: entry.value or "" for entry in entries if entry.source is ConfigSource.TOPIC}


def paused_in(text: str | None) -> set[str]:
    """Parses the broker setting that lists topics with paused coordinators; returns the topic names."""
    return {name for part in (text or "").split(",") if (name := part.strip())}
