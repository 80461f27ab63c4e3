"""The audit log: repeated events, bounds, and its files."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.security.audit import CHARS_MAX, KINDS_MAX, REPEAT_S, AuditLog, Kind
from penstock.security.audit_file import FILE_BYTES_MAX, AuditFile

EVERYTHING = frozenset(Kind)


class Lab:
    def __init__(self, kinds: frozenset[Kind] = EVERYTHING) -> None:
        self.now_s = 1000.0
        self.written: list[dict[str, Any]] = []
        self.log = AuditLog(self.written.append, lambda: self.now_s, kinds)

    def deny(self, name: str = "orders") -> None:
        self.log.access(allowed=False, principal="User:eve", host="h", operation="write", resource=("topic", name))


DENIED = {
    "event": "denied",
    "principal": "User:eve",
    "host": "h",
    "operation": "write",
    "type": "topic",
    "name": "orders",
    "count": 1,
}


def test_repeated_events_are_counted() -> None:
    lab = Lab()
    for _ in range(5):
        lab.deny()
    assert lab.written == [DENIED]
    lab.now_s += REPEAT_S
    lab.log.flush()
    assert lab.written == [DENIED, {**DENIED, "count": 4}]
    lab.deny()
    assert lab.written[2:] == [DENIED]
    lab.log.flush(all_of_them=True)
    assert len(lab.written) == 3


def test_an_event_after_a_minute_is_written_with_those_before_it() -> None:
    lab = Lab()
    lab.deny()
    lab.deny()
    lab.now_s += REPEAT_S + 1
    lab.deny()
    assert lab.written == [DENIED, {**DENIED, "count": 1}, DENIED]


def test_the_memory_is_bounded_and_nothing_is_left_out() -> None:
    lab = Lab()
    for number in range(KINDS_MAX + 50):
        lab.deny(f"topic-{number}")
    assert len(lab.written) == KINDS_MAX + 50
    assert len(lab.log._seen) == KINDS_MAX


@pytest.mark.parametrize(
    ("kinds", "events"),
    [
        (EVERYTHING, ["allowed", "denied", "login", "login_failed", "change", "change_failed"]),
        ({Kind.DENIED}, ["denied"]),
        ({Kind.LOGINS}, ["login", "login_failed"]),
        ({Kind.CHANGES}, ["change", "change_failed"]),
        ({Kind.ALLOWED}, ["allowed"]),
    ],
)
def test_kinds_are_selected(kinds: frozenset[Kind], events: list[str]) -> None:
    lab = Lab(frozenset(kinds))
    for allowed in (True, False):
        lab.log.access(allowed=allowed, principal="p", host="h", operation="read", resource=("topic", "t"))
    for ok, reason in ((True, ""), (False, "wrong password")):
        lab.log.login(ok=ok, user="u", host="h", listener="L", mechanism="PLAIN", reason=reason)
    for failed in (False, True):
        lab.log.change(api="create_topics", principal="p", host="h", names=["a"], failed=failed)
    assert [each["event"] for each in lab.written] == events


def test_long_names_and_many_names_are_cut() -> None:
    lab = Lab()
    lab.log.change(api="create_topics", principal="p" * 10_000, host="h", names=["n" * 10_000] * 500, failed=False)
    assert all(len(str(value)) <= CHARS_MAX for value in lab.written[0].values())


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_files_are_private_and_complete(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    file = AuditFile(folder, 1 << 30)
    for number in range(1000):
        file.write({"event": "denied", "name": str(number)})
    file.close()
    assert [each["name"] for each in lines_of(folder)] == [str(number) for number in range(1000)]
    (written,) = folder.iterdir()
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_old_files_are_deleted(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"audit-2026010{number}T000000.000000.jsonl").write_text('{"event": "old"}\n')
    file = AuditFile(tmp_path, 2 * FILE_BYTES_MAX)
    file.write({"event": "new"})
    file.close()
    assert [each["event"] for each in lines_of(tmp_path)] == ["old", "new"]


def test_events_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = AuditFile(tmp_path / "file" / "audit", 1 << 30)
    file.write({"event": "denied"})
    file.close()
    assert file.lost == 1
