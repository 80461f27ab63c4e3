"""A seed gives the same run in every process, so that a failing seed of a log can be run again."""

import json
import os
import subprocess
import sys

from tests.simulation.seed_counts import SIMULATORS

SEED = 77


def _counts(seed: int, hash_seed: int) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-m", "tests.simulation.seed_counts", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    counts: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counts


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first, second = _counts(SEED, 1), _counts(SEED, 2)
    assert set(first) == set(SIMULATORS)
    assert all(counts["steps"] > 0 for counts in first.values()), first
    for name in SIMULATORS:
        assert first[name] == second[name], f"simulator {name}, seed {SEED}"
