"""A verification's report as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.cli.verify_text import remarks, where
from heliograph.pages import page
from heliograph.verify.report import Report, result_of

__all__ = ["as_html"]


def as_html(reports: Iterable[Report]) -> str:
    """One page for all flows. Whatever others named is escaped."""
    return page(
        "verify.html", reports=list(reports), figures=_figures, remarks=remarks,
        result_of=result_of, where=where,
    )  # fmt: skip


def _figures(report: Report) -> dict[str, str]:
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
        "deleted on the target": f"{totals.deleted:,}",
        "time": f"{report.seconds:.1f} s, {rate:,.0f} MB/s",
    }
    if report.sample is not None:
        figures["sample"] = f"{report.sample:g} %, seed {report.seed}"
    some = {
        "compacted on one side": totals.compacted,
        "quarantined": totals.quarantined,
        "timestamps not compared": totals.untimed,
        "of other flows": totals.others.total(),
        "came from the target": totals.returned,
        "began on the target": totals.own,
    }
    return figures | {name: f"{count:,}" for name, count in some.items() if count}
