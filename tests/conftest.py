"""What all tests share: settings of hypothesis, and randomness with a seed that is printed."""

import gc
import os
import random
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import scaled

# How long an example takes depends on what else the machine does, and says nothing about the code.
settings.register_profile(
    "penstock", max_examples=scaled(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")

# Commands that tests run must not use a context of whom runs the tests.
os.environ["PENSTOCK_CONTEXTS"] = "/nonexistent/contexts.json"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Called if pytest-xdist runs the tests; None leaves the choice to it."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.file_scheduler import FileScheduling

    return FileScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Collects tests without the garbage collector, which then never looks at them: 16,000 live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def rng() -> random.Random:
    """Randomness from SEED, or from a new seed. A test that fails shows it with its output."""
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"seed {seed}\n")
    return random.Random(seed)
