"""The report as one HTML page: no network, no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from onnx_iron.conformance.report import Report, reproduction
from onnx_iron.conformance.runner import BINS, NO_ELEMENTS, Outcome, Status

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a9d5a26; --known: #c9a22726;
  --bad: #d0392b59; --bar: #4a80c4; --back: Canvas }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 100rem; padding: 0 1rem }
h1, h2, h3 { font-weight: 600; line-height: 1.2 }
h2 { margin-top: 2.5rem }
h3 { font-size: 1rem; margin-bottom: .3rem }
table { border-collapse: collapse }
th, td { border: 1px solid var(--line); padding: .2rem .5rem; text-align: right;
  white-space: nowrap; vertical-align: middle }
th, td.text { font-weight: 400; text-align: left }
td.text { white-space: normal }
thead th { vertical-align: bottom; font-weight: 500 }
.matrix thead th.turned { padding: .5rem .2rem; text-align: left; vertical-align: bottom }
.turned span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 19rem;
  white-space: normal; line-height: 1.15; font-size: .85rem }
.matrix tbody th:first-child { position: sticky; left: 0; background: var(--back);
  min-width: 11rem; white-space: normal; line-height: 1.2 }
.matrix td { text-align: center; line-height: 1.25; font-variant-numeric: tabular-nums }
td small { display: block; font-size: .75rem }
td.passed { background: var(--good) }
td.known { background: var(--known) }
td.failed { background: var(--bad); font-weight: 600 }
td.declined { opacity: .5 }
td.inapplicable, .none {
  background: repeating-linear-gradient(135deg, transparent 0 5px, #8881 5px 6px) }
.verdict { padding: .6rem 1rem; border-radius: .4rem; font-size: 1.1rem; font-weight: 600 }
.verdict small { font-weight: 400; font-size: .9rem; margin-left: .6rem }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; padding: 0; list-style: none;
  font-size: .9rem }
.legend b { display: inline-block; min-width: 3.6rem; padding: .1rem .3rem; margin-right: .4rem;
  border: 1px solid var(--line); text-align: center; font-weight: 400 }
.good { background: var(--good) }
.differs { background: var(--known) }
.bad { background: var(--bad) }
nav a { margin-right: 1.2rem }
small { opacity: .75 }
code, pre { font: 13px/1.5 ui-monospace, monospace }
pre { background: #8882; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }
dl { display: inline-grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem;
  margin: 0 3rem 1rem 0; vertical-align: top }
dt { opacity: .7 }
dd { margin: 0 }
summary { cursor: pointer }
.wide { overflow-x: auto }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: 1.2rem }
figure { margin: 0 }
figcaption { font-size: .85rem }
.bars { display: grid; grid-template-columns: repeat(10, 1fr); gap: 3px; align-items: end;
  height: 64px; border-bottom: 1px solid var(--line) }
.bars span { background: var(--bar) }
.scale { display: grid; grid-template-columns: repeat(10, 1fr); gap: 3px; font-size: .7rem;
  text-align: center; opacity: .75 }
"""


