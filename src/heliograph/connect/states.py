"""The state of a part of a flow in Connect's words, with what fails as a trace. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.connect.api import State
from heliograph.model import PartitionState
from heliograph.service.snapshot import COPYING, FlowSnapshot, FlowState, PartitionSnapshot

__all__ = ["connector_state", "task_traces"]

#: A trace names so many partitions that fail; the others are counted.
_NAMED = 10
_TROUBLE = frozenset({PartitionState.FAILED, PartitionState.STALLED})
_STATES = {
    FlowState.STARTING: State.UNASSIGNED,
    FlowState.STANDING_BY: State.UNASSIGNED,
    FlowState.RUNNING: State.RUNNING,
    FlowState.PAUSED: State.PAUSED,
    FlowState.FAILED: State.FAILED,
    FlowState.STOPPED: State.STOPPED,
}


def connector_state(flow: FlowSnapshot, part: str) -> tuple[State, str]:
    """The state, and why it fails. Partitions that fail do not make their connector FAILED."""
    life = flow.parts.get(part, flow.life)
    state = _STATES[life.state]
    if state is State.FAILED:
        return state, life.reason
    running = state is State.RUNNING and part == COPYING
    return state, _trace(_failing(flow)) if running else ""


def task_traces(flow: FlowSnapshot, part: str, tasks: int) -> Mapping[int, str]:
    """What fails, by the task that MM2 would have given it to."""
    failing = _failing(flow) if tasks and part == COPYING else []
    if not failing:
        return {}
    numbers = {(p.topic, p.partition): n for n, p in enumerate(flow.partitions)}
    shares: dict[int, list[PartitionSnapshot]] = {}
    for p in failing:
        shares.setdefault(numbers[p.topic, p.partition] % tasks, []).append(p)
    return {task: _trace(share) for task, share in shares.items()}


def _failing(flow: FlowSnapshot) -> list[PartitionSnapshot]:
    return [p for p in flow.troubled if p.state in _TROUBLE]


def _trace(failing: Sequence[PartitionSnapshot]) -> str:
    lines = [f"{p.name} {p.state}: {p.reason}" for p in failing[:_NAMED]]
    if len(failing) > _NAMED:
        lines.append(f"and {len(failing) - _NAMED} more")
    return "\n".join(lines)
