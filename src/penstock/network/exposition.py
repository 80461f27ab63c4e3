"""Prometheus text format (0.0.4), produced in pieces so that a large scrape does not block the event loop.

A broker with 10,000 topics has more than 30,000 samples. A collector yields None where the scrape may pause, and the
text is produced in pieces of at most `SAMPLES_MAX` lines.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

SAMPLES_MAX: Final = 200
"""Maximum number of sample lines that are formatted before the event loop runs: about a millisecond of work."""
ITEMS_PER_SLICE: Final = 200
"""Number of items, such as partitions, that a collector scans before it yields None to let the event loop run."""


class LargeGauge(NamedTuple):
    """A metric family with thousands of samples, which are generated one by one while the text is written."""

    name: str
    documentation: str
    samples: Iterator[Sample]
    type: str = "gauge"


class Collector(Protocol):
    def collect(self) -> Iterator[Metric | LargeGauge | None]: ...


def text_pieces(metrics: Iterable[Metric | LargeGauge | None]) -> Iterator[bytes]:
    """Yields the text of the metrics in pieces, of which some are empty. The caller may pause after each piece."""
    for metric in metrics:
        if metric is None:
            yield b""
            continue
        name = metric.name + "_total" if metric.type == "counter" else metric.name
        yield f"# HELP {name} {_escape(metric.documentation)}\n# TYPE {name} {metric.type}\n".encode()
        samples = iter(metric.samples)
        while lines := "".join(map(_line, islice(samples, SAMPLES_MAX))):
            yield lines.encode()


def _line(sample: Sample) -> str:
    labels = ",".join([f'{name}="{_escape_value(value)}"' for name, value in sorted(sample.labels.items())])
    return f"{sample.name}{'{' + labels + '}' if labels else ''} {float(sample.value)!r}\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_value(text: str) -> str:
    return _escape(text).replace('"', r"\"")
