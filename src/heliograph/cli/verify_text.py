"""A verification's report for people on a terminal, and as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.pages import private_file
from heliograph.verify.model import Difference, Gone, Kind
from heliograph.verify.report import PartitionReport, Report, Totals, result_of

__all__ = ["as_json", "gone_text", "print_text", "remarks", "where"]

_COLORS = {0: "green", 1: "red", 2: "yellow", 3: "yellow"}
#: Remarks of so many partitions are shown; the others are in the other forms of the report.
_MOST_REMARKS = 20


def print_text(reports: Sequence[Report], path: Path | None) -> None:
    """To a file, or to standard output."""
    if path is not None:
        with private_file(path) as file:
            _print(Console(file=file, width=160), reports)
        return
    # Piped output is for programs and logs: no wrapping at an assumed 80 columns.
    _print(Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=240), reports)


def _print(console: Console, reports: Sequence[Report]) -> None:
    for report in reports:
        console.print(_table(report))
        for line in _summary(report):
            console.print(line, markup=False, highlight=False)
        for difference in report.differences:
            _print_difference(console, difference)
        described = sum(d.count for d in report.differences)
        if (left := report.totals.differences - described) > 0:
            console.print(f"... and {left:,} more; --differences N describes more of them",
                          highlight=False)  # fmt: skip
        notes = list(remarks(report))
        for text in notes[:_MOST_REMARKS]:
            console.print(f"note: {text}", markup=False, highlight=False)
        if len(notes) > _MOST_REMARKS:
            console.print(f"... and {len(notes) - _MOST_REMARKS:,} more notes: see -o json")
        for text in report.unverified:
            console.print(f"[yellow]not verified:[/] {escape(text)}", highlight=False)
        console.print(f"[bold {_COLORS[report.exit_code]}]{report.flow}: {escape(report.verdict)}",
                      highlight=False, soft_wrap=True)  # fmt: skip


def _table(report: Report) -> Table:
    table = Table(title=escape(f"{report.flow}: source and target compared"), title_justify="left")
    for name in ("topic", "partitions", "ranges", "records", "MB", "batches by digest",
                 "by record", "differences", "not mirrored yet", "deleted on target",
                 "result"):  # fmt: skip
        table.add_column(name, justify="left" if name in {"topic", "result"} else "right",
                         overflow="fold")  # fmt: skip
    for topic, _, partitions in report.topics:
        totals = Totals()
        for p in partitions:
            totals.add(p.totals)
        table.add_row(
            escape(topic), str(len(partitions)),
            _of(totals.ranges, sum(p.planned for p in partitions)),
            f"{totals.records:,}", f"{totals.bytes / 1e6:,.1f}", f"{totals.digests:,}",
            f"{totals.decoded:,}", f"{totals.differences:,}", f"{totals.pending:,}",
            f"{totals.deleted:,}", _result(partitions),
        )  # fmt: skip
    return table


def _of(done: int, planned: int) -> str:
    return f"{done:,}" if done == planned else f"{done:,} of {planned:,}"


def _result(partitions: Sequence[PartitionReport]) -> str:
    code, word = result_of(partitions)
    return f"[{_COLORS[code]}]{word}"


def _summary(report: Report) -> Iterator[str]:
    totals = report.totals
    rate = totals.bytes / report.seconds / 1e6 if report.seconds else 0.0
    yield (
        f"{totals.records:,} records, {totals.bytes / 1e6:,.1f} MB on the source, in"
        f" {totals.ranges:,} ranges and {report.seconds:.1f} s: {rate:,.0f} MB/s;"
        f" {totals.digests:,} batches compared as they are, {totals.decoded:,} record by record"
    )
    if report.sample is not None:
        yield (
            f"a sample of {report.sample:g} %: {report.planned:,} of {report.offered:,} ranges,"
            f" --seed {report.seed}"
        )


def remarks(report: Report) -> Iterator[str]:
    """What is worth knowing and is no difference, topic by topic."""
    yield from report.notes
    for p in report.partitions:
        for gone in p.gone:
            yield f"{p.source}: {gone_text(gone)}"
        for side in sorted(p.holed):
            yield (
                f"{p.source}: the log on the {side} has holes: it was compacted at some time,"
                " whatever its cleanup.policy is now"
            )
        for text in p.notes:
            yield f"{p.source}: {text}"


def gone_text(gone: Gone) -> str:
    """What nobody can compare any more."""
    return (
        f"cannot be compared any more: source offsets [{gone.begin}, {gone.end}), deleted on the"
        f" {gone.side}"
    )


def where(d: Difference) -> str:
    """The offsets of a difference on both sides."""
    source = target = None
    if d.source_offset is not None:
        source = f"source offset {_span(d.source_offset, d.count)}"
    if d.target_offset is not None:
        target = f"target offset {_span(d.target_offset, d.count)}"
    text = f"{source or 'not on the source'}, {target or 'not on the target'}"
    if d.expected is not None and d.expected != d.target_offset:
        text += f" (by the ledger {_span(d.expected, d.count)})"
    return text


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first} to {first + count - 1}"


def _print_difference(console: Console, d: Difference) -> None:
    what = f"{d.kind}: {d.field}" if d.field else str(d.kind)
    place = f"{d.topic}-{d.partition} / {d.remote_topic}-{d.partition}"
    console.print(f"[red]{escape(what)}[/] {escape(place)}: {where(d)}", highlight=False)
    for name, text in (("source", d.source_record), ("target", d.target_record), ("", d.note)):
        if text:
            lead = f"    {name}: " if name else "    "
            console.print(lead + text, markup=False, highlight=False)


def as_json(reports: Iterable[Report]) -> str:
    """The report as docs/verify.md describes it."""
    return json.dumps({"version": 1, "flows": [_flow(report) for report in reports]}, indent=2)


def _flow(report: Report) -> dict[str, object]:
    return {
        "flow": report.flow,
        "verdict": report.verdict,
        "identical": report.identical,
        "exit_code": report.exit_code,
        "began": report.began,
        "seconds": round(report.seconds, 3),
        "complete": report.complete,
        "begin": report.begin,
        "end": report.end,
        "sample": report.sample,
        "seed": report.seed,
        "ranges_offered": report.offered,
        "ranges_planned": report.planned,
        "interrupted": report.interrupted,
        "totals": _totals(report.totals),
        "topics": [
            {
                "topic": topic,
                "remote_topic": remote,
                "partitions": [_partition(p) for p in partitions],
            }
            for topic, remote, partitions in report.topics
        ],
        "differences": [asdict(d) for d in report.differences],
        "unverified": report.unverified,
        "not_compared": report.not_compared,
        "notes": report.notes,
    }


def _partition(p: PartitionReport) -> dict[str, object]:
    return {
        "partition": p.source.partition,
        "source_begin": p.begin,
        "source_end": p.end,
        "ranges_planned": p.planned,
        **_totals(p.totals),
        "gone": [{"side": g.side, "begin": g.begin, "end": g.end} for g in p.gone],
        "compacted_once": sorted(p.holed),
        "problems": p.problems,
        "notes": p.notes,
    }


def _totals(totals: Totals) -> dict[str, object]:
    return {
        "ranges": totals.ranges,
        "records": totals.records,
        "bytes": totals.bytes,
        "batches_by_digest": totals.digests,
        "batches_by_record": totals.decoded,
        "not_mirrored_yet": totals.pending,
        "missing_not_mirrored_yet": totals.behind,
        "deleted_on_target": totals.deleted,
        "never_to_be_mirrored": totals.never,
        "other_flows": dict(totals.others),
        "came_from_target": totals.returned,
        "began_on_target": totals.own,
        "compacted": totals.compacted,
        "quarantined": totals.quarantined,
        "timestamps_not_compared": totals.untimed,
        "differences": {str(kind): totals.counts[kind] for kind in Kind},
    }
