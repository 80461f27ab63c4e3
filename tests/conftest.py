"""What all tests share: settings of hypothesis, and randomness with a seed that is printed."""

import os
import random
import sys

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does, and says nothing about the code.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")


@pytest.fixture
def rng() -> random.Random:
    """Randomness from SEED, or from a new seed. A test that fails shows it with its output."""
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"seed {seed}\n")
    return random.Random(seed)
