"""Golden bytes of every message in every version, made by others (see make_golden.py)."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from penstock.wire.codec import decode, encode_bytes

from .catalogue import MESSAGES, VERSIONED, label
from .values import can_be_none, from_plain, present

GOLDEN: Final = Path(__file__).parent / "golden"
SAMPLES: Final = ("full", "bare")


class Line(NamedTuple):
    message: Any
    data: bytes


def read_golden() -> dict[tuple[str, int, str], Line]:
    classes = {cls.__name__: cls for cls in MESSAGES}
    found = {}
    for path in sorted(GOLDEN.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, version, sample, _maker, rest = line.split(" ", 4)
            plain, _, data = rest.rpartition(" ")
            message = from_plain(classes[name], int(version), json.loads(plain))
            found[name, int(version), sample] = Line(message, bytes.fromhex(data.strip("-")))
    return found


LINES: Final = read_golden()
each_class = pytest.mark.parametrize("cls", MESSAGES, ids=label)


def lines_of(cls: type) -> list[tuple[int, str, Line]]:
    return [(version, sample, line) for (name, version, sample), line in LINES.items() if name == cls.__name__]


def test_every_message_has_golden_bytes_in_every_version() -> None:
    wanted = {(cls.__name__, version, sample) for cls, version in VERSIONED for sample in SAMPLES}
    assert set(LINES) == wanted, "run: python -m tests.unit.wire.make_golden"


@each_class
def test_our_bytes_are_the_golden_bytes(cls: type) -> None:
    for version, sample, (message, data) in lines_of(cls):
        assert encode_bytes(message, version).hex() == data.hex(), f"{cls.__name__} v{version} {sample}"


@each_class
def test_golden_bytes_decode_to_their_sample_from_any_buffer(cls: type) -> None:
    for version, sample, (message, data) in lines_of(cls):
        for buffer in (data, bytearray(data), memoryview(data)):
            assert decode(cls, version, buffer) == message, f"{cls.__name__} v{version} {sample}"
        assert decode(cls, version, b"header" + data, 6) == message


@each_class
def test_the_full_samples_set_every_field_and_the_bare_ones_no_nullable(cls: type) -> None:
    for version, sample, (message, _) in lines_of(cls):
        if sample == "full":
            assert_all_set(message, version)
        else:
            assert_nulls_null(message, version)


def assert_all_set(value: Any, version: int) -> None:
    for field in present(type(value), version):
        found = getattr(value, field.name)
        assert found is not None
        assert found != field.initial, f"{field.name} has its default"
        for item in found if field.is_array else [found]:
            if field.struct is not None:
                assert_all_set(item, version)
        assert not field.is_array or len(found) == 2


def assert_nulls_null(value: Any, version: int) -> None:
    for field in present(type(value), version):
        found = getattr(value, field.name)
        if field.tag is not None:
            assert not found if field.is_array else found == field.initial
        elif can_be_none(field, version):
            assert found is None
        elif field.struct is not None:
            assert not field.is_array or len(found) == 2
            for item in found if field.is_array else [found]:
                assert_nulls_null(item, version)
