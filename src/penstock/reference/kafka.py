"""Table of Kafka APIs: versions served, or why an API is not served."""

from collections.abc import Mapping
from typing import Final

from penstock.broker.registry import APIS, load_handlers
from penstock.reference.tables import table
from penstock.wire.keys import ApiKey

_QUORUM: Final = "refused: between KRaft controllers; Penstock coordinates through its store"
_SHARE_STATE: Final = "refused: between brokers; delivery state is kept beside the partition"
_REMOVED: Final = "refused: removed in Kafka 4.0"
_SECURITY: Final = "planned: with security"
NOT_SERVED: Final[Mapping[ApiKey, str]] = {
    ApiKey.LEADER_AND_ISR: _REMOVED,
    ApiKey.STOP_REPLICA: _REMOVED,
    ApiKey.UPDATE_METADATA: _REMOVED,
    ApiKey.CONTROLLED_SHUTDOWN: _REMOVED,
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
        "refused: topology descriptions (KIP-1331) are not stored, and never requested from clients"
    ),
}
"""Kafka APIs that Penstock does not serve, with the reason."""

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
"""API versions that a Kafka 4.4 broker serves, by API key; without APIs that Kafka 4.0 removed."""


def _api_name(key: ApiKey) -> str:
    return "".join(part.capitalize() for part in key.name.split("_"))


def _versions(found: range) -> str:
    return f"{found[0]}-{found[-1]}" if len(found) > 1 else f"{found[0]}"


def api_table() -> str:
    """Returns a table of every API of Kafka 4.4 and of Penstock."""
    load_handlers()

    def row(key: ApiKey) -> list[str]:
        api = APIS.get(key)
        status = f"served {_versions(api.versions)}" if api is not None else NOT_SERVED[key]
        return [str(int(key)), _api_name(key), KAFKA_VERSIONS.get(key, "-"), status]

    return table(("key", "API", "versions in Kafka 4.4", "Penstock"), map(row, sorted(ApiKey)))
