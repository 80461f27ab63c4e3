"""The outcome of a redrive, and its report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.spark.pipelines.claims import Deleted, Recovered
from penstock.spark.pipelines.pipeline import Report, ReportTable

CAUSES_SHOWN: Final = 50
EXAMPLE_CHARS: Final = 120
NOWHERE: Final = "nowhere"
NOTHING: Final = Recovered()


class Cause(NamedTuple):
    """Counts of the dead letters that have the same cause and the same source."""

    cause: str | None
    source: str | None
    letters: int
    matched: int
    free: int
    """Number of dead letters that match the filter and are not in flight."""
    oldest: object


class Example(NamedTuple):
    """The value of a dead letter before and after the fix."""

    partition: int
    offset: int
    to: str | None
    before: str | None
    after: str | None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The counts and examples of a redrive, updated while it runs."""

    name: str
    """Name of the dead-letter queue or topic."""
    is_dry: bool
    limit: int | None
    recovered: Recovered = NOTHING
    causes: Sequence[Cause] = ()
    targets: Mapping[str | None, str | None] = field(default_factory=dict)
    """The topic to which dead letters of each source are sent back; None if no such topic was found."""
    examples: Sequence[Example] = ()
    sent_back: int = 0
    deleted: int = 0
    lost: int = 0

    def add(self, count: int, deleted: Deleted) -> None:
        self.sent_back += count
        self.deleted += deleted.done
        self.lost += deleted.lost

    @property
    def sendable(self) -> int:
        """Number of matching dead letters, at most `limit`, that are not in flight and have a target topic."""
        found = sum(each.free for each in self.causes if self.targets.get(each.source) is not None)
        return found if self.limit is None else min(found, self.limit)

    def report(self, seconds: float) -> Report:
        return Report(
            verdict=self._verdict(),
            is_ok=not (self.lost or self.recovered.lost),
            facts=self._facts(seconds),
            tables=self._report_tables(),
        )

    @property
    def _examined(self) -> int:
        return sum(each.letters for each in self.causes)

    def _verdict(self) -> str:
        of = f"of {self._examined} dead letters of {self.name}"
        if self.is_dry:
            return f"{self.sendable} {of} would be sent back; nothing was changed"
        verdict = f"{self.sent_back} {of} were sent back"
        if self.recovered.finished:
            verdict += f"; {self.recovered.finished} that an earlier run had sent back were deleted"
        if self.lost or self.recovered.lost:
            lost = self.lost + self.recovered.lost
            verdict += f"; {lost} were also received by another consumer after their claim had expired"
        return verdict

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

    def _report_tables(self) -> list[ReportTable]:
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
        tables = [ReportTable(title="dead letters", columns=columns, rows=rows)]
        if self.examples:
            example_rows = [
                (one.partition, one.offset, one.to or NOWHERE, _shorten(one.before), _shorten(one.after))
                for one in self.examples
            ]
            titles = ["#PARTITION", "#OFFSET", "TO", "VALUE", "VALUE SENT BACK"]
            tables.append(ReportTable(title="examples", columns=titles, rows=example_rows))
        return tables


def _shorten(verdict: str | None) -> str:
    if verdict is None:
        return "(no text)"
    return verdict if len(verdict) <= EXAMPLE_CHARS else f"{verdict[: EXAMPLE_CHARS - 1]}…"
