"""Renders a self-contained HTML page: no scripts, no fonts, no external resources."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

_STYLE: Final = """
:root{--ink:#17212b;--soft:#5d6b7a;--paper:#fbfcfd;--card:#fff;--line:#e2e8ee;
--c0:#0b7285;--c1:#e8590c;--c2:#5f3dc4;--c3:#2b8a3e;--c4:#c2255c;--c5:#e67700}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#93a1b0;--paper:#0f151b;--card:#161e26;--line:#2a3540;
--c0:#3bc9db;--c1:#ffa94d;--c2:#b197fc;--c3:#69db7c;--c4:#faa2c1;--c5:#ffd43b}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:960px;margin:0 auto;padding:32px 20px 64px}h1{font-size:26px;margin:0}
h2{font-size:17px;margin:0 0 12px}
.sub{color:var(--soft);margin:2px 0 24px}.cards{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:20px}
.card{flex:1 1 130px;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:13px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin-bottom:16px;
overflow-x:auto}svg{width:100%;height:auto;display:block}
.rule{stroke:var(--line);stroke-width:1}.axis{fill:var(--soft);font-size:12px}.name{fill:var(--ink);font-size:13px}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}.bar{fill:var(--c0)}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}
.l5{stroke:var(--c5)}.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}
.f5{fill:var(--c5)}.s0{background:var(--c0)}.s1{background:var(--c1)}.s2{background:var(--c2)}
.s3{background:var(--c3)}.s4{background:var(--c4)}.s5{background:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:16px;color:var(--soft);font-size:13px;margin-top:6px}
.legend i{display:inline-block;width:12px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
.unit{margin-left:auto}.none{color:var(--soft);margin:0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:500;font-size:13px}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}.n{text-align:right}
tr:last-child td{border-bottom:0}footer{color:var(--soft);font-size:13px}
"""


class Section(NamedTuple):
    title: str
    body: str
    """The section's content as HTML. It is not escaped again: text from messages must already be escaped."""


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns an HTML table; columns whose name begins with `#` are formatted as numbers."""
    kinds = [' class="n"' if column.startswith("#") else "" for column in columns]
    head = "".join(
        f"<th{kind}>{escape(column.removeprefix('#').capitalize())}</th>"
        for kind, column in zip(kinds, columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(_cell(cell))}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def page(title: str, subtitle: str, cards: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    card_html = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in cards
    )
    parts = "".join(f"<section><h2>{escape(each.title)}</h2>{each.body}</section>" for each in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p><div class="cards">{card_html}</div>{parts}'
        "<footer>Made by penstock pipeline run insights. All times are UTC.</footer></main></body></html>\n"
    )
