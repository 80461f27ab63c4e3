"""Partition offsets in the JSON format of Spark's Kafka source: `{"orders": {"0": 12, "1": 7}}`."""

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from penstock.foundation.ids import TopicPartition
from penstock.spark.errors import BadOption

Positions = dict[TopicPartition, int]
"""The next offset to read from each partition."""

EARLIEST = -2
LATEST = -1
"""The offset value in options that means the latest offset; EARLIEST means the earliest."""


class JsonForm(Enum):
    """The kinds of JSON that options accept. Each value is an example for error messages."""

    PARTITIONS = '{"orders": [0, 1]}'
    OFFSETS = '{"orders": {"0": 23, "1": -2}}'
    TIMESTAMPS = '{"orders": {"0": 1767225600000}}'


def write_positions(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Encodes offsets as JSON objects, sorted by topic and partition because Spark compares the encoded text."""
    written: dict[str, dict[str, int]] = {}
    for tp in sorted(positions):
        written.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    return written


def read_positions(value: object) -> Positions:
    """Decodes the output of `write_positions`. Raises ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object of topics")
    found: Positions = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} has {partitions!r}, not an object of partitions and offsets")
        for number, offset in partitions.items():
            if not str(number).isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError(f"{topic!r} has {number!r}: {offset!r}, not a partition and a number")
            found[TopicPartition(topic, int(number))] = offset
    return found


def parse_positions(option: str, text: str, form: JsonForm, *, least: int) -> Positions:
    """Parses an option whose JSON maps partitions to integers. Raises BadOption if an integer is below `least`."""
    try:
        found = read_positions(_parse(text))
    except ValueError as error:
        raise _wrong(option, text, form, str(error)) from None
    if not found:
        raise _wrong(option, text, form, "it names no partition")
    for tp, number in found.items():
        if number < least:
            raise _wrong(option, text, form, f"partition {tp} has {number}; the minimum is {least}")
    return found


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """Parses an option that lists partitions, such as `{"orders": [0, 1]}`. Raises BadOption if it is malformed."""
    form = JsonForm.PARTITIONS
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
    return json.loads(text)  # raises ValueError with the position


def _wrong(option: str, text: str, form: JsonForm, why: str) -> BadOption:
    return BadOption(f"option {option!r} is {text!r}; it must be like {form.value}: {why}")
