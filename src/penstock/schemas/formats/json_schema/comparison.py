"""Compares two loaded schemas: whether data of the first, the writer's, can be read with the second, the reader's.

The rules are those of Confluent's registry. Comparing a pair of schemas compares pairs of their parts. Recursive
schemas come back to a pair that is still being compared. It is taken for compatible, and if that turns out to be
wrong, the comparison is repeated with what is known by then, until nothing changes.

Each comparison is a generator that yields the pairs it needs and is sent their findings. So schemas may be nested, or
refer to one another, without limit.
"""

from collections.abc import Callable, Generator
from typing import Final

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.fingerprints import Fingerprints
from penstock.schemas.formats.json_schema.kinds import COMPATIBLE
from penstock.schemas.formats.json_schema.regexes import compile_pattern
from penstock.schemas.formats.json_schema.schema_nodes import Node, ReferenceNode

Findings = tuple[tuple[str, "str | Findings"], ...]
"""Incompatible differences: each a path and a kind, or a path and the findings below it. Empty: compatible."""
Pair = tuple[Node | None, Node | None]
Steps = Generator[Pair, Findings, None]
"""A comparison in progress: yields pairs to compare, and is sent their findings."""

COMPARISONS_MAX: Final = 150_000
"""Pairs of schemas compared: two unions of 380 members each, all different. About a second."""
STEPS_MAX: Final = 3_000_000
"""Smaller steps: tests of patterns and searches for matching members of unions."""
_PATTERN_STEPS: Final = 10
"""Steps that a test of a pattern counts for, besides those for the length of the name."""
DEPTH_MAX: Final = 20_000
"""Pairs that wait for one another, about 1 KB each."""
FINDINGS_MAX: Final = 1_000
"""Differences that are reported."""
REPORT_CHARS_MAX: Final = 1_000_000
"""Characters of all paths that are reported."""


class Comparison:
    """What the comparisons of one reader with one writer share."""

    def __init__(self, compatible: frozenset[str] = COMPATIBLE) -> None:
        self.compatible = compatible
        self.fingerprints = Fingerprints()
        self._patterns: dict[str, Callable[[str], bool]] = {}
        self._steps_left = STEPS_MAX
        self._pairs_left = COMPARISONS_MAX

    def spend(self, steps: int = 1) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise _too_complex()

    def spend_pair(self) -> None:
        self._pairs_left -= 1
        if self._pairs_left < 0:
            raise _too_complex()

    def finds(self, pattern: str, name: str) -> bool:
        """Whether a pattern of `patternProperties` matches the name of a property."""
        self.spend(_PATTERN_STEPS + len(name) // 16)
        matches = self._patterns.get(pattern)
        if matches is None:
            matches = self._patterns[pattern] = compile_pattern(pattern)
        return matches(name)


class Finder:
    """Collects the findings of one pair."""

    __slots__ = ("comparison", "items")

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.items: list[tuple[str, str | Findings]] = []

    def add(self, path: str, kind: str) -> None:
        if kind not in self.comparison.compatible:
            self.items.append((path, kind))

    def add_below(self, path: str, findings: Findings) -> None:
        if findings:
            self.items.append((path, findings))


Compare = Callable[[Finder, Node, Node], Steps]


def compare(comparison: Comparison, writer: Node, reader: Node, compare_pair: Compare) -> Findings:
    """Returns the incompatible differences. `compare_pair` compares two schemas that are no references."""
    seeds: dict[tuple[int, int], Findings] = {}
    while True:
        run = _Run(comparison, seeds, compare_pair)
        findings = run.run(writer, reader)
        wrong = {key: found for key, found in run.known.items() if found}
        if not run.has_assumed or wrong.keys() == seeds.keys():
            return findings
        seeds = wrong


def flatten(findings: Findings) -> list[tuple[str, str]]:
    """Returns paths, as JSON pointers, and kinds of differences: at most FINDINGS_MAX, REPORT_CHARS_MAX in all."""
    found: list[tuple[str, str]] = []
    chars_left = REPORT_CHARS_MAX
    segments: list[str] = []
    stack = [iter(findings)]
    while stack and chars_left > 0 and len(found) < FINDINGS_MAX:
        item = next(stack[-1], None)
        if item is None:
            stack.pop()
            if segments:
                segments.pop()
            continue
        path, kind = item
        if not isinstance(kind, str):
            segments.append(path)
            stack.append(iter(kind))
            continue
        whole = "#/" + "/".join(part for part in (*segments, path) if part)
        found.append((whole[:chars_left], kind))
        chars_left -= len(whole)
    return found


class _Run:
    """One pass over all pairs. `seeds`: the findings of pairs that an earlier pass found to be incompatible."""

    def __init__(self, comparison: Comparison, seeds: dict[tuple[int, int], Findings], compare_pair: Compare) -> None:
        self.known: dict[tuple[int, int], Findings] = {}
        self.has_assumed = False
        """Whether a pair was taken for compatible because it was still being compared."""
        self._comparison = comparison
        self._seeds = seeds
        self._compare_pair = compare_pair
        self._waiting: set[tuple[int, int]] = set()
        self._stack: list[tuple[tuple[int, int], Finder, Steps]] = []

    def run(self, writer: Node, reader: Node) -> Findings:
        answer = self._start((writer, reader))
        while self._stack:
            key, finder, steps = self._stack[-1]
            try:
                pair = next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                answer = self.known[key] = tuple(finder.items)
                self._waiting.discard(key)
                self._stack.pop()
            else:
                answer = self._start(pair)
        return answer or ()

    def _start(self, pair: Pair) -> Findings | None:
        """Returns the findings of a pair if they are known; otherwise starts its comparison and returns None."""
        writer, reader = _follow(pair[0]), _follow(pair[1])
        if writer is None or reader is None:
            added = writer is None and reader is not None and "SCHEMA_ADDED" not in self._comparison.compatible
            return (("", "SCHEMA_ADDED"),) if added else ()
        key = (id(writer), id(reader))
        if key in self.known:
            return self.known[key]
        if key in self._waiting:
            if key in self._seeds:
                return self._seeds[key]
            self.has_assumed = True
            return ()
        if len(self._stack) >= DEPTH_MAX:
            raise InvalidSchema(
                f"The schemas are too complex to be compared: nested more than {DEPTH_MAX} levels deep."
            )
        self._comparison.spend_pair()
        self._waiting.add(key)
        finder = Finder(self._comparison)
        self._stack.append((key, finder, self._compare_pair(finder, writer, reader)))
        return None


def _follow(node: Node | None) -> Node | None:
    """Returns what a reference refers to. Like Confluent's registry, it follows one reference only."""
    return node.target if isinstance(node, ReferenceNode) else node


def _too_complex() -> InvalidSchema:
    return InvalidSchema("The schemas are too complex to be compared: their combined schemas have too many members.")
