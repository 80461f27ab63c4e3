"""Programs of Avro decoders and encoders: flat lists of instructions, which the kernel runs for each row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.layout import NOT_THERE, Layout

STEPS_MAX: Final = 200_000
"""Instructions of a program. Unions of records in unions of records can need very many."""
STEP_WORDS: Final = 4


class Program(NamedTuple):
    """Instructions of a decoder or encoder."""

    layout: Layout
    steps: array[int]
    """For each instruction: its operation, its column, and the numbers `a` and `b`."""
    constants: tuple[bytes | None, ...]
    paths: tuple[str, ...]
    """For each instruction: the names of the fields that lead to its value."""


class ProgramWriter:
    """Collects the instructions of a program."""

    def __init__(self) -> None:
        self._steps: list[list[int]] = []
        self._paths: list[str] = []
        self._constants: list[bytes | None] = []

    @property
    def next_step(self) -> int:
        return len(self._steps)

    def add(self, operation: int, path: str, *, column: int = NOT_THERE, a: int = 0, b: int = 0) -> int:
        """Adds an instruction and returns its number."""
        if len(self._steps) == STEPS_MAX:
            raise IncompatibleTypes(f"The schemas are too complex: they need more than {STEPS_MAX} instructions.")
        self._steps.append([operation, column, a, b])
        self._paths.append(path)
        return len(self._steps) - 1

    def add_constants(self, *values: bytes | None) -> int:
        """Adds constants and returns the number of the first one."""
        self._constants.extend(values)
        return len(self._constants) - len(values)

    def set_a(self, step: int) -> None:
        """Makes the next instruction the one where `step` continues."""
        self._steps[step][2] = self.next_step

    def set_b(self, step: int) -> None:
        self._steps[step][3] = self.next_step

    def truncate(self, steps: int) -> None:
        """Removes all instructions after the first `steps`."""
        del self._steps[steps:]
        del self._paths[steps:]

    def link(self, operation: int, targets: Sequence[int]) -> None:
        """Replaces `a` of all instructions with this operation, an index of `targets`, by the target."""
        for step in self._steps:
            if step[0] == operation:
                step[2] = targets[step[2]]

    def finished(self, layout: Layout) -> Program:
        words = array("q", [word for step in self._steps for word in step])
        return Program(layout, words, tuple(self._constants), tuple(self._paths))