def to_html(report: Report) -> str:
    """The report for a person."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>onnx-iron conformance</title><style>{_STYLE}</style></head><body>",
        "<h1>onnx-iron conformance</h1>",
        "<p>Does each implementation compute what the operators and graphs mean? Every case was "
        "run on every implementation, and each result compared with float64 arithmetic rounded "
        "once.</p>",
        _verdict(report),
        '<nav><a href="#matrix">Matrix</a><a href="#failures">Failures</a>'
        '<a href="#errors">Errors</a><a href="#differences">Known differences</a>'
        '<a href="#declined">Declined</a><a href="#where">Where it ran</a></nav>',
        # What is wrong comes first; where nothing is, one line says so below the matrix.
        *(_failures(report.failed) if report.failed else ()),
        '<h2 id="matrix">Matrix</h2>',
        _LEGEND,
        _matrix(report),
        *(() if report.failed else _failures(())),
        '<h2 id="errors">Errors</h2>',
        "<p><small>Elements by their distance from the nearest number to the exact result, in "
        "ulps, without what the magnitude of a sum excuses; heights are logarithmic, a bar's title "
        "says the count.</small></p>",
        _histograms(report.outcomes),
        '<h2 id="differences">Known differences</h2>',
        "<p><small>What an implementation says that it does otherwise; its results are held to "
        "that.</small></p>",
        _reasons([o for o in report.outcomes if o.status is Status.PASSED and o.detail]),
        '<h2 id="declined">Declined</h2>',
        "<p><small>Cases that an implementation does not take, and why.</small></p>",
        _reasons([o for o in report.outcomes if o.status is Status.DECLINED]),
        '<h2 id="inapplicable">Not applicable</h2>',
        "<p><small>Cases that have nothing in them that a column is about.</small></p>",
        _reasons([o for o in report.outcomes if o.status is Status.INAPPLICABLE]),
        '<h2 id="where">Where it ran</h2>',
        _environments(report.environments),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


_LEGEND = """<ul class="legend">
<li><b class="good">13/13<br><small>2 &middot; 61%</small></b>cases passed of those run; the worst
error in ulps (units in the last place), the magnitude of a sum's terms excused; the largest error
as a part of what is allowed</li>
<li><b class="differs">&nbsp;</b>passed, some cases by a known difference</li>
<li><b class="bad">&nbsp;</b>some failed</li>
<li><b>&ndash;</b>declined</li>
<li><b class="none">&nbsp;</b>not applicable</li></ul>"""


def _verdict(report: Report) -> str:
    failed = len(report.failed)
    total = sum(report.counts.values())
    words = f"{failed} of {total} outcomes are failures" if failed else "Nothing failed"
    kind = "bad" if failed else "good"
    return f'<p class="verdict {kind}">{words}<small>{escape(report.summary)}</small></p>'


def _environments(found: Sequence[Mapping[str, str]]) -> str:
    """A column for each run, a line for each version."""
    lines = []
    for key in dict.fromkeys(key for environment in found for key in environment):
        cells = "".join(f'<td class="text">{escape(e.get(key, ""))}</td>' for e in found)
        lines.append(f"<tr><th>{escape(key)}</th>{cells}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _matrix(report: Report) -> str:
    cells = report.cells()
    columns = list(dict.fromkeys(key[2] for key in cells))
    rows = list(dict.fromkeys((key[0], key[1]) for key in cells))
    if not rows:
        return "<p>No outcomes.</p>"
    head = "".join(f'<th class="turned"><span>{escape(name)}</span></th>' for name in columns)
    lines = [f"<thead><tr><th>subject</th><th>dtype</th>{head}</tr></thead><tbody>"]
    for subject, dtype in rows:
        found = "".join(_cell(cells.get((subject, dtype, column), ())) for column in columns)
        lines.append(f"<tr><th>{escape(subject)}</th><th>{escape(dtype)}</th>{found}</tr>")
    return f'<div class="wide"><table class="matrix">{"".join(lines)}</tbody></table></div>'


def _cell(outcomes: Sequence[Outcome]) -> str:
    run = [o for o in outcomes if o.status in (Status.PASSED, Status.FAILED)]
    if not run and any(o.status is Status.DECLINED for o in outcomes):
        return '<td class="declined" title="declined">&ndash;</td>'
    if not run:
        return '<td class="inapplicable"></td>'
    passed = sum(o.status is Status.PASSED for o in run)
    known = any(o.detail for o in run)
    kind = "failed" if passed < len(run) else "known" if known else "passed"
    worst, share = max(o.worst for o in run), max(o.share for o in run)
    # A NaN for a number is farther than any two numbers.
    part = f"{share:.0%}" if share < 100 else "&gt; 10000%"
    error = f"{worst}" if worst < 10**6 else f"{worst:.0e}"
    first = outcomes[0]
    left = f"{first.subject}, {first.dtype}, {first.implementation}: "
    left += f"{len(outcomes) - len(run)} of {len(outcomes)} declined or not applicable"
    inside = f"{passed}/{len(run)}<small>{error} &middot; {part}</small>"
    return f'<td class="{kind}" title="{escape(left)}">{inside}</td>'


def _failures(failed: Sequence[Outcome]) -> Iterator[str]:
    """What failed by implementation, each case with the command that runs it again."""
    yield '<h2 id="failures">Failures</h2>'
    if not failed:
        yield "<p>None.</p>"
    for name in dict.fromkeys(o.implementation for o in failed):
        own = [o for o in failed if o.implementation == name]
        yield f"<h3>{escape(name)}: {len(own)}</h3>"
        # A kernel that is wrong fails in all of its cases: the first is read.
        for subject in dict.fromkeys(o.subject for o in own):
            first, *others = (o for o in own if o.subject == subject)
            yield _failure(first)
            if others:
                yield f"<details><summary>{len(others)} more of {escape(subject)}</summary>"
                yield from map(_failure, others)
                yield "</details>"


def _failure(o: Outcome) -> str:
    return (
        f"<p><b>{escape(o.case)}</b><br>{escape(o.detail)}</p><pre>{escape(reproduction(o))}</pre>"
    )


def _histograms(outcomes: Iterable[Outcome]) -> str:
    totals: dict[tuple[str, str], list[int]] = {}
    for outcome in outcomes:
        key = outcome.implementation, outcome.dtype
        sums = zip(totals.get(key, NO_ELEMENTS), outcome.histogram, strict=True)
        totals[key] = [known + count for known, count in sums]
    figures = [_histogram(*key, bins) for key, bins in totals.items() if sum(bins)]
    return f'<div class="grid">{"".join(figures)}</div>' if figures else "<p>No elements.</p>"


def _histogram(implementation: str, dtype: str, bins: Sequence[int]) -> str:
    highest = max(len(str(count)) for count in bins)
    bars = "".join(
        f'<span title="{count}" style="height:{100 * len(str(count)) / highest:.0f}%"></span>'
        if count
        else "<span></span>"
        for count in bins
    )
    names = [str(end) for end in BINS] + [f"> {BINS[-1]}"]
    scale = "".join(f"<span>{escape(name)}</span>" for name in names)
    return (
        f"<figure><figcaption>{escape(implementation)}, {escape(dtype)}</figcaption>"
        f'<div class="bars">{bars}</div><div class="scale">{scale}</div></figure>'
    )


def _reasons(outcomes: Sequence[Outcome]) -> str:
    """A list for each implementation: a reason, the subjects and how many cases."""
    if not outcomes:
        return "<p>None.</p>"
    found: dict[str, Counter[tuple[str, str, str]]] = {}
    for o in outcomes:
        found.setdefault(o.implementation, Counter())[o.detail, o.subject, o.dtype] += 1
    return "".join(
        f"<details><summary>{escape(name)}: {reasons.total()} cases</summary>{_table(reasons)}"
        "</details>"
        for name, reasons in found.items()
    )


def _table(reasons: Counter[tuple[str, str, str]]) -> str:
    by_reason: dict[str, Counter[tuple[str, str]]] = {}
    for (reason, subject, dtype), count in reasons.items():
        by_reason.setdefault(reason, Counter())[subject, dtype] += count
    lines = []
    for reason, subjects in sorted(by_reason.items(), key=lambda item: -item[1].total()):
        names = ", ".join(dict.fromkeys(subject for subject, _ in subjects))
        dtypes = ", ".join(dict.fromkeys(dtype for _, dtype in subjects))
        lines.append(
            f'<tr><td class="text">{escape(reason)}</td><td class="text">{escape(names)}</td>'
            f"<th>{escape(dtypes)}</th><td>{subjects.total()}</td></tr>"
        )
    head = "<tr><th>why</th><th>subjects</th><th>dtypes</th><th>cases</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead>{"".join(lines)}</table></div>'
