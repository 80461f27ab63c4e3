"""Rules for internal topics: the settings that they must have, and the changes that are refused. Pure.

Coordinators lose state when an internal topic deletes old segments, delays records or keeps its log in memory, and no
longer find a key when the number of partitions changes. Logs ignore most of the wrong settings (see
LogSettings.for_internal_topic), but logs of earlier broker versions do not.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.foundation.errors import InvalidConfig, InvalidTopic
from penstock.foundation.ids import INTERNAL_TOPICS, SCHEMAS_TOPIC
from penstock.log.setting_table import (
    CLIENTS,
    DELAYED_MESSAGES,
    DELIVERY_DELAY_MS,
    LOG_SETTINGS,
    MESSAGE_BYTES_DEFAULT,
    WRITE_ACCESS,
)
from penstock.log.settings import is_written_by_brokers

CLEANUP_POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


class Rule(NamedTuple):
    """A fixed setting of an internal topic."""

    setting: str
    allows: Callable[[Any], bool]
    expected: str
    repair: str | None = None
    """The value that repairs a wrong setting; None means that the setting is removed."""
    may_be_absent: bool = True
    is_repairable: bool = True

    def is_kept_by(self, configs: Mapping[str, str]) -> bool:
        text = configs.get(self.setting)
        if text is None:
            return self.may_be_absent
        return self.allows(LOG_SETTINGS.get(self.setting).parse(text))


def _never(value: object) -> bool:
    return False


RULES: Final = (
    Rule(CLEANUP_POLICY, lambda policy: policy == (COMPACT,), COMPACT, COMPACT, may_be_absent=False),
    Rule("retention.ms", _never, "not set"),
    Rule("retention.bytes", _never, "not set"),
    Rule(DELIVERY_DELAY_MS, lambda delay_ms: delay_ms == 0, "0"),
    Rule("max.message.bytes", lambda size: size >= MESSAGE_BYTES_DEFAULT, f"at least {MESSAGE_BYTES_DEFAULT}"),
    Rule(DELAYED_MESSAGES, lambda is_on: not is_on, "false", is_repairable=False),
    Rule("storage", lambda storage: storage == "disk", "disk", is_repairable=False),
)


class Fault(NamedTuple):
    """A wrong setting of an internal topic."""

    setting: str
    found: str | None
    expected: str
    repair: str | None
    is_repairable: bool


def find_faults(configs: Mapping[str, str]) -> list[Fault]:
    """Returns the settings that would make an internal topic lose state. `configs`: the topic-level settings."""
    return [
        Fault(rule.setting, configs.get(rule.setting), rule.expected, rule.repair, rule.is_repairable)
        for rule in RULES
        if not rule.is_kept_by(configs)
    ]


def check_configs(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises InvalidConfig if a setting of an internal topic, or of the schema registry's, changes to a value with
    which brokers lose state."""
    if is_written_by_brokers(after):
        if name != SCHEMAS_TOPIC:
            raise InvalidConfig(f"{WRITE_ACCESS}={after[WRITE_ACCESS]} is possible for topic {SCHEMAS_TOPIC!r} only")
    elif name not in INTERNAL_TOPICS:
        return
    is_new_owner = is_written_by_brokers(after) and not is_written_by_brokers(before)
    for fault in find_faults(after):
        if is_new_owner or fault.found != before.get(fault.setting):
            raise InvalidConfig(
                f"{fault.setting} of the internal topic {name!r} is fixed: expected {fault.expected}, got "
                f"{fault.found or 'no value'}; brokers would lose the state that they keep there"
            )


def check_new(name: str, configs: Mapping[str, str], *, is_plain: bool) -> None:
    """Raises InvalidTopic if a new topic has an internal topic's name, but not its fixed settings, or is not plain.

    `is_plain`: whether the topic is neither for a queue nor has companion logs (logs with queue or delay state).
    """
    if name in INTERNAL_TOPICS and (find_faults(configs) or not is_plain):
        raise InvalidTopic(f"topic {name!r} is internal: brokers create it with the settings that it needs")
    check_configs(name, {} if is_written_by_brokers(configs) else configs, configs)


def check_mutable(name: str, configs: Mapping[str, str], operation: str) -> None:
    """Raises InvalidTopic if a topic is internal. `operation`: the verb for the error message, such as "delete"."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopic(f"cannot {operation} the internal topic {name!r}: it holds the state of coordinators")
    if is_written_by_brokers(configs):
        raise InvalidTopic(
            f"cannot {operation} topic {name!r}: it holds the schemas of the brokers' registry; set "
            f"{WRITE_ACCESS}={CLIENTS} first, which stops that registry"
        )
