"""The parts of the documentation that are lists of what is in the code: APIs and settings.

    python -m penstock.reference          # write them
    python -m penstock.reference --check  # exit code 1 if a page is not up to date

A page has them between `<!-- generated: NAME -->` and `<!-- end -->`. What is written around them is written by hand.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from penstock.broker.registry import APIS, load_handlers
from penstock.broker.settings import BROKER_SETTINGS, READ_ONLY, WITHOUT_EFFECT
from penstock.foundation.settings import INT_MAX, LONG_MAX, Kind, Setting
from penstock.groups.group_configs import GROUP_CONFIGS
from penstock.log.setting_table import LOG_SETTINGS
from penstock.telemetry.subscriptions import CLIENT_METRICS_SETTINGS
from penstock.wire.keys import ApiKey

_BLOCK: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_QUORUM: Final = "refused: between KRaft controllers; Penstock coordinates through its store"
_SHARE_STATE: Final = "refused: between brokers; delivery state is kept beside the partition"
_REMOVED: Final = "refused: removed in Kafka 4.0"
_SECURITY: Final = "planned: with security"
NOT_SERVED: Final[Mapping[ApiKey, str]] = {
    ApiKey.LEADER_AND_ISR: _REMOVED,
    ApiKey.STOP_REPLICA: _REMOVED,
    ApiKey.UPDATE_METADATA: _REMOVED,
    ApiKey.CONTROLLED_SHUTDOWN: _REMOVED,
    ApiKey.SASL_HANDSHAKE: _SECURITY,
    ApiKey.SASL_AUTHENTICATE: _SECURITY,
    ApiKey.ALTER_CLIENT_QUOTAS: _SECURITY,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _SECURITY,
    ApiKey.VOTE: _QUORUM,
    ApiKey.BEGIN_QUORUM_EPOCH: _QUORUM,
    ApiKey.END_QUORUM_EPOCH: _QUORUM,
    ApiKey.ALTER_PARTITION: _QUORUM,
    ApiKey.ENVELOPE: _QUORUM,
    ApiKey.FETCH_SNAPSHOT: _QUORUM,
    ApiKey.BROKER_REGISTRATION: _QUORUM,
    ApiKey.BROKER_HEARTBEAT: _QUORUM,
    ApiKey.ALLOCATE_PRODUCER_IDS: _QUORUM,
    ApiKey.CONTROLLER_REGISTRATION: _QUORUM,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _QUORUM,
    ApiKey.ADD_RAFT_VOTER: _QUORUM,
    ApiKey.REMOVE_RAFT_VOTER: _QUORUM,
    ApiKey.UPDATE_RAFT_VOTER: _QUORUM,
    ApiKey.UNREGISTER_CONTROLLER: _QUORUM,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (
        "refused: descriptions of topologies (KIP-1331) are not stored; no client is asked for one"
    ),
}
"""APIs of Kafka without a handler, and why."""

KAFKA_VERSIONS: Final[Mapping[int, str]] = {
    0: "3-13",
    1: "4-18",
    2: "1-11",
    3: "0-13",
    8: "2-10",
    9: "1-10",
    10: "0-6",
    11: "0-9",
    12: "0-4",
    13: "0-5",
    14: "0-5",
    15: "0-6",
    16: "0-5",
    17: "0-1",
    18: "0-5",
    19: "2-7",
    20: "1-6",
    21: "0-2",
    22: "0-5",
    23: "2-4",
    24: "0-5",
    25: "0-4",
    26: "0-5",
    27: "1-2",
    28: "0-6",
    29: "1-3",
    30: "1-3",
    31: "1-3",
    32: "1-4",
    33: "0-2",
    34: "1-2",
    35: "1-5",
    36: "0-2",
    37: "0-3",
    38: "1-3",
    39: "1-2",
    40: "1-2",
    41: "1-3",
    42: "0-3",
    43: "0-2",
    44: "0-1",
    45: "0-1",
    46: "0",
    47: "0",
    48: "0-1",
    49: "0-1",
    50: "0",
    51: "0",
    52: "0-2",
    53: "0-1",
    54: "0-1",
    55: "0-2",
    56: "2-3",
    57: "0-2",
    58: "0",
    59: "0-1",
    60: "0-2",
    61: "0",
    62: "0-4",
    63: "0-2",
    64: "0",
    65: "0",
    66: "0-2",
    67: "0",
    68: "0-1",
    69: "0-1",
    70: "0",
    71: "0",
    72: "0",
    73: "0",
    74: "0-1",
    75: "0",
    76: "1",
    77: "1",
    78: "1-2",
    79: "1-2",
    80: "0-1",
    81: "0",
    82: "0",
    83: "0",
    84: "0",
    85: "0-1",
    86: "0",
    87: "0-1",
    88: "0-1",
    89: "0-1",
    90: "0-1",
    91: "0",
    92: "0",
    93: "0",
    94: "0",
}
"""What a broker of Kafka 4.4 serves, by the keys of its APIs; those that are missing were removed in 4.0."""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _api_name(key: ApiKey) -> str:
    return "".join(part.capitalize() for part in key.name.split("_"))


def _versions(found: range) -> str:
    return f"{found[0]}-{found[-1]}" if len(found) > 1 else f"{found[0]}"


def api_table() -> str:
    """Every API of Kafka 4.4, and ours."""
    load_handlers()

    def row(key: ApiKey) -> list[str]:
        api = APIS.get(key)
        said = f"served {_versions(api.versions)}" if api is not None else NOT_SERVED[key]
        return [str(int(key)), _api_name(key), KAFKA_VERSIONS.get(key, "-"), said]

    return _table(("key", "API", "versions in Kafka 4.4", "Penstock"), map(row, sorted(ApiKey)))


def _values(setting: Setting) -> str:
    """Which values a setting may have, in words."""
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind is Kind.BOOLEAN:
        return "`true`, `false`"
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
    return _table(("setting", "values", "default", "what it does"), rows)


def broker_settings() -> str:
    """Of brokers; those that only give topics their defaults stand with the topics."""
    defaults = {entry.broker_name for entry in LOG_SETTINGS}
    known = [entry for entry in BROKER_SETTINGS if entry.name not in defaults and entry.name not in WITHOUT_EFFECT]
    return _settings(known, lambda entry: " Read when the broker starts." if entry.name in READ_ONLY else "")


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


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "apis": api_table,
    "broker-settings": broker_settings,
    "client-metrics-settings": client_metrics_settings,
    "group-settings": group_settings,
    "idle-settings": idle_settings,
    "topic-settings": topic_settings,
}


def generated(page: str) -> str:
    """Returns a page with all its generated parts as they should be. Raises KeyError for one that is not known."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}{found[3]}", page)


def main(arguments: list[str]) -> int:
    stale = []
    for path in sorted(Path("docs").glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = generated(before)
        if after != before:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    outcome = "not up to date; run `make docs`" if "--check" in arguments else "written"
    for path in stale:
        sys.stdout.write(f"{path}: {outcome}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
