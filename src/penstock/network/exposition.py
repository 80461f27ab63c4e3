"""Metrics as text for Prometheus (exposition format 0.0.4), in pieces.

A broker with 10,000 topics has more than 30,000 samples, which take long to collect and write. Collectors yield None
wherever the event loop may serve others, and text comes in pieces of `SAMPLES_MAX` lines.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

SAMPLES_MAX: Final = 200
"""Of one piece of text: about a millisecond."""
PACE: Final = 200
"""Partitions, queues or the like that a collector looks at before it yields None."""


class LargeGauge(NamedTuple):
    """A family of samples that are made while they are written: thousands are never held together."""

    name: str
    documentation: str
    samples: Iterator[Sample]
    type: str = "gauge"


class Collector(Protocol):
    def collect(self) -> Iterator[Metric | LargeGauge | None]: ...


def text_pieces(metrics: Iterable[Metric | LargeGauge | None]) -> Iterator[bytes]:
    """Yields the text of metrics. Between two pieces the event loop may run; some are empty."""
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
