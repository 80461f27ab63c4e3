"""Tables, verdicts, and the Markdown file that they end up in."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.frames import SEED
from bench.load import CLIENT_BUSY_MAX, Sample
from bench.scale import GB, Scale

AT_LEAST: Final = "≥"
AT_MOST: Final = "≤"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure must reach: `Bar(AT_LEAST, 0.5)`."""

    sign: str
    value: float
    unit: str = ""

    def judge(self, figure: float) -> bool:
        return figure >= self.value if self.sign == AT_LEAST else figure <= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}{self.unit}"


@dataclass(slots=True, kw_only=True)
class Table:
    """The answer to one question."""

    slug: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    met: int = 0
    reason_not_run: str = ""

    def verdict(self, what: str, figure: float, bar: Bar) -> str:
        """A cell with the bar and whether it was met; counted for the summary."""
        if bar.judge(figure):
            self.met += 1
            return f"✅ {bar}"
        self.missed.append(f"{what}: {figure:.3g}{bar.unit}, bar {bar}")
        return f"❌ {bar}"

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.reason_not_run:
            return "\n".join([*lines, f"Not run: {self.reason_not_run}", ""])
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append(
            "| " + " | ".join("---" if number == 0 else "---:" for number in range(len(self.columns))) + " |"
        )
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines.append("")
        for note in self.notes:
            lines += [f"- {note}"]
        return "\n".join([*lines, ""])


# -- figures


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> tuple[float, str]:
    """The median of the ratios of paired runs, and it as text with the lowest and highest of them."""
    ratios = [a / b if b else float("inf") for a, b in zip(ours, theirs, strict=True)]
    middle = median(ratios)
    text = f"**{middle:.2f}**"
    if len(ratios) > 1:
        text += f" ({min(ratios):.2f}-{max(ratios):.2f})"
    return middle, text


def rate(samples: Sequence[Sample], single: bool) -> str:
    """Requests a second where they are small, megabytes a second where they are not."""
    if single:
        return f"{median(sample.per_s for sample in samples):,.0f}/s"
    return f"{median(sample.mb_per_s for sample in samples):,.0f} MB/s"


def cores(samples: Sequence[Sample]) -> str:
    return f"{median(sample.broker_busy for sample in samples):.2f}"


def cpu_per_gb(samples: Sequence[Sample]) -> str:
    return f"{median(sample.broker_cpu_s_per_gb for sample in samples):.2f}"


def cpu_each(samples: Sequence[Sample]) -> str:
    """Microseconds of the broker's CPU for one of the things that were counted."""
    return f"{median(sample.broker_cpu_us_each for sample in samples):,.0f}"


def client(*sides: Sequence[Sample]) -> str:
    """How busy the client was on each side; marked where it, and not the server, may be what was measured."""
    busy = [median(sample.client_busy for sample in samples) for samples in sides]
    return " / ".join(mark_busy(share) for share in busy)


def mark_busy(share: float) -> str:
    return f"{share:.0%}" + (" ⚠" if share > CLIENT_BUSY_MAX else "")


def is_client_bound(samples: Sequence[Sample]) -> bool:
    return median(sample.client_busy for sample in samples) > CLIENT_BUSY_MAX


def noise(found: Iterable[Mapping[str, Sequence[Sample]]]) -> str:
    """A note on how quiet the machine was."""
    others = [sample.other_busy for cell in found for side in cell.values() for sample in side]
    return (
        f"Everything else on the machine, the kernel's own threads included, took {median(others):.2f} cores in the "
        f"median run and {max(others):.2f} at most."
    )


# -- the file


def write_up(tables: Sequence[Table], facts: Mapping[str, str], command: str, scale: Scale, took_s: float) -> str:
    """All of RESULTS.md."""
    met = sum(table.met for table in tables)
    missed = [f"{table.title}: {text}" for table in tables for text in table.missed]
    not_run = [f"{table.title}: not run: {table.reason_not_run}" for table in tables if table.reason_not_run]
    lines = [
        "# Results",
        "",
        f"Written by `{command}` on {time.strftime('%Y-%m-%d')}, in {took_s / 60:.0f} minutes.",
        "Servers and clients share one machine: "
        + ", ".join(f"{name} {value}" for name, value in facts.items())
        + ".",
        "",
    ]
    if scale.name == "quick":
        lines += [
            "**A quick run: short, and often of a single round. It shows that everything works; do not quote it.**",
            "",
        ]
    lines += [
        "Every ratio is of two servers measured in turn in this one run; it is the median of the rounds, with the "
        "lowest and the highest. The load is requests encoded beforehand, replayed by a small C program "
        "(`bench/load.c`) that checks the size, the error code and the first offset of every answer, and throws "
        "the bodies of large ones away in the kernel. A client that keeps its core more than "
        f"{CLIENT_BUSY_MAX:.0%} busy is marked ⚠, since the figure is then its own. Memory is RssAnon unless said "
        f"otherwise. GB and MB are powers of ten. Rounds: {scale.rounds} of {scale.window_s:g} s or "
        f"{scale.bytes_max / GB:g} GB each, after {scale.ramp_s:g} s unmeasured; payloads are random, seed {SEED}.",
        "",
        f"**{met} of {met + len(missed)} bars are met.**",
        *(f"- ❌ {text}" for text in missed),
        *(f"- ⏸ {text}" for text in not_run),
        "",
    ]
    return "\n".join(lines + [table.markdown() for table in tables])
