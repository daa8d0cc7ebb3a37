"""Results as a table in the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import BASELINE, OURS, TUNED, Figure, Results

__all__ = ["Report"]

_HEADINGS = ("MM2 defaults", "MM2 tuned", "Heliograph", "x defaults", "x tuned", "target", "")


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    if math.isinf(ratio):
        return ">1000x"
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one run and its circumstances."""

    results: Results
    machine: Mapping[str, str]
    commit: str
    command: str
    date: str
    scale: float

    def _cells(self, figure: Figure) -> tuple[str, ...]:
        base, tuned, ours = (self.results.value(figure, c) for c in (BASELINE, TUNED, figure.ours))
        met = figure.met(ours, base)
        return (
            figure.show(base),
            figure.show(tuned),
            figure.show(ours),
            _times(figure.better_by(ours, base)),
            _times(figure.better_by(ours, tuned)),
            figure.asked(),
            "" if met is None else "pass" if met else "FAIL",
        )

    def print(self, console: Console) -> None:
        """The table, and what could not be measured."""
        table = Table(
            title="Heliograph beside MirrorMaker 2 (x: times better than MM2)",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
        )
        table.add_column("", no_wrap=True)
        for heading in _HEADINGS:
            table.add_column(heading, justify="right")
        last = ""
        for figure in self.results.rows():
            if figure.title != last:
                table.add_section()
                table.add_row(f"[bold]{figure.title}")
                last = figure.title
            *cells, verdict = self._cells(figure)
            colour = {"pass": "[green]", "FAIL": "[bold red]"}.get(verdict, "")
            table.add_row(f"  {figure.label}, {figure.unit}", *cells, f"{colour}{verdict}")
        console.print(table)
        for note in self._notes():
            console.print(note, highlight=False)
        for failure in self.results.failures:
            console.print(f"[bold red]not measured:[/] {failure}", highlight=False)

    def _notes(self) -> list[str]:
        notes = [floor] if (floor := self._floor()) else []
        notes.append(
            "Other programs and the kernel used at most"
            f" {self.results.disturbance():.0f} % of a core during a measurement."
        )
        if self.scale != 1:
            notes.append(f"Backlogs scaled by {self.scale:g}: not comparable with whole runs.")
        return notes

    def _floor(self) -> str:
        rows = [figure for figure in self.results.rows() if figure.name in {"p50", "p99", "p999"}]
        values = [(figure, self.results.value(figure, "direct")) for figure in rows]
        told = [f"{f.label.split()[1]} {v:.1f}" for f, v in values if v is not None]
        if not told:
            return ""
        return f"Without a mirror (consumer on the source), same clients: {', '.join(told)} ms."

    def as_json(self) -> str:
        """Everything, raw; a new topic not seen in time is null."""
        content = {
            "date": self.date,
            "commit": self.commit,
            "command": self.command,
            "scale": self.scale,
            "machine": dict(self.machine),
            "figures": [
                {
                    "scenario": figure.title,
                    "figure": figure.name,
                    "unit": figure.unit,
                    "target": figure.asked(),
                    "met": figure.met(
                        self.results.value(figure, figure.ours),
                        self.results.value(figure, BASELINE),
                    ),
                    **{
                        column: _finite(self.results.value(figure, who))
                        for column, who in (
                            (BASELINE, BASELINE),
                            (TUNED, TUNED),
                            (OURS, figure.ours),
                        )
                    },
                }
                for figure in self.results.rows()
            ],
            "samples": {
                scenario: {
                    who: [{name: _finite(value) for name, value in run.items()} for run in runs]
                    for who, runs in contenders.items()
                }
                for scenario, contenders in self.results.samples.items()
            },
            "failures": self.results.failures,
        }
        return json.dumps(content, indent=2) + "\n"

    def as_markdown(self, chart: str) -> str:
        """The table with its circumstances; ``chart`` is the name of the picture beside it."""
        lines = [
            "# Heliograph beside MirrorMaker 2",
            "",
            f"{self.date}, commit {self.commit}, `{self.command}`. The columns with an x say how",
            "many times better Heliograph is than MM2; targets are against MM2's defaults.",
            "How each figure is measured: [benchmarks/README.md](../README.md).",
            "",
            f"![ratios]({chart})",
            "",
            "| scenario | figure | " + " | ".join(_HEADINGS) + " |",
            "|---|---|" + "---:|" * (len(_HEADINGS) - 1) + "---|",
        ]
        for figure in self.results.rows():
            cells = " | ".join(self._cells(figure)).replace("<=", "≤").replace(">=", "≥")
            lines.append(f"| {figure.title} | {figure.label}, {figure.unit} | {cells} |")
        for note in self._notes():
            lines += ["", note]
        if self.results.failures:
            lines += ["", "Not measured:", ""]
            lines += [f"- {failure.splitlines()[0]}" for failure in self.results.failures]
        lines += ["", "| machine | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in self.machine.items()]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, stem: str) -> Path:
        """``<stem>.json`` and ``<stem>.md``; returns the latter."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}.json").write_text(self.as_json(), encoding="utf-8")
        path = folder / f"{stem}.md"
        path.write_text(self.as_markdown(f"{stem}.png"), encoding="utf-8")
        return path


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 4)
