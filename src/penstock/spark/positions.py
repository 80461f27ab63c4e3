"""Offsets of partitions in the JSON of Spark's Kafka source: `{"orders": {"0": 12, "1": 7}}`."""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from penstock.foundation.ids import TopicPartition
from penstock.spark.errors import BadOption

Positions = dict[TopicPartition, int]
"""The offset that comes next in each partition."""

EARLIEST = -2
LATEST = -1
"""In the place of an offset, as options write them."""


class Form(Enum):
    """What a JSON option holds, by an example of it."""

    PARTITIONS = '{"orders": [0, 1]}'
    OFFSETS = '{"orders": {"0": 23, "1": -2}}'
    TIMESTAMPS = '{"orders": {"0": 1767225600000}}'


def write_positions(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """By topic and number, so that equal positions are equal texts: Spark compares the texts."""
    written: dict[str, dict[str, int]] = {}
    for name in sorted(positions):
        written.setdefault(name.topic, {})[str(name.partition)] = positions[name]
    return written


def read_positions(value: object) -> Positions:
    """The inverse of `write_positions`. ValueError if it is something else."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object of topics")
    found: Positions = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} has {partitions!r}, not offsets by partition")
        for number, offset in partitions.items():
            if not str(number).isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError(f"{topic!r} has {number!r}: {offset!r}, not a partition and a number")
            found[TopicPartition(topic, int(number))] = offset
    return found


def parse_positions(option: str, text: str, form: Form, *, least: int) -> Positions:
    """What an option says of partitions."""
    try:
        found = read_positions(_parse(text))
    except ValueError as error:
        raise _wrong(option, text, form, str(error)) from None
    if not found:
        raise _wrong(option, text, form, "it names no partition")
    for name, number in found.items():
        if number < least:
            raise _wrong(option, text, form, f"partition {name} has {number}, the least is {least}")
    return found


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """`{"orders": [0, 1]}` as partitions."""
    form = Form.PARTITIONS
    try:
        value = _parse(text)
    except ValueError as error:
        raise _wrong(option, text, form, str(error)) from None
    found = set()
    for topic, numbers in value.items() if isinstance(value, dict) else ():
        if not isinstance(numbers, list) or any(type(number) is not int or number < 0 for number in numbers):
            raise _wrong(option, text, form, f"{topic!r} has {numbers!r}, not a list of partitions")
        found |= {TopicPartition(topic, number) for number in numbers}
    if not found:
        raise _wrong(option, text, form, "it names no partition")
    return frozenset(found)


def _parse(text: str) -> Any:
    return json.loads(text)  # its error is a ValueError that says where


def _wrong(option: str, text: str, form: Form, why: str) -> BadOption:
    return BadOption(f"option {option!r} is {text!r}, it must be like {form.value}: {why}")
