"""Rules for combined schemas: `allOf`, `anyOf` and `oneOf`.

Each member of the shorter list needs a compatible member of the longer one, all different: a matching of the largest
size, which is searched along alternating paths. Pairs are compared only when the search asks for them, members at the
same position first: the same union is compared in linear time.
"""

from collections.abc import Generator, Iterator

from penstock.schemas.formats.json_schema.comparison import Finder, Findings, Pair, Steps
from penstock.schemas.formats.json_schema.fingerprints import Fingerprints
from penstock.schemas.formats.json_schema.schema_nodes import CombinedNode, Criterion, Node


def compare_unions(found: Finder, writer: CombinedNode, reader: CombinedNode) -> Steps:
    if writer.criterion is not reader.criterion and not _may_change(writer, reader):
        found.add("", "COMBINED_TYPE_CHANGED")
        return
    fingerprints = found.comparison.fingerprints
    old, new = _distinct(writer.members, fingerprints), _distinct(reader.members, fingerprints)
    if len(old) < len(new):
        found.add("", "PRODUCT_TYPE_EXTENDED" if reader.criterion is Criterion.ALL else "SUM_TYPE_EXTENDED")
    elif len(old) > len(new):
        found.add("", "PRODUCT_TYPE_NARROWED" if writer.criterion is Criterion.ALL else "SUM_TYPE_NARROWED")
    yield from _Matching(found, old, new).match_all()


class _Matching:
    """The matching of the members of two combined schemas."""

    def __init__(self, found: Finder, old: list[Node], new: list[Node]) -> None:
        self._found = found
        self._old_is_shorter = len(old) <= len(new)
        self._left, self._right = (old, new) if self._old_is_shorter else (new, old)
        self._partner: dict[int, int] = {}
        """The left member that each right member is matched with."""
        self._fits: dict[tuple[int, int], bool] = {}

    def match_all(self) -> Steps:
        """Matches all members of the shorter list, or finds that it is not possible."""
        for left in range(len(self._left)):
            if not (yield from self._match(left)):
                self._found.add("", "COMBINED_TYPE_SUBSCHEMAS_CHANGED")
                return

    def _match(self, start: int) -> Generator[Pair, Findings, bool]:
        """Matches one more left member, if need be by giving matched ones another partner."""
        seen: set[int] = set()
        path: list[tuple[int, Iterator[int]]] = [(start, self._candidates(start))]
        chosen: list[int] = []
        while path:
            left, candidates = path[-1]
            right = next((index for index in candidates if index not in seen), None)
            if right is None:
                path.pop()
                if chosen:
                    chosen.pop()
                continue
            self._found.comparison.spend()
            fits = self._fits.get((left, right))
            if fits is None:
                one, other = self._left[left], self._right[right]
                findings = yield (one, other) if self._old_is_shorter else (other, one)
                fits = self._fits[left, right] = not findings
            if fits:
                seen.add(right)
                chosen.append(right)
                if right not in self._partner:
                    for (matched, _), partner in zip(path, chosen, strict=True):
                        self._partner[partner] = matched
                    return True
                path.append((self._partner[right], self._candidates(self._partner[right])))
        return False

    def _candidates(self, left: int) -> Iterator[int]:
        yield left
        yield from (index for index in range(len(self._right)) if index != left)


def _may_change(writer: CombinedNode, reader: CombinedNode) -> bool:
    """Whether a criterion may become another without looking at the members."""
    return (
        reader.criterion is Criterion.ANY
        or (len(writer.members) == 1 and (len(reader.members) == 1 or reader.criterion is Criterion.ONE))
        or (len(reader.members) == 1 and writer.criterion is Criterion.ALL)
    )


def _distinct(members: list[Node], fingerprints: Fingerprints) -> list[Node]:
    """Returns the members without repetitions."""
    return list({fingerprints.of(member): member for member in reversed(members)}.values())[::-1]
