"""Counts, durations and times, written out; rates. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["amount", "counted", "duration", "growth", "latency", "moment"]


def amount(value: float | None) -> str:
    """A count for people: 950, 12.3k, 4.56M; - if it is not known."""
    if value is None:
        return "-"
    # Where three digits would round up to 1000, the next unit begins.
    for least, unit, name in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:.3g}{name}"
    return f"{value:.0f}"


def counted(n: int, what: str) -> str:
    """1 record, 1,204 records."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def duration(seconds: float) -> str:
    """For people: 0.4 s, 34 s, 5 min, 3.2 h."""
    for least, unit, name in ((5400, 3600, "h"), (90, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def latency(seconds: float) -> str:
    """A short time for people: 7 ms, 850 ms; as `duration` from a second on."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def moment(when: float) -> str:
    """A time as ISO 8601 in UTC, e.g. 2026-11-17T03:12:07.250Z: the format of every output.

    UTC, because a mirror's clusters, and the logs it is compared with, are in several time zones.
    """
    made = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    return made.replace("+00:00", "Z")


def growth(first: tuple[float, int], last: tuple[float, int]) -> float:
    """How much a count grew per second between two samples (time, count); 0 if it shrank."""
    return max(last[1] - first[1], 0) / max(last[0] - first[0], 0.001)
