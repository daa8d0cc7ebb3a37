"""The control jobs of a flow: what runs beside the data path, how often, and under which name.

Each has clients of its own, so that none waits for another. Runs in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from heliograph.control.heartbeats import HeartbeatEmitter
from heliograph.control.ledger_care import LedgerCare
from heliograph.control.log_starts import LogStartFollower
from heliograph.control.scheduler import Details
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.store import LedgerStore
from heliograph.policy import policy_from
from heliograph.service.flow import FlowRuntime

__all__ = ["ControlJob", "jobs_of"]

_FOLLOW_SECONDS = 10.0
#: The ledger: not while the mirror starts, and often enough for a few MB of entries in between.
_TEND_FIRST_SECONDS, _TEND_SECONDS = 60.0, 300.0


@dataclass(frozen=True, slots=True)
class ControlJob:
    """Something to do again and again for one flow.

    Attributes:
        description: plain English; the thread's name, and what logs and the status say.
        run: one run. Not called while another mirror has the flow.
        first_after_seconds: for what the start of the mirror need not wait for.
        details: what the last run has to say, one reason a subject, for the status.
    """

    description: str
    interval_seconds: float
    run: Callable[[], object]
    first_after_seconds: float = 0.0
    details: Details | None = None


def jobs_of(runtime: FlowRuntime) -> Iterator[ControlJob]:
    """The jobs that the flow's configuration asks for, in a flow that is prepared."""
    config = runtime.config
    if config.emit_heartbeats_enabled:
        yield _heartbeats(runtime)
    if not config.enabled:
        return
    if config.follow_log_start:
        yield _log_starts(runtime)
    yield _ledger_care(runtime)


def _heartbeats(runtime: FlowRuntime) -> ControlJob:
    config = runtime.config
    target = runtime.client(config.target_admin, "heartbeats-target-producer")
    emitter = HeartbeatEmitter(runtime.flow, target, policy_from(config).heartbeats_topic())
    return ControlJob(
        f"emitting heartbeats for {runtime.flow}",
        config.emit_heartbeats_interval_seconds,
        emitter.emit,
    )


def _log_starts(runtime: FlowRuntime) -> ControlJob:
    source = runtime.client(runtime.config.source_client, "log-starts-source")
    target = runtime.client(runtime.config.target_admin, "log-starts-target")
    ledger = LedgerStore(target, runtime.prepared.ledger_topic)
    follower = LogStartFollower(runtime.flow, source, target, ledger, lambda: runtime.plan)
    return ControlJob(
        f"following the log starts of {runtime.flow}", _FOLLOW_SECONDS, follower.follow
    )


def _ledger_care(runtime: FlowRuntime) -> ControlJob:
    target = runtime.client(runtime.config.target_admin, "ledger-target")
    context = runtime.prepared
    keeper = LedgerKeeper(target, context.ledger_topic)
    care = LedgerCare(keeper, target, context.producer_id, lambda: runtime.plan)
    return ControlJob(
        f"tidying the ledger of {runtime.flow}", _TEND_SECONDS, care.tend, _TEND_FIRST_SECONDS
    )
