"""Every figure of the benchmark: its unit, which way is better, and what is asked of Heliograph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.workloads import WORKLOADS, Workload

__all__ = ["FIGURES", "SCENARIOS", "Figure", "Results"]

BASELINE, TUNED, OURS = "mm2", "mm2-tuned", "heliograph"
_IDENTICAL = "heliograph-identical"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row.

    Attributes:
        times: Heliograph must be at least this many times better than MM2's defaults.
        limit: Heliograph must not exceed this value.
        ours: the contender that is Heliograph here.
    """

    scenario: str
    name: str
    label: str
    unit: str
    higher_is_better: bool = False
    times: float | None = None
    limit: float | None = None
    ours: str = OURS

    @property
    def title(self) -> str:
        """The scenario, and what is special about Heliograph in it."""
        return self.scenario + self.ours.removeprefix(OURS)

    def better_by(self, ours: float | None, theirs: float | None) -> float | None:
        """How many times ours is better; None when it cannot be said."""
        if ours is None or theirs is None or math.isinf(ours):
            return None
        above, below = (ours, theirs) if self.higher_is_better else (theirs, ours)
        return above / below if below else math.inf

    def asked(self) -> str:
        """The target in words."""
        if self.limit is not None:
            return f"<= {self.limit:g} {self.unit}"
        return "" if self.times is None else f">= {self.times:g}x"

    def met(self, ours: float | None, theirs: float | None) -> bool | None:
        """Whether the target is met; None when there is none or nothing to judge."""
        if ours is None:
            return None
        if self.limit is not None:
            return ours <= self.limit
        ratio = self.better_by(ours, theirs)
        return None if self.times is None or ratio is None else ratio >= self.times

    def show(self, value: float | None) -> str:
        """The value for people."""
        if value is None:
            return "-"
        if math.isinf(value):
            return "> 30"
        if value >= 1000:
            return f"{value:,.0f}"
        return f"{value:.3g}" if value < 1 else f"{value:.1f}"


def _catch_up(workload: Workload, ours: str) -> tuple[Figure, ...]:
    name = workload.name
    return (
        Figure(name, "rate", "throughput", "records/s", True, workload.throughput, ours=ours),
        Figure(name, "cpu", "CPU per million records", "s", times=workload.cpu, ours=ours),
        Figure(name, "memory", "peak memory", "MB", times=1.0, ours=ours),
        Figure(name, "first", "first record after start", "s", times=1.0, ours=ours),
        Figure(name, "startup_cpu", "CPU until the first record", "s", ours=ours),
        Figure(name, "verify", "verify", "MB/s", True, ours=ours),
    )


FIGURES = (
    *(
        figure
        for workload in WORKLOADS.values()
        for ours in ((OURS, _IDENTICAL) if workload.gaps else (OURS,))
        for figure in _catch_up(workload, ours)
    ),
    Figure("latency", "p50", "latency p50", "ms", times=1.0),
    Figure("latency", "p99", "latency p99", "ms", times=1.0),
    Figure("latency", "p999", "latency p99.9", "ms", times=1.0),
    Figure("latency", "busy", "CPU at 2,000 records/s", "% of a core"),
    Figure("many", "all", "all partitions mirrored after", "s", times=1.0),
    Figure("many", "idle_cpu", "idle CPU", "% of a core", times=1.0),
    Figure("many", "idle_memory", "idle memory", "MB", times=1.0),
    Figure("many", "memory", "peak memory", "MB", times=1.0),
    Figure("many", "new_topic", "new topic mirrored after", "s", limit=10.0),
)

SCENARIOS = (*WORKLOADS, "latency", "many")


@dataclass(slots=True)
class Results:
    """All that was measured. Repeated measurements are kept; their median counts.

    ``samples``: scenario -> contender -> runs, each figure -> value. Beside the contenders stands
    "direct", the latency without a mirror.
    """

    samples: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, scenario: str, contender: str, values: Mapping[str, float]) -> None:
        """One measurement."""
        runs = self.samples.setdefault(scenario, {}).setdefault(contender, [])
        runs.append(dict(values))

    def value(self, figure: Figure, contender: str) -> float | None:
        """The median over the runs."""
        runs = self.samples.get(figure.scenario, {}).get(contender, [])
        found = [run[figure.name] for run in runs if figure.name in run]
        return median(found) if found else None

    def rows(self) -> list[Figure]:
        """The figures of the scenarios that were run, those of a variant only if it was."""
        return [
            figure
            for figure in FIGURES
            if figure.scenario in self.samples
            and (figure.ours == OURS or figure.ours in self.samples[figure.scenario])
        ]

    def disturbance(self) -> float:
        """The highest use of the CPU by other programs during a measurement, % of a core."""
        every = [r for runs in self.samples.values() for who in runs.values() for r in who]
        return max((run.get("foreign", 0.0) for run in every), default=0.0)
