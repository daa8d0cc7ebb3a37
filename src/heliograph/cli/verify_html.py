"""A verification's report as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from heliograph.cli.verify_text import remarks, where
from heliograph.verify.model import Difference
from heliograph.verify.report import PartitionReport, Report

__all__ = ["as_html"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #15803d; --bad: #b91c1c;
  --open: #a16207; }
@media (prefers-color-scheme: dark) { :root { --good: #4ade80; --bad: #f87171; --open: #facc15; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { font-size: 1.15rem; font-weight: 600; padding: .7rem 1rem; border-left: .4rem solid;
  background: var(--soft); border-radius: .2rem; }
.code0 { color: var(--good); } .code1 { color: var(--bad); } .code2 { color: var(--open); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .5rem; }
dl div { background: var(--soft); padding: .5rem .8rem; border-radius: .3rem; }
dt { font-size: .8rem; opacity: .75; } dd { margin: 0; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
th { font-size: .8rem; opacity: .75; font-weight: 600; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
h2 code { font-size: 1rem; }
article { border: 1px solid var(--line); border-left: .3rem solid var(--bad); padding: .5rem .9rem;
  margin: .6rem 0; border-radius: .3rem; }
article p { margin: .15rem 0; } article pre { margin: .2rem 0; white-space: pre-wrap;
  overflow-wrap: anywhere; background: var(--soft); padding: .3rem .5rem; }
small { opacity: .75; }
"""


def as_html(reports: Iterable[Report]) -> str:
    """One page for all flows."""
    found = list(reports)
    title = ", ".join(f"{r.flow} {r.verdict.partition(':')[0].lower()}" for r in found)
    body = "\n".join(line for report in found for line in _flow(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>heliograph verify: {escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>"
    )


def _flow(report: Report) -> Iterator[str]:
    yield f"<h1>heliograph verify {escape(report.flow)}</h1>"
    yield f"<p><small>{escape(report.began)}</small></p>"
    yield f'<p class="verdict code{report.exit_code}">{escape(report.verdict)}</p>'
    yield from _figures(report)
    if report.differences:
        described = sum(d.count for d in report.differences)
        yield f"<h2>Differences ({described:,} of {report.totals.differences:,} described)</h2>"
        for difference in report.differences:
            yield from _difference(difference)
    if report.unverified:
        yield "<h2>Not verified</h2>" + _list(report.unverified)
    for topic, remote, partitions in report.topics:
        yield f"<h2><code>{escape(topic)}</code> &rarr; <code>{escape(remote)}</code></h2>"
        yield from _table(partitions)
    notes = list(remarks(report))
    if notes:
        yield "<h2>Notes</h2>" + _list(notes)


def _figures(report: Report) -> Iterator[str]:
    totals = report.totals
    rate = totals.bytes / report.seconds / 1e6 if report.seconds else 0.0
    figures = {
        "records compared": f"{totals.records:,}",
        "source bytes": f"{totals.bytes / 1e6:,.1f} MB",
        "ranges": f"{totals.ranges:,} of {report.offered:,}",
        "batches by digest": f"{totals.digests:,}",
        "batches by record": f"{totals.decoded:,}",
        "differences": f"{totals.differences:,}",
        "not mirrored yet (offsets)": f"{totals.pending:,}",
        "time": f"{report.seconds:.1f} s, {rate:,.0f} MB/s",
    }
    if report.sample is not None:
        figures["sample"] = f"{report.sample:g} %, seed {report.seed}"
    for name, count in (
        ("compacted on one side", totals.compacted),
        ("quarantined", totals.quarantined),
        ("timestamps not compared", totals.untimed),
    ):
        if count:
            figures[name] = f"{count:,}"
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in figures.items()
    )
    yield f"<dl>{cells}</dl>"


def _table(partitions: Sequence[PartitionReport]) -> Iterator[str]:
    names = ("partition", "source offsets", "ranges", "records", "MB", "by digest", "by record",
             "differences", "not mirrored yet", "result")  # fmt: skip
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{n}</th>" for n in names) + "</tr>"
    for p in partitions:
        t = p.totals
        code, result = 0, "identical" if t.ranges else "nothing to compare"
        if t.differences:
            code, result = 1, "different"
        elif p.problems or t.ranges < p.planned:
            code, result = 2, "not verified"
        cells = (
            str(p.source.partition), f"[{p.begin:,}, {p.end:,})", f"{t.ranges:,} of {p.planned:,}",
            f"{t.records:,}", f"{t.bytes / 1e6:,.1f}", f"{t.digests:,}", f"{t.decoded:,}",
            f"{t.differences:,}", f"{t.pending:,}",
        )  # fmt: skip
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        yield f'<tr>{row}<td class="code{code}">{result}</td></tr>'
    yield "</table></div>"


def _difference(d: Difference) -> Iterator[str]:
    what = f"{d.kind}: {d.field}" if d.field else str(d.kind)
    yield "<article>"
    yield (
        f'<p><strong class="code1">{escape(what)}</strong>'
        f" <code>{escape(d.topic)}-{d.partition}</code> &rarr;"
        f" <code>{escape(d.remote_topic)}-{d.partition}</code></p><p>{escape(where(d))}</p>"
    )
    for name, text in (("source", d.source_record), ("target", d.target_record)):
        if text:
            yield f"<pre>{name}: {escape(text)}</pre>"
    if d.note:
        yield f"<p><small>{escape(d.note)}</small></p>"
    yield "</article>"


def _list(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
