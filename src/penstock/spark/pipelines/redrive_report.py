"""What a redrive has found and done, and the report of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.spark.pipelines.claims import Deleted, Recovered
from penstock.spark.pipelines.pipeline import Report, Sheet

CAUSES_SHOWN: Final = 50
EXAMPLE_CHARS: Final = 120
NOWHERE: Final = "nowhere"
NOTHING: Final = Recovered()


class Cause(NamedTuple):
    """Letters that died alike."""

    cause: str | None
    source: str | None
    letters: int
    matched: int
    free: int
    """Of those that match, how many nobody has in hand."""
    oldest: object


class Example(NamedTuple):
    """A letter before the fix and after it."""

    partition: int
    offset: int
    to: str | None
    before: str | None
    after: str | None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Filled while the pipeline runs."""

    name: str
    """Of the dead-letter queue, or topic."""
    is_dry: bool
    limit: int | None
    recovered: Recovered = NOTHING
    causes: Sequence[Cause] = ()
    targets: Mapping[str | None, str | None] = field(default_factory=dict)
    """By source, the topic that letters go to; None where that is not there."""
    examples: Sequence[Example] = ()
    sent_back: int = 0
    deleted: int = 0
    lost: int = 0

    def add(self, count: int, deleted: Deleted) -> None:
        """A round is done."""
        self.sent_back += count
        self.deleted += deleted.done
        self.lost += deleted.lost

    @property
    def sendable(self) -> int:
        """Letters that match, are in nobody's hands, and have somewhere to go."""
        found = sum(each.free for each in self.causes if self.targets.get(each.source) is not None)
        return found if self.limit is None else min(found, self.limit)

    def report(self, seconds: float) -> Report:
        return Report(
            verdict=self._verdict(),
            is_well=not (self.lost or self.recovered.lost),
            facts=self._facts(seconds),
            sheets=self._sheets(),
        )

    @property
    def _examined(self) -> int:
        return sum(each.letters for each in self.causes)

    def _verdict(self) -> str:
        of = f"of {self._examined} dead letters of {self.name}"
        if self.is_dry:
            return f"{self.sendable} {of} would be sent back; nothing was changed"
        said = f"{self.sent_back} {of} were sent back"
        if self.recovered.finished:
            said += f"; {self.recovered.finished} that a run before this one had sent back were deleted"
        if self.lost or self.recovered.lost:
            said += (
                f"; {self.lost + self.recovered.lost} were received by somebody else too, once their claim was over"
            )
        return said

    def _facts(self, seconds: float) -> dict[str, object]:
        known = self.causes
        nowhere = sum(each.matched for each in known if self.targets.get(each.source) is None)
        facts: dict[str, object] = {
            "examined": self._examined,
            "matched": sum(each.matched for each in known),
            "sent_back": self.sent_back,
            "deleted": self.deleted,
            "left": self._examined - self.deleted,
            "in_flight": sum(each.matched - each.free for each in known),
            "without_source": nowhere,
            "recovered": self.recovered.finished,
            "given_back": self.recovered.returned,
            "seconds": round(seconds, 1),
        }
        return {**facts, "would_be_sent_back": self.sendable} if self.is_dry else facts

    def _sheets(self) -> list[Sheet]:
        rows = [
            (
                one.cause,
                one.source,
                self.targets.get(one.source) or NOWHERE,
                one.letters,
                one.matched,
                str(one.oldest),
            )
            for one in self.causes[:CAUSES_SHOWN]
        ]
        columns = ["CAUSE", "SOURCE", "TO", "#LETTERS", "#MATCH", "OLDEST"]
        sheets = [Sheet(title="dead letters", columns=columns, rows=rows)]
        if self.examples:
            shown = [
                (one.partition, one.offset, one.to or NOWHERE, _cut(one.before), _cut(one.after))
                for one in self.examples
            ]
            titles = ["#PARTITION", "#OFFSET", "TO", "VALUE", "VALUE SENT BACK"]
            sheets.append(Sheet(title="examples", columns=titles, rows=shown))
        return sheets


def _cut(said: str | None) -> str:
    if said is None:
        return "(no text)"
    return said if len(said) <= EXAMPLE_CHARS else f"{said[: EXAMPLE_CHARS - 1]}…"
