"""Draws SVG plots without a library: lines over time and bars, coloured by the page's style sheet."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 880
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 14, 28
_BAR: Final = 24


class Series(NamedTuple):
    """A line of a plot: its name, and a value or None for each point in time."""

    name: str
    values: Sequence[float | None]


def short(number: float) -> str:
    """Formats a number with three digits and a unit prefix.

    >>> short(1234567), short(950), short(0.25)
    ('1.23M', '950', '0.25')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def ticks(most: float, count: int = 4) -> list[float]:
    """Returns round numbers for an axis, from 0 to at least `most`.

    >>> ticks(87)
    [0.0, 25.0, 50.0, 75.0, 100.0]
    """
    if most < 1e-12 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / count
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def clock(at_ms: int, span_ms: int) -> str:
    """Formats a time as an axis label, as precisely as the time span of the plot requires."""
    when = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    if span_ms > 3 * 86_400_000:
        return when.strftime("%d %b")
    if span_ms > 86_400_000:
        return when.strftime("%d %b %H:%M")
    return when.strftime("%H:%M" if span_ms > 1_800_000 else "%H:%M:%S")


def lines(times_ms: Sequence[int], series: Sequence[Series], unit: str) -> str:
    """Returns an SVG plot of lines over time, with a legend."""
    values = [value for each in series for value in each.values if value is not None]
    if not times_ms or not values:
        return '<p class="none">There is nothing to show.</p>'
    marks = ticks(max(values))
    begin, span = times_ms[0], max(1, times_ms[-1] - times_ms[0])
    inner = WIDTH - _LEFT - _RIGHT

    def x(at_ms: int) -> float:
        return _LEFT + inner * (at_ms - begin) / span

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / marks[-1]

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)} over time">']
    parts += [_rule(y(mark), short(mark)) for mark in marks]
    for step in range(5):
        at_ms = begin + span * step // 4
        anchor = ("start", "middle", "middle", "middle", "end")[step]
        label = clock(at_ms, span)
        parts.append(f'<text class="axis" x="{x(at_ms):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
    for number, each in enumerate(series):
        parts += _line(each, number, [x(at_ms) for at_ms in times_ms], y)
    legend = "".join(
        f'<span><i class="s{number % 6}"></i>{escape(each.name)}</span>' for number, each in enumerate(series)
    )
    return "".join([*parts, "</svg>", f'<div class="legend">{legend}<span class="unit">{escape(unit)}</span></div>'])


def _rule(y: float, label: str) -> str:
    return (
        f'<line class="rule" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _line(each: Series, number: int, xs: Sequence[float], y: Callable[[float], float]) -> list[str]:
    parts: list[str] = []
    stretch: list[str] = []
    for x, value in [*zip(xs, each.values, strict=True), (0.0, None)]:
        if value is not None:
            stretch.append(f"{x:.1f},{y(value):.1f}")
        elif stretch:
            if len(stretch) == 1:
                left, _, top = stretch[0].partition(",")
                parts.append(f'<circle class="f{number % 6}" cx="{left}" cy="{top}" r="2.5"/>')
            else:
                parts.append(f'<polyline class="l{number % 6}" points="{" ".join(stretch)}"/>')
            stretch = []
    return parts


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Returns an SVG plot of horizontal bars, each with a name, a value and a label."""
    if not rows:
        return '<p class="none">There is nothing to show.</p>'
    most = max(value for _, value, _ in rows) or 1.0
    height = _BAR * len(rows) + 8
    left, room = 220, WIDTH - 220 - 130
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img">']
    for number, (name, value, label) in enumerate(rows):
        top = number * _BAR + 4
        width = max(1.0, room * value / most)
        text = escape(name if len(name) <= 30 else name[:29] + "…")
        parts.append(f'<text class="name" x="{left - 10}" y="{top + 15}" text-anchor="end">{text}</text>')
        parts.append(f'<rect class="bar" x="{left}" y="{top + 3}" width="{width:.1f}" height="{_BAR - 8}" rx="3"/>')
        parts.append(f'<text class="axis" x="{left + width + 8:.1f}" y="{top + 15}">{escape(label)}</text>')
    return "".join([*parts, "</svg>"])
