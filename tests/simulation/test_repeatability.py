"""A seed gives the same run in every process, so that a failing seed of a log can be run again."""

import json
import os
import subprocess
import sys

import pytest

from tests.simulation.seed_counts import SIMULATORS


def _counts(seed: int, hash_seed: int) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-m", "tests.simulation.seed_counts", str(seed)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    counts: dict[str, dict[str, int]] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("seed", [77, 78])
def test_a_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    first, second = _counts(seed, 1), _counts(seed, 2)
    assert set(first) == set(SIMULATORS)
    assert all(counts["steps"] > 0 for counts in first.values()), first
    for name in SIMULATORS:
        assert first[name] == second[name], f"simulator {name}, seed {seed}"
