"""Lag, rates and the canary of every flow over the last two hours. Kept in the driver's memory.

A sample of each flow is taken every 5 seconds, from the one snapshot; it has a flow's sums, never
its partitions. So two hours of a flow take some 130 KB, whatever its size. `read` thins samples out
so that peaks stay visible.
"""

from __future__ import annotations

import math
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.control.scheduler import Scheduler
from heliograph.service.snapshot import FlowSnapshot, MirrorSnapshot

__all__ = ["KEPT_SECONDS", "STEP_SECONDS", "FlowHistory", "History"]

STEP_SECONDS = 5
KEPT_SECONDS = 2 * 3600
#: Time, records, seconds, records per second, bytes per second, canary; what is not known is NaN.
_SAMPLE = struct.Struct("6d")
#: Of lag and of the canary the greatest counts, of rates the mean.
_PEAKS = (True, True, False, False, True)

#: (seconds since the epoch, lag in records, lag in seconds, records/s, bytes/s, canary in seconds)
Point = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class FlowHistory:
    """Points of one flow, oldest first. ``step_seconds`` lie between two of them.

    Where more lies between two, nothing was sampled.
    """

    step_seconds: int
    points: Sequence[Point]


class History:
    """Samples what ``snapshot`` says, from `start` to `close`. `read` may be called by anybody."""

    def __init__(self, snapshot: Callable[[], MirrorSnapshot]) -> None:
        self._snapshot = snapshot
        self._flows: dict[str, deque[bytes]] = {}
        self._lock = threading.Lock()
        self._scheduler: Scheduler | None = None

    def start(self) -> None:
        """Take a sample every few seconds from now on."""
        if self._scheduler is None:
            self._scheduler = Scheduler()
            self._scheduler.repeat(
                lambda: self.sample(self._snapshot()), STEP_SECONDS, "sampling the history",
                longest_pause_seconds=STEP_SECONDS,
            )  # fmt: skip

    def close(self) -> None:
        """Take no more samples."""
        if self._scheduler is not None:
            self._scheduler.stop()

    def sample(self, snapshot: MirrorSnapshot) -> None:
        """Add one sample of each flow. Flows that are gone are forgotten after two hours."""
        with self._lock:
            for flow in snapshot.flows:
                kept = self._flows.setdefault(flow.flow, deque(maxlen=KEPT_SECONDS // STEP_SECONDS))
                kept.append(_SAMPLE.pack(snapshot.at, *_figures(flow)))
            oldest = snapshot.at - KEPT_SECONDS
            for name, kept in list(self._flows.items()):
                if _SAMPLE.unpack(kept[-1])[0] < oldest:
                    del self._flows[name]

    def read(
        self, now: float, seconds: float, points: int, flow: str | None = None
    ) -> Mapping[str, FlowHistory]:
        """The last ``seconds`` in at most about ``points`` points, of one flow or of all."""
        with self._lock:
            chosen = self._flows if flow is None else {flow: self._flows.get(flow, deque())}
            packed = {name: list(kept) for name, kept in chosen.items()}
        # Whole steps, so that a point is of the same samples whenever it is asked for.
        step = STEP_SECONDS * max(1, math.ceil(seconds / STEP_SECONDS / max(1, points)))
        since = now - seconds
        return {
            name: FlowHistory(step, _thinned(_later(samples, since), step))
            for name, samples in packed.items()
        }


def _figures(flow: FlowSnapshot) -> Iterable[float]:
    canary = flow.canary
    for figure in (
        flow.lag_records, flow.lag_seconds, flow.records_per_second, flow.bytes_per_second,
        canary.latency_seconds if canary is not None else None,
    ):  # fmt: skip
        yield math.nan if figure is None else figure


def _later(samples: Iterable[bytes], since: float) -> Iterable[tuple[float, ...]]:
    return (sample for sample in map(_SAMPLE.unpack, samples) if sample[0] >= since)


def _thinned(samples: Iterable[tuple[float, ...]], step: int) -> list[Point]:
    if step == STEP_SECONDS:
        return [_point(sample[0], [sample[1:]]) for sample in samples]
    together: dict[int, list[tuple[float, ...]]] = {}
    for at, *figures in samples:
        together.setdefault(int(at // step) * step, []).append(tuple(figures))
    return [_point(at, figures) for at, figures in together.items()]


def _point(at: float, samples: Sequence[tuple[float, ...]]) -> Point:
    columns = zip(*samples, strict=True)
    return (
        round(at),
        *(_one(column, peak=peak) for column, peak in zip(columns, _PEAKS, strict=True)),
    )


def _one(figures: Iterable[float], *, peak: bool) -> float | None:
    known = [figure for figure in figures if not math.isnan(figure)]
    if not known:
        return None
    return round(max(known) if peak else sum(known) / len(known), 3)
