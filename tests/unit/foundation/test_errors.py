"""The tree of errors, each with its code."""

import importlib
import pkgutil

import penstock
from penstock.foundation.clock import SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError


def _all_errors() -> set[type[PenstockError]]:
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.startswith(("penstock.cli", "penstock.spark")):
            importlib.import_module(found.name)
    known: set[type[PenstockError]] = set()
    new = {PenstockError}
    while new:
        known |= new
        new = {child for parent in new for child in parent.__subclasses__()} - known
    return known


def test_every_error_has_a_code_that_says_that_something_went_wrong() -> None:
    errors = _all_errors()
    assert len(errors) > 20
    assert all(isinstance(error.code, ErrorCode) and error.code is not ErrorCode.NONE for error in errors)


def test_an_errors_message_is_what_it_was_made_with() -> None:
    assert PenstockError("what was wrong").message == "what was wrong"


def test_codes_are_kafkas() -> None:
    assert (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID) == (1, 56, 100)
    numbers = sorted(int(code) for code in ErrorCode)
    assert numbers == list(range(-1, numbers[-1] + 1)), "a code is missing"


def test_the_clock_counts_milliseconds_and_never_runs_backwards() -> None:
    clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    readings = [clock.monotonic_s() for _ in range(100)]
    assert readings == sorted(readings)
