"""The driver of a redrive, as a process that kills itself at a named step, or runs to its end.

Run with one argument, JSON: bootstrap, dies_at (how the step begins; empty: never), options. Prints the report.
"""

import json
import os
import signal
import sys
from typing import Any

from penstock.spark.pipelines.catalogue import load
from penstock.spark.pipelines.runner import run_loaded

SPARK = "{spark.driver.memory: 512m, spark.sql.shuffle.partitions: 1, spark.log.level: ERROR}"


def main(plan: dict[str, Any]) -> None:
    def on_step(step: str) -> None:
        if plan["dies_at"] and step.startswith(plan["dies_at"]):
            os.kill(os.getpid(), signal.SIGKILL)

    loaded = load("redrive", [("spark", SPARK), *plan["options"].items()], plan["bootstrap"])
    report = run_loaded(loaded, master="local[2]", once=True, on_batch=lambda batch: None, on_step=on_step)
    sys.stdout.write(json.dumps(report.as_json()) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
