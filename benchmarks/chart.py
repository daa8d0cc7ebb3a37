"""The ratios as a bar chart."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from benchmarks.figures import BASELINE, TUNED, Figure, Results

__all__ = ["draw"]

_BAR = 0.38
_COLOURS = {BASELINE: "#1f6fb4", TUNED: "#a9cbe8"}
_LABELS = {BASELINE: "than MM2 defaults", TUNED: "than MM2 tuned"}
_MOST = 1000.0  # where a ratio is infinite, e.g. an idle CPU of zero


def draw(results: Results, path: Path, title: str) -> bool:
    """Writes a PNG; False when there is nothing to compare."""
    rows = [
        figure
        for figure in results.rows()
        if any(_ratio(results, figure, other) for other in (BASELINE, TUNED))
    ]
    if not rows:
        return False
    with mpl.rc_context({"font.size": 9, "font.family": "DejaVu Sans"}):
        canvas = Canvas(figsize=(9.5, 1.6 + 0.42 * len(rows)), layout="constrained")
        axes = canvas.add_subplot()
        for offset, other in ((-_BAR / 2, BASELINE), (_BAR / 2, TUNED)):
            pairs = [(i, _ratio(results, figure, other)) for i, figure in enumerate(rows)]
            shown = [(i + offset, ratio) for i, ratio in pairs if ratio]
            if not shown:
                continue
            # Bars start at 1 ("the same"): to the right is better, to the left is worse.
            axes.barh(
                [y for y, _ in shown],
                [ratio - 1 for _, ratio in shown],
                left=1,
                height=_BAR,
                color=_COLOURS[other],
                label=_LABELS[other],
            )
            for y, ratio in shown:
                axes.annotate(
                    f"{ratio:.1f}x" if ratio < _MOST else f">{_MOST:.0f}x",
                    (max(ratio, 1.0), y),
                    (3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7.5,
                )
        asked = [(i, figure.times) for i, figure in enumerate(rows) if figure.times]
        axes.plot(
            [times for _, times in asked],
            [i - _BAR / 2 for i, _ in asked],
            linestyle="",
            marker="|",
            markersize=15,
            markeredgewidth=2.2,
            color="#c8402f",
            label="asked for (against defaults)",
        )
        axes.axvline(1, color="#444444", linewidth=0.8)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.8), high * 1.5)
        ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
                 if min(low, 0.8) <= t <= high * 1.5]  # fmt: skip
        axes.set_xticks(ticks, [f"{t:g}x" for t in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(rows)), [f"{f.title}: {f.label}" for f in rows])
        axes.invert_yaxis()
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("times better (logarithmic); 1x: the same")
        axes.set_title(title)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        canvas.legend(loc="outside lower center", ncols=3, frameon=False)
        canvas.savefig(path, dpi=130)
    return True


def _ratio(results: Results, figure: Figure, other: str) -> float | None:
    ratio = figure.better_by(results.value(figure, figure.ours), results.value(figure, other))
    if ratio is None:
        return None
    return _MOST if math.isinf(ratio) else min(ratio, _MOST)
