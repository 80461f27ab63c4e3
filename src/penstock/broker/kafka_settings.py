"""Translates Kafka broker settings from a file or the command line into Penstock settings.

Some settings are converted to another unit. Some have no effect, which is reported. Unsupported settings about
security or durability, and misspelled names of such settings, stop the broker from starting. An unknown name is
reported with the name that was probably meant.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from penstock.broker.settings import BROKER_SETTINGS, WITHOUT_EFFECT
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.sasl_settings import listener_setting
from penstock.foundation.settings import LONG_MAX, Kind, Setting

_HOUR_MS: Final = 3_600_000
IN_OTHER_UNITS: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", _HOUR_MS),
    "log.flush.scheduler.interval.ms": ("log.flush.interval.ms", 1),
}
"""Kafka settings that are converted: name -> (Penstock setting, factor to multiply the value with). If several set
the same Penstock setting, Kafka's order decides: milliseconds before minutes before hours."""

NODE_NAMES: Final = frozenset({"log.dirs", "log.dir", "node.id", "broker.id", "listeners", "advertised.listeners"})
"""Kafka settings that are options of `penstock serve` under other names (cli/serve/settings.py)."""

_UNUSED_PREFIXES: Final = (
    "controller.",
    "group.coordinator.",
    "group.streams.",
    "internal.metadata.",
    "kafka.metrics.",
    "metadata.",
    "metric.",
    "metrics.",
    "remote.",
    "share.coordinator.",
    "zookeeper.",
)
"""Name prefixes of Kafka settings about components that Penstock does not have."""

_UNUSED_NAMES: Final = frozenset(
    [
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "auto.include.jmx.reporter",
        "broker.heartbeat.interval.ms",
        "broker.id.generation.enable",
        "broker.session.timeout.ms",
        "client.quota.callback.class",
        "config.providers",
        "controlled.shutdown.enable",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.share.assignment.interval.ms",
        "group.share.assignors",
        "group.share.enable",
        "group.share.initialize.retry.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.persister.class.name",
        "initial.broker.registration.timeout.ms",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.dir.failure.timeout.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "max.request.partition.size.limit",
        "num.replica.alter.log.dirs.threads",
        "offsets.commit.required.acks",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "offsets.topic.compression.codec",
        "process.roles",
        "producer.id.expiration.check.interval.ms",
        "producer.purgatory.purge.interval.requests",
        "queued.max.requests",
        "quota.consumer.default",
        "quota.producer.default",
        "quota.window.num",
        "quota.window.size.seconds",
        "replica.fetch.backoff.ms",
        "replica.fetch.min.bytes",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.socket.receive.buffer.bytes",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "request.timeout.ms",
        "reserved.broker.max.id",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "server.max.startup.time.ms",
        "share.fetch.purgatory.purge.interval.requests",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "transaction.state.log.load.buffer.size",
        "transaction.two.phase.commit.enable",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    ]
)
"""Names of Kafka settings (of Kafka 3.0 to 4.3) that are accepted with a warning, but have no effect in Penstock."""

_HARMLESS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.cleaner.enable": ("true",),
}
"""Values of otherwise unsupported settings that are accepted because Penstock behaves that way anyway."""

_SECURITY_OR_DURABILITY: Final = re.compile(
    r"listener|^ssl\.|^sasl\.|^security\.|^authorizer\.|^super\.users$|^allow\.everyone|^principal\.builder|"
    r"^delegation\.token|^password\.encoder|reauth|authentication|policy\.class\.name$|flush|insync|^unclean|^log\.cleaner\.enable$|"
    r"^(advertised\.)?(host\.name|port)$"
)
"""Matches names of settings about authentication, authorization, fsync and durability. Applied only to names that
Penstock does not support."""
_WELL_KNOWN_UNSUPPORTED: Final = (
    "log.cleaner.enable",
    "principal.builder.class",
)
"""Common unsupported settings about security or durability. A setting whose unknown name resembles one of them stops
the broker from starting, because it is probably a misspelling."""
SIMILARITY_MIN: Final = 0.75


class Understood(NamedTuple):
    settings: dict[str, str]
    """The translated settings, by Penstock name."""
    listener_settings: dict[str, str]
    """Settings of single listeners: `listener.name.NAME.ssl.…` and `listener.name.NAME.….sasl.…`."""
    warnings: list[str]


def understand(given: Mapping[str, str], *, is_strict: bool) -> Understood:
    """Translates Kafka's broker settings into Penstock's; those without effect become warnings. Raises InvalidConfig
    for unsupported settings about security or durability and, if `is_strict`, for any unknown name.

    >>> found = understand({"log.retention.hours": "2", "queued.max.requests": "8"}, is_strict=False)
    >>> found.settings, found.warnings
    ({'log.retention.ms': '7200000'}, ['queued.max.requests has no effect here'])
    """
    given = {name: text for name, text in given.items() if name not in NODE_NAMES}
    settings = {name: text for name, text in given.items() if name in BROKER_SETTINGS.by_name}
    of_listeners = {name: text for name, text in given.items() if listener_setting(name) is not None}
    warnings = [f"{name} has no effect here" for name in settings if name in WITHOUT_EFFECT]
    for name, (ours, factor) in IN_OTHER_UNITS.items():
        if name in given:
            settings.setdefault(ours, _convert(name, given[name], factor))
    for name, text in given.items():
        if name in settings or name in of_listeners or name in IN_OTHER_UNITS or _is_harmless(name, text):
            continue
        if name in _UNUSED_NAMES or name.startswith(_UNUSED_PREFIXES):
            warnings.append(f"{name} has no effect here")
        else:
            warnings.append(_check_unknown(name, is_strict=is_strict))
    return Understood(settings, of_listeners, warnings)


def _is_harmless(name: str, text: str) -> bool:
    """Whether this value of an unsupported setting requests only what Penstock does anyway."""
    return text.strip() in _HARMLESS.get(name, ())


def _convert(name: str, text: str, factor: int) -> str:
    value = Setting(name=name, kind=Kind.LONG, default="", doc="", minimum=-1, maximum=LONG_MAX).parse(text)
    return str(min(value * factor, LONG_MAX)) if value >= 0 else "-1"


def _check_unknown(name: str, *, is_strict: bool) -> str:
    """Returns a warning for an unknown setting. Raises InvalidConfig if `is_strict`, or if ignoring it is unsafe."""
    known = [*BROKER_SETTINGS.by_name, *IN_OTHER_UNITS, *NODE_NAMES, *_UNUSED_NAMES, *_WELL_KNOWN_UNSUPPORTED]
    alike = get_close_matches(name, known, 1, SIMILARITY_MIN)
    meant = f"; did you mean {alike[0]}?" if alike else ""
    if _SECURITY_OR_DURABILITY.search(name):
        raise InvalidConfig(
            f"{name} is not supported, and ignoring it would weaken security or durability; remove it{meant}"
        )
    if alike and _SECURITY_OR_DURABILITY.search(alike[0]):
        raise InvalidConfig(f"{name} is unknown, and similar to a setting about security or durability{meant}")
    if is_strict:
        raise InvalidConfig(f"{name} is unknown{meant}")
    return f"{name} is unknown and ignored{meant}"
