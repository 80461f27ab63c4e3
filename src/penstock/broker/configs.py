"""Effective setting values and their source: topic, dynamic broker, dynamic cluster, static file, default."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from penstock.broker.settings import BROKER_SETTINGS
from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.settings import Setting
from penstock.log.setting_table import LOG_SETTINGS
from penstock.log.settings import LogSettings

CLUSTER_WIDE: Final = ""
_STALE_ENTRIES_MAX: Final = 64
"""Number of deleted topics whose settings may stay cached; above it, the cache is cleaned."""


class Source(IntEnum):
    """Where the value of a setting comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Value(NamedTuple):
    name: str
    """Name of the setting that has the value: the topic setting, or the broker setting that it inherits from."""
    text: str
    source: Source


class Configs:
    """The effective settings of this broker and its topics."""

    def __init__(self, *, static: Mapping[str, str], node_id: int, image: Callable[[], ClusterImage]) -> None:
        BROKER_SETTINGS.parse(static)  # raises InvalidConfig at startup for a wrong value
        self._static = dict(static)
        self._node_name = str(node_id)
        self._image = image
        self._parsed: dict[str, Any] = {}
        self._parsed_from: object = None
        self._log_settings: dict[bytes, tuple[object, LogSettings]] = {}

    def set_if_unset(self, name: str, text: str) -> None:
        """Sets the static value of a broker setting, unless the operator has set one."""
        if not self._static.get(name):
            self._static[name] = text
            self._parsed_from = None

    def broker_values(self, setting: Setting) -> list[Value]:
        """Returns the values of a broker setting from all sources, the effective value first."""
        dynamic = self._image().broker_configs
        layers: list[tuple[Source, Mapping[str, str]]] = [
            (Source.DYNAMIC_BROKER, dynamic.get(self._node_name, {})),
            (Source.DYNAMIC_CLUSTER, dynamic.get(CLUSTER_WIDE, {})),
            (Source.STATIC_BROKER, self._static),
        ]
        found = [
            Value(setting.name, table[setting.name], source) for source, table in layers if setting.name in table
        ]
        return [*found, Value(setting.name, setting.default, Source.DEFAULT)]

    def topic_values(self, setting: Setting, overrides: Mapping[str, str]) -> list[Value]:
        """Returns the values of a topic setting from all sources, the effective value first."""
        return self._values_with_fallback(setting, overrides, Source.TOPIC)

    def group_values(self, setting: Setting, overrides: Mapping[str, str]) -> list[Value]:
        """Returns the values of a group setting from all sources, the effective value first."""
        return self._values_with_fallback(setting, overrides, Source.GROUP)

    def client_metrics_values(self, setting: Setting, overrides: Mapping[str, str]) -> list[Value]:
        """Returns the values of a client-metrics setting from all sources, the effective value first."""
        return self._values_with_fallback(setting, overrides, Source.CLIENT_METRICS)

    def _values_with_fallback(self, setting: Setting, overrides: Mapping[str, str], source: Source) -> list[Value]:
        found = []
        if setting.name in overrides:
            found.append(Value(setting.name, overrides[setting.name], source))
        if setting.broker_name is None:
            return [*found, Value(setting.name, setting.default, Source.DEFAULT)]
        return [*found, *self.broker_values(BROKER_SETTINGS.get(setting.broker_name))]

    def __getitem__(self, name: str) -> Any:
        """Returns the parsed value of a broker setting."""
        dynamic = self._image().broker_configs
        if self._parsed_from is not dynamic:
            self._parsed_from = dynamic
            self._parsed = {entry.name: entry.parse(self.broker_values(entry)[0].text) for entry in BROKER_SETTINGS}
        return self._parsed[name]

    def log_settings(self, topic: Topic) -> LogSettings:
        """Returns a topic's log settings; cached until the topic's or the broker's settings change."""
        image = self._image()
        made_from = (topic.version, image.broker_configs)
        known = self._log_settings.get(topic.topic_id)
        if known is None or known[0] != made_from:
            if len(self._log_settings) > 2 * len(image.topics) + _STALE_ENTRIES_MAX:
                self._log_settings = {
                    known: made for known, made in self._log_settings.items() if known in image.topics
                }
            made = LogSettings.of(self._effective(topic.configs), running=True)
            known = (made_from, made.for_internal_topic() if topic.is_internal else made)
            self._log_settings[topic.topic_id] = known
        return known[1]

    def is_unclean(self, topic: Topic) -> bool:
        """Whether unclean leader election is enabled for this topic."""
        return self.log_settings(topic).unclean

    def log_settings_of(self, overrides: Mapping[str, str]) -> LogSettings:
        """Returns a topic's log settings with these overrides. Raises InvalidConfig if they contradict each other."""
        return LogSettings.of(self._effective(overrides))

    def _effective(self, overrides: Mapping[str, str]) -> dict[str, str]:
        return {entry.name: self.topic_values(entry, overrides)[0].text for entry in LOG_SETTINGS}
