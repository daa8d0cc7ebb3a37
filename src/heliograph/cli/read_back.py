"""Snapshots read back from the JSON of the REST API. Pure.

The inverse of `heliograph.service.snapshot.summary` and `to_json`, as far as commands need it. What
another version adds is left out; what it lacks has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from heliograph.model import PartitionState
from heliograph.service.snapshot import (
    CanarySnapshot,
    FlowSnapshot,
    FlowState,
    Life,
    PartitionSnapshot,
    RiskSnapshot,
    TopicSnapshot,
)

__all__ = ["flow_of", "partition_of", "time_of", "topic_of"]

#: Read on their own, or counted only.
_OTHERS = {
    "life", "parts", "topics", "partitions", "jobs", "groups", "measured_at", "canary",
    "paused_topics", "at_risk", "rto_measured_at",
}  # fmt: skip
_PLAIN = (str, int, float, type(None))


def flow_of(plain: Mapping[str, Any]) -> FlowSnapshot:
    """A flow; its partitions are those in trouble, if the answer names them."""
    known = {
        f.name: plain[f.name]
        for f in fields(FlowSnapshot)
        if f.name not in _OTHERS and f.name in plain and _is_figure(plain[f.name])
    }
    return FlowSnapshot(
        **known,
        life=_life(plain["life"]),
        parts={name: _life(life) for name, life in plain.get("parts", {}).items()},
        measured_at=time_of(plain.get("measured_at")),
        partitions=tuple(partition_of(p) for p in plain.get("troubled", ())),
        canary=_canary(plain["canary"]) if plain.get("canary") else None,
        paused_topics=plain.get("paused_topics", {}),
        at_risk=_risk(plain["at_risk"]) if plain.get("at_risk") else None,
        rto_measured_at=time_of(plain.get("rto_measured_at")),
    )


def _canary(plain: Mapping[str, Any]) -> CanarySnapshot:
    return CanarySnapshot(
        plain.get("latency_seconds"), plain.get("skew_seconds"), plain.get("lost", 0),
        time_of(plain.get("seen_at")), plain.get("overdue", False),
    )  # fmt: skip


def _risk(plain: Mapping[str, Any]) -> RiskSnapshot:
    return RiskSnapshot(
        plain.get("records"), plain.get("topics", 0), plain.get("seconds"),
        plain.get("unmeasured", 0), time_of(plain.get("measured_at")),
    )  # fmt: skip


def _is_figure(value: object) -> bool:
    """A number, a text, or counts by name."""
    if isinstance(value, Mapping):
        return all(isinstance(item, (int, float)) for item in value.values())
    return isinstance(value, _PLAIN)


def _life(plain: Mapping[str, Any]) -> Life:
    return Life(
        FlowState(plain["state"]), plain.get("reason", ""), plain.get("code", ""),
        time_of(plain.get("since")), time_of(plain.get("next_try")),
    )  # fmt: skip


def partition_of(plain: Mapping[str, Any]) -> PartitionSnapshot:
    """A partition."""
    known = {name: plain[name] for name in PartitionSnapshot._fields if name in plain}
    return PartitionSnapshot(**known)._replace(
        state=PartitionState(plain["state"]),
        since=time_of(plain.get("since")),
        next_try=time_of(plain.get("next_try")),
    )


def topic_of(plain: Mapping[str, Any]) -> TopicSnapshot:
    """A topic."""
    known: dict[str, Any] = {f.name: plain.get(f.name) for f in fields(TopicSnapshot)}
    return TopicSnapshot(**known)


def time_of(text: str | None) -> float:
    """Seconds since the epoch; 0 for null."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
