"""The query of docs/security.md: denied attempts by user, from the files of the audit log."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.security.audit import AuditLog, Kind
from penstock.security.audit_file import AuditFile


def test_denied_attempts_by_user(spark: SparkSession, tmp_path: Path) -> None:
    file = AuditFile(tmp_path, 1 << 30)
    log = AuditLog(file.write, lambda: 0.0, frozenset(Kind))
    for user, attempts in (("eve", 3), ("bob", 1)):
        for _ in range(attempts):
            log.access(
                allowed=False, principal=f"User:{user}", host="h", operation="read", resource=("topic", "orders")
            )
    log.login(ok=True, user="ann", host="h", listener="SASL", mechanism="PLAIN")
    log.flush(all_of_them=True)
    file.close()
    events = spark.read.json(f"{tmp_path}/*.jsonl")
    denied = events.where("event = 'denied'").groupBy("principal", "operation", "type", "name")
    found = {(row["principal"], row["name"], row["sum(count)"]) for row in denied.sum("count").collect()}
    assert found == {("User:eve", "orders", 3), ("User:bob", "orders", 1)}
