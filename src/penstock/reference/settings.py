"""Tables of the settings of brokers, topics, groups and client-metrics subscriptions."""

from collections.abc import Callable, Iterable

from penstock.broker.settings import BROKER_SETTINGS, READ_ONLY, WITHOUT_EFFECT
from penstock.foundation.settings import INT_MAX, LONG_MAX, Kind, Setting
from penstock.groups.group_configs import GROUP_CONFIGS
from penstock.log.setting_table import LOG_SETTINGS
from penstock.reference.tables import table
from penstock.telemetry.subscriptions import CLIENT_METRICS_SETTINGS


def _values(setting: Setting) -> str:
    """Returns a description of the values that a setting may have."""
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind is Kind.BOOLEAN:
        return "`true`, `false`"
    if setting.kind is Kind.PASSWORD:
        return "text, never shown"
    if setting.kind in (Kind.STRING, Kind.LIST):
        return setting.form or ("a list" if setting.kind is Kind.LIST else "text")
    low, high = setting.minimum, setting.maximum
    if low is not None and high is not None and high < INT_MAX:
        return f"{low:,.12g} to {high:,.12g}"
    return f"{low:,.12g} or more" if low is not None else "a number"


def _default(setting: Setting) -> str:
    if setting.default in (str(INT_MAX), str(LONG_MAX)):
        return "no limit"
    return f"`{setting.default}`" if setting.default else "none"


def _settings(entries: Iterable[Setting], more: Callable[[Setting], str]) -> str:
    rows = (
        [f"`{entry.name}`", _values(entry), _default(entry), f"{entry.doc}{more(entry)}"]
        for entry in sorted(entries, key=lambda entry: entry.name)
    )
    return table(("setting", "values", "default", "what it does"), rows)


def _when_read(entry: Setting) -> str:
    return " Read when the broker starts." if entry.name in READ_ONLY else ""


def sqs_settings() -> str:
    """Returns a table of the broker settings for the SQS API and HTTP."""
    return _settings((entry for entry in BROKER_SETTINGS if entry.name.startswith(("sqs.", "http."))), _when_read)


def broker_settings() -> str:
    """Returns a table of the broker settings, without settings that are only defaults of topic settings."""
    defaults = {entry.broker_name for entry in LOG_SETTINGS}
    known = [entry for entry in BROKER_SETTINGS if entry.name not in defaults and entry.name not in WITHOUT_EFFECT]
    return _settings(known, _when_read)


def idle_settings() -> str:
    idle = [entry for entry in BROKER_SETTINGS if entry.name in WITHOUT_EFFECT]
    return _settings(idle, lambda entry: "")


def topic_settings() -> str:
    def inherited(entry: Setting) -> str:
        return f" Default of the broker: `{entry.broker_name}`." if entry.broker_name else ""

    return _settings(LOG_SETTINGS, inherited)


def group_settings() -> str:
    def inherited(entry: Setting) -> str:
        return f" Default of the broker: `{entry.broker_name}`." if entry.broker_name else ""

    return _settings(GROUP_CONFIGS, inherited)


def client_metrics_settings() -> str:
    return _settings(CLIENT_METRICS_SETTINGS, lambda entry: "")
