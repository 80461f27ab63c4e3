"""Parses and checks options given to `.option(...)`; names are case-insensitive, unknown names are rejected."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.client.address import BOOTSTRAP_DEFAULT, parse_bootstrap
from penstock.client.cluster import ClientSettings
from penstock.client.connection import ConnectionSettings
from penstock.client.security import CLIENT_PROPERTIES, SecuritySettings
from penstock.foundation.errors import InvalidConfig
from penstock.spark.errors import BadOption

BOOTSTRAP: Final = "kafka.bootstrap.servers"
CLIENT_ID: Final = "kafka.client.id"
REQUEST_TIMEOUT: Final = "kafka.request.timeout.ms"
API_TIMEOUT: Final = "kafka.default.api.timeout.ms"
CONNECT_TIMEOUT: Final = "kafka.socket.connection.setup.timeout.ms"
BACKOFF: Final = "kafka.retry.backoff.ms"
BACKOFF_MAX: Final = "kafka.retry.backoff.max.ms"

KAFKA: Final = "kafka."
SECURITY_OPTIONS: Final = frozenset(KAFKA + name for name in CLIENT_PROPERTIES)
CLIENT_OPTIONS: Final = frozenset(
    {BOOTSTRAP, CLIENT_ID, *SECURITY_OPTIONS, REQUEST_TIMEOUT, API_TIMEOUT, CONNECT_TIMEOUT, BACKOFF, BACKOFF_MAX}
)
"""Names of the Kafka client options that are allowed for both reading and writing."""
CLIENT_OPTIONS_IGNORED: Final = frozenset(
    {
        "kafka.metadata.max.age.ms",
        "kafka.connections.max.idle.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.reconnect.backoff.max.ms",
        "kafka.receive.buffer.bytes",
        "kafka.send.buffer.bytes",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.client.dns.lookup",
        "kafka.metric.reporters",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.enable.metrics.push",
        "kafka.auto.include.jmx.reporter",
    }
)
"""Names of Kafka client options that are accepted but ignored, for jobs written for Spark's Kafka source."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_FLAGS: Final = {"true": True, "false": False}
_DURATION: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
_UNITS_MS: Final = {"ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """The options that are allowed for reading or for writing, spelled as documented."""

    direction: str
    """`reading` or `writing`, for error messages."""
    known: frozenset[str]
    ignored: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names of unsupported options of Spark's Kafka source, each with advice for the error message."""

    @property
    def spelled(self) -> dict[str, str]:
        """The allowed names as documented, by their lower case."""
        return {name.lower(): name for name in self.known | self.ignored}

    def refuse(self, name: str) -> "BadOption":
        """Returns the error for an option that is not allowed: with advice, or with similar names."""
        advice = {known.lower(): text for known, text in self.refused.items()}.get(name.lower())
        if advice is not None:
            return BadOption(f"option {name!r} cannot be set for {self.direction}: {advice}")
        return _unknown(name, self.spelled, self)


class Options:
    """The options that a user gave, checked against an option table.

    >>> table = OptionTable(direction="reading", known=frozenset({"minPartitions"}))
    >>> Options({"MINPARTITIONS": "4"}, table).integer("minPartitions")
    4
    """

    def __init__(self, given: Mapping[str, str], table: OptionTable) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        spelled = table.spelled
        for name in given:
            if name.lower() not in spelled:
                raise table.refuse(name)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str, default: str | None = None) -> str | None:
        """Returns an option's value, stripped of blanks; `default` if not set. Raises BadOption for a blank value."""
        value = self._given.get(name.lower())
        if value is None:
            return default
        if not value.strip():
            raise BadOption(f"option {name!r} is empty; give it a value or leave it out")
        return value.strip()

    def raw(self, name: str) -> str | None:
        """Returns an option's value, stripped of blanks; None if not set. It may be empty."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in _FLAGS:
            raise BadOption(f"option {name!r} is {value!r}; it must be true or false")
        return _FLAGS[value.lower()]

    def choice(self, name: str, choices: Mapping[str, str], default: str) -> str:
        """Returns an option's value in lower case; `default` if it is not set. Raises BadOption if it is not a key
        of `choices`; the values of `choices` are descriptions for the error message."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            can = "; ".join(f"{choice} ({what})" for choice, what in choices.items())
            raise BadOption(f"option {name!r} is {value!r}; it can be {can}")
        return value

    def integer(self, name: str, *, least: int = 1, most: int = LONG_MAX) -> int | None:
        """Returns an option's integer value; None if not set. Raises BadOption if it is not `least` to `most`."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise BadOption(f"option {name!r} is {value!r}; it must be an integer") from None
        if not least <= number <= most:
            raise BadOption(f"option {name!r} is {number}; it must be from {least} to {most}")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Returns an option such as `500`, `500ms`, `30s` or `2h` in milliseconds; `default_ms` if it is not set."""
        value = self.text(name)
        if value is None:
            return default_ms
        match = _DURATION.fullmatch(value.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise BadOption(f"option {name!r} is {value!r}; it must be a duration such as 500ms, 30s, 15m or 2h")
        return int(match[1]) * _UNITS_MS[match[2]]


def _unknown(name: str, spelled: Mapping[str, str], table: OptionTable) -> BadOption:
    near = difflib.get_close_matches(name.lower(), spelled, n=3)
    if near:
        hint = "did you mean " + " or ".join(repr(spelled[close]) for close in near) + "?"
    else:
        hint = "the options are " + ", ".join(sorted(table.known))
    return BadOption(f"there is no option {name!r} for {table.direction}; {hint}")


def bootstrap_of(options: Options) -> str:
    """Returns the bootstrap servers. Raises BadOption if they are missing or malformed."""
    text = options.text(BOOTSTRAP)
    if text is None:
        raise BadOption(f"option {BOOTSTRAP!r} is missing; set it to broker addresses, e.g. {BOOTSTRAP_DEFAULT}")
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise BadOption(f"option {BOOTSTRAP!r}: {error}") from None
    return text


def client_settings_of(options: Options, *, client_id: str) -> ClientSettings:
    """Returns the Kafka client settings given by options: client id, security, timeouts and retry backoff."""
    defaults = ClientSettings()
    connection = defaults.connection
    return ClientSettings(
        connection=ConnectionSettings(
            client_id=options.text(CLIENT_ID) or client_id,
            connect_timeout_s=_seconds(options, CONNECT_TIMEOUT, connection.connect_timeout_s),
            request_timeout_s=_seconds(options, REQUEST_TIMEOUT, connection.request_timeout_s),
            security=_security(options),
        ),
        retry_for_s=_seconds(options, API_TIMEOUT, defaults.retry_for_s),
        backoff_first_s=_seconds(options, BACKOFF, defaults.backoff_first_s),
        backoff_max_s=_seconds(options, BACKOFF_MAX, defaults.backoff_max_s),
    )


def _security(options: Options) -> SecuritySettings:
    given = {name.removeprefix(KAFKA): options.raw(name) or "" for name in SECURITY_OPTIONS if name in options}
    try:
        return SecuritySettings.parse(given)
    except InvalidConfig as error:
        raise BadOption(f"the security of the connection (options 'kafka.…'): {error}") from None


def _seconds(options: Options, name: str, default_s: float) -> float:
    given_ms = options.integer(name, most=INT_MAX)
    return default_s if given_ms is None else given_ms / 1000
