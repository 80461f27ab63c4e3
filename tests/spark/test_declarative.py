"""Spark Declarative Pipelines (`spark-pipelines`) with a topic as source and a topic as sink. Slow: `make spark`."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing
from tests.pages.examples import examples_of
from tests.pages.test_examples import addressed

from .conftest import ENVIRONMENT
from .lab import Lab

RUN_S_MAX = 900.0
CATALOG = ("--conf", "spark.sql.catalogImplementation=hive")
"""As on the page: Spark's default catalog forgets tables, and their folders then stop the second run."""


def run(folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--conf", "spark.driver.memory=1g"]
    done = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2", *CATALOG],
        cwd=folder,
        # SPARK_TESTING: the Connect server inside takes a free port.
        env=os.environ | ENVIRONMENT | {"SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(2 * RUN_S_MAX + 60)
def test_the_project_of_the_page_reads_a_topic_and_writes_another_once(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    assert " ".join(CATALOG) in Path("docs/spark.md").read_text()
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create("orders", 2)
    lab.create("orders-items")
    files = {example.name: addressed(example.text, broker) for example in examples_of("docs/spark.md")}
    (tmp_path / "transformations").mkdir()
    for name in ("transformations/orders.py", "spark-pipeline.yml"):
        text = files[f"# {name}"].replace("/var/lib/shop", str(tmp_path / "storage"))
        (tmp_path / name).write_text(text)
    counts = "CREATE MATERIALIZED VIEW counts AS SELECT item, count(*) AS n FROM orders GROUP BY item\n"
    (tmp_path / "transformations" / "counts.sql").write_text(counts)
    for start in (0, 30):
        rows: list[dict[str, Any]] = [{"id": each, "item": f"i{each % 3}"} for each in range(start, start + 30)]
        lab.fill("orders", [Outgoing(value=json.dumps(row).encode(), partition=row["id"] % 2) for row in rows])
        run(tmp_path)
        assert sorted(int(row["key"]) for row in lab.rows("orders-items")) == list(range(start + 30))
    assert Counter(lab.values("orders-items")) == {b"I0": 20, b"I1": 20, b"I2": 20}
    found = pq.read_table(tmp_path / "spark-warehouse" / "counts").to_pylist()
    assert sorted((row["item"], row["n"]) for row in found) == [("i0", 20), ("i1", 20), ("i2", 20)]
