"""The report as one HTML page: no network, no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from onnx_iron.conformance.report import Report, reproduction
from onnx_iron.conformance.runner import BINS, Outcome, Status

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7d4f22; --bad: #c0392b55; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
h1, h2 { font-weight: 600; line-height: 1.2 }
h2 { margin-top: 2.5rem }
table { border-collapse: collapse }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: right }
th { font-weight: 500; text-align: left; vertical-align: bottom }
thead th { max-width: 11rem; font-size: .85rem }
td.passed { background: var(--good) }
td.failed { background: var(--bad); font-weight: 600 }
td.declined { opacity: .55; text-align: center }
small { opacity: .7 }
code, pre { font: 13px/1.5 ui-monospace, monospace }
pre { background: #8882; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 }
dd { margin: 0 }
.wide { overflow-x: auto }
.bars { display: flex; align-items: flex-end; gap: 3px; height: 70px }
.bars span { width: 34px; background: #4a80c4; min-height: 1px }
.bars span.none { background: transparent }
.scale { display: flex; gap: 3px; font-size: .7rem }
.scale span { width: 34px; text-align: center; opacity: .7 }
.grid { display: flex; flex-wrap: wrap; gap: 1.5rem }
"""


def to_html(report: Report) -> str:
    """The report for a person."""
    counted = Counter(outcome.status for outcome in report.outcomes)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>onnx-iron conformance</title><style>{_STYLE}</style></head><body>",
        "<h1>onnx-iron conformance</h1>",
        _environment(report.environment),
        f"<p>{counted[Status.PASSED]} passed, <b>{counted[Status.FAILED]} failed</b>, "
        f"{counted[Status.DECLINED]} declined.</p>",
        "<h2>Matrix</h2>",
        "<p><small>Cases passed of those run, and the worst error in units of the last place "
        "(ulps); a dash where an implementation takes none of the cases.</small></p>",
        _matrix(report),
        "<h2>Failures</h2>",
        _failures(report.failed),
        "<h2>Errors</h2>",
        "<p><small>Elements by their distance from the nearest number to the exact result, in "
        "ulps; heights are logarithmic.</small></p>",
        _histograms(report.outcomes),
        "<h2>Declined</h2>",
        _declined(report.outcomes),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _environment(found: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in found.items())
    return f"<dl>{items}</dl>"


def _matrix(report: Report) -> str:
    cells = report.cells()
    columns = list(dict.fromkeys(key[2] for key in cells))
    rows = list(dict.fromkeys((key[0], key[1]) for key in cells))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [f"<thead><tr><th></th><th></th>{head}</tr></thead><tbody>"]
    for subject, dtype in rows:
        found = "".join(_cell(cells.get((subject, dtype, column), ())) for column in columns)
        lines.append(f"<tr><th>{escape(subject)}</th><th>{escape(dtype)}</th>{found}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</tbody></table></div>'


def _cell(outcomes: Sequence[Outcome]) -> str:
    run = [o for o in outcomes if o.status is not Status.DECLINED]
    if not run:
        return '<td class="declined">–</td>'
    passed = sum(o.status is Status.PASSED for o in run)
    kind = "passed" if passed == len(run) else "failed"
    worst = max(o.worst for o in run)
    return f'<td class="{kind}">{passed}/{len(run)} <small>{worst} ulps</small></td>'


def _failures(failed: Sequence[Outcome]) -> str:
    if not failed:
        return "<p>None.</p>"
    return "".join(
        f"<h3>{escape(o.case)}</h3><p>{escape(o.implementation)}: {escape(o.detail)}</p>"
        f"<pre>{escape(reproduction(o))}</pre>"
        for o in failed
    )


def _histograms(outcomes: Iterable[Outcome]) -> str:
    totals: dict[tuple[str, str], list[int]] = {}
    for outcome in outcomes:
        bins = totals.setdefault((outcome.implementation, outcome.dtype), [0] * (len(BINS) + 1))
        for i, count in enumerate(outcome.histogram):
            bins[i] += count
    figures = (_histogram(*key, bins) for key, bins in totals.items() if sum(bins))
    return f'<div class="grid">{"".join(figures)}</div>'


def _histogram(implementation: str, dtype: str, bins: Sequence[int]) -> str:
    highest = max(len(str(count)) for count in bins)
    bars = "".join(
        f'<span title="{count}" class="{"" if count else "none"}" '
        f'style="height:{100 * len(str(count)) / highest if count else 0:.0f}%"></span>'
        for count in bins
    )
    names = [str(end) for end in BINS] + [f">{BINS[-1]}"]
    scale = "".join(f"<span>{escape(name)}</span>" for name in names)
    return (
        f"<figure><figcaption>{escape(implementation)}, {escape(dtype)}</figcaption>"
        f'<div class="bars">{bars}</div><div class="scale">{scale}</div></figure>'
    )


def _declined(outcomes: Iterable[Outcome]) -> str:
    reasons: Counter[tuple[Any, ...]] = Counter(
        (o.implementation, o.subject, o.dtype, o.detail)
        for o in outcomes
        if o.status is Status.DECLINED
    )
    if not reasons:
        return "<p>None.</p>"
    lines = "".join(
        f"<tr>{''.join(f'<th>{escape(part)}</th>' for part in key)}<td>{count}</td></tr>"
        for key, count in reasons.items()
    )
    head = "<tr><th>implementation</th><th>subject</th><th>dtype</th><th>why</th><th>cases</th>"
    return f'<div class="wide"><table><thead>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
