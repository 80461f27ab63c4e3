"""What the tests of applications in several languages expect of groups and of transactional output."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.clients.waiting import wait_until

from .toolchains import Program

PARTITIONS: Final = 4
KEYS: Final = 40
"""The applications produce number N with the key `key-<N mod KEYS>`."""
REBALANCE_S: Final = 180.0
CONSUMED_S: Final = 240.0


def owned(member: Program) -> list[int]:
    """The partitions that a member of a group owns now."""
    changes = member.values("owns")
    return sorted(changes[-1]) if changes else []


def wait_shared(members: Iterable[Program]) -> None:
    """Waits until every partition has one owner and every member owns a partition."""
    watched = list(members)

    def is_shared() -> bool:
        shares = [owned(member) for member in watched]
        return all(shares) and sorted(partition for share in shares for partition in share) == list(range(PARTITIONS))

    wait_until(is_shared, "the partitions are shared", REBALANCE_S)


def wait_consumed(members: Iterable[Program], count: int) -> None:
    """Waits until the members have consumed the numbers 0 ... count-1 at least once."""
    watched = list(members)

    def is_consumed() -> bool:
        return {int(record["value"]) for member in watched for record in member.values("record")} == set(range(count))

    wait_until(is_consumed, f"{count} records are consumed", CONSUMED_S)


def values_by_key(records: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of each key, in the order of the records."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        found[record["key"]].append(record["value"])
    return dict(found)


def transformed(count: int) -> dict[str, list[str]]:
    """The output of a transformation of the numbers 0 ... count-1: each of them once, in order for each key."""
    return {f"key-{key}": [f"done-{number}" for number in range(key, count, KEYS)] for key in range(KEYS)}
