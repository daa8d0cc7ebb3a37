"""The control jobs of a flow: what runs beside the data path, how often, and under which name.

All share the clients and the ledger of their flow (`FlowRuntime`). Runs in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from heliograph.control.acls.sync import AclSync
from heliograph.control.canary import Canary
from heliograph.control.groups.checkpoints import CheckpointEmitter
from heliograph.control.groups.offset_sync import GroupOffsetSync, Synced
from heliograph.control.groups.shared_partitions import FlowMeeting
from heliograph.control.groups.translated import GroupTranslation
from heliograph.control.heartbeats import HeartbeatEmitter
from heliograph.control.ledger_care import LedgerCare
from heliograph.control.positions import FlowView, OffsetsTopic, PositionWriter
from heliograph.control.scheduler import Details
from heliograph.control.topics.config_sync import ConfigSync
from heliograph.control.topics.deletion import DeletionWatch
from heliograph.control.topics.log_starts import LogStartFollower
from heliograph.control.topics.open_transactions import OpenTransactions
from heliograph.control.topics.refresh import TopicPlan
from heliograph.control.topics.restart import Hooks, TopicRestart, restarting_codes
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.policy import policy_from
from heliograph.service.drills import Drills
from heliograph.service.flow import FlowRuntime
from heliograph.service.groups import GroupWatch
from heliograph.service.monitor import FlowMonitor
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS
from heliograph.wire.groups import GroupClient

__all__ = ["ControlJob", "jobs_of"]

_FOLLOW_SECONDS = 10.0
#: When the first records are on their way: what can wait does not delay them.
_SETTLED_SECONDS = 8.0
_WATCH_SECONDS = 10.0
_RESTART_SECONDS = 5.0
#: Brokers abort what is open for a minute by themselves (transaction.timeout.ms), as a rule.
_OPEN_SECONDS = 60.0
#: Nothing is translated before something is mirrored: groups need not slow a start down.
_GROUPS_FIRST_SECONDS = 4.0
#: A look at the groups that is younger than this part of the interval is good for both jobs.
_YOUNG = 0.5
#: After so many intervals without another look, people are told that it is old.
_OLD = 10
#: The ledger: not while the mirror starts, and often enough for a few MB of entries in between.
_TEND_FIRST_SECONDS, _TEND_SECONDS = 60.0, 300.0
#: As Connect's offset.flush.interval.ms, but often enough that a kill leaves little to repeat.
_POSITIONS_SECONDS = 10.0
#: Whether a drill is due. The first look is not while the mirror starts.
_DRILL_LOOK_SECONDS, _DRILL_FIRST_SECONDS = 60, 30.0


def _nothing() -> None:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class ControlJob:
    """Something to do again and again for one flow.

    Attributes:
        description: plain English; the thread's name, and what logs and the status say.
        run: one run. Not called while another mirror has the flow.
        first_after_seconds: for what the start of the mirror need not wait for.
        details: what the last run has to say, one reason a subject, for the status.
        at_end: a last run for ``--once``, when all is copied; never beside another run.
        at_stop: a last run when the part stops in order, after its leases have ended.
        longest_pause_seconds: for a job that mostly waits, and needs no rest for it.
    """

    description: str
    interval_seconds: float
    run: Callable[[], object]
    first_after_seconds: float = 0.0
    details: Details | None = None
    at_end: Callable[[], object] = _nothing
    at_stop: Callable[[], object] = _nothing
    longest_pause_seconds: float = float("inf")


def jobs_of(part: str, runtime: FlowRuntime, monitor: FlowMonitor | None) -> Iterator[ControlJob]:
    """The jobs of one part of a flow that its configuration asks for.

    ``monitor`` is that of a flow that mirrors, and None where only heartbeats are emitted.
    """
    config = runtime.config
    if part == HEARTBEATS and config.emit_heartbeats_enabled:
        yield _heartbeats(runtime)
    if monitor is None or not config.enabled:
        return
    if part == COPYING:
        yield from _copying(runtime, monitor)
    elif part == CHECKPOINTS:
        yield from _groups(runtime, monitor)
        if config.drill_interval_seconds:
            yield _drills(runtime, monitor)


def _copying(runtime: FlowRuntime, monitor: FlowMonitor) -> Iterator[ControlJob]:
    config = runtime.config
    if config.follow_log_start:
        yield _log_starts(runtime)
    yield _ledger_care(runtime)
    if config.sync_topic_configs_enabled:
        yield _topic_configs(runtime)
    if config.sync_topic_acls_enabled:
        yield _acls(runtime)
    yield _deleted_topics(runtime, monitor)
    if restarting_codes(config):
        yield _restarted_topics(runtime, monitor)
    yield _open_transactions(runtime, monitor)
    yield _positions(runtime, monitor)
    if config.canary_interval_seconds:
        yield _canary(runtime, monitor)


def _heartbeats(runtime: FlowRuntime) -> ControlJob:
    config = runtime.config
    target = runtime.client(config.target_admin)
    emitter = HeartbeatEmitter(runtime.flow, target, policy_from(config).heartbeats_topic())
    return ControlJob(
        f"emitting heartbeats for {runtime.flow}",
        config.emit_heartbeats_interval_seconds,
        emitter.emit,
    )


def _log_starts(runtime: FlowRuntime) -> ControlJob:
    source = runtime.client(runtime.config.source_client)
    target = runtime.client(runtime.config.target_admin)

    def plan() -> TopicPlan:
        # What is deleted on both sides of a pair of flows may not have gone back yet.
        plan, paired = runtime.plan, runtime.guards
        return replace(
            plan, partitions={p: n for p, n in plan.partitions.items() if p not in paired}
        )

    follower = LogStartFollower(runtime.flow, source, target, runtime.ledger.store, plan)
    return ControlJob(
        f"following the log starts of {runtime.flow}", _FOLLOW_SECONDS, follower.follow
    )


def _ledger_care(runtime: FlowRuntime) -> ControlJob:
    target = runtime.client(runtime.config.target_admin)
    care = LedgerCare(runtime.ledger, target, runtime.prepared.producer_id, lambda: runtime.plan)
    return ControlJob(
        f"tidying the ledger of {runtime.flow}", _TEND_SECONDS, care.tend, _TEND_FIRST_SECONDS
    )


def _topic_configs(runtime: FlowRuntime) -> ControlJob:
    config = runtime.config
    source = runtime.client(config.source_admin)
    target = runtime.client(config.target_admin)
    sync = ConfigSync(
        config, source, target, runtime.ledger.memory, lambda: runtime.plan,
        runtime.look_at_configs,
    )  # fmt: skip
    return ControlJob(
        f"syncing topic configs of {runtime.flow}",
        config.sync_topic_configs_interval_seconds,
        sync.sync,
        _SETTLED_SECONDS,
        sync.details,
        sync.sync,
    )


def _acls(runtime: FlowRuntime) -> ControlJob:
    config = runtime.config
    source = runtime.client(config.source_admin)
    target = runtime.client(config.target_admin)
    sync = AclSync(config, source, target, runtime.ledger.memory)
    return ControlJob(
        f"syncing ACLs of {runtime.flow}",
        config.sync_topic_acls_interval_seconds,
        sync.sync,
        _SETTLED_SECONDS,
        sync.details,
        sync.sync,
    )


def _deleted_topics(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    config = runtime.config
    source = runtime.client(config.source_admin)
    target = runtime.client(config.target_admin)
    watch = DeletionWatch(
        config, source, target, runtime.ledger, lambda: runtime.plan, monitor.events.add,
    )  # fmt: skip
    return ControlJob(
        f"watching for deleted topics of {runtime.flow}",
        _WATCH_SECONDS,
        watch.watch,
        _SETTLED_SECONDS,
        watch.details,
    )


def _open_transactions(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    target = runtime.client(runtime.config.target_admin)
    watch = OpenTransactions(
        runtime.flow, target, lambda: runtime.plan, monitor.events.add, _OPEN_SECONDS
    )
    return ControlJob(
        f"watching for open transactions in the copies of {runtime.flow}",
        _WATCH_SECONDS,
        watch.watch,
        _SETTLED_SECONDS,
        watch.details,
    )


def _restarted_topics(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    target = runtime.client(runtime.config.target_admin)
    hooks = Hooks(
        lambda: runtime.plan,
        monitor.failing,
        lambda: runtime.holds,
        monitor.events.add,
        runtime.refresh_topics,
    )
    restart = TopicRestart(runtime.config, target, runtime.ledger, hooks)
    return ControlJob(
        f"restarting topics of {runtime.flow}",
        _RESTART_SECONDS,
        restart.restart,
        _SETTLED_SECONDS,
        restart.details,
    )


def _canary(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    config = runtime.config
    canary = Canary(
        runtime.client(config.source_client),
        runtime.client(config.target_admin),
        runtime.ledger.store,
        lambda: runtime.plan,
        policy_from(config).heartbeats_topic(),
    )

    def probe() -> None:
        try:
            canary.probe()
        finally:
            monitor.take_canary(canary.reading)

    seconds = config.canary_interval_seconds
    return ControlJob(
        f"measuring the latency of {runtime.flow}", seconds, probe, _SETTLED_SECONDS,
        longest_pause_seconds=seconds,
    )  # fmt: skip


def _positions(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    config = runtime.config
    store = runtime.positions
    topic = OffsetsTopic(
        runtime.client(store.cluster),
        store.topic,
        config.ledger_topic_replication_factor,
        store.connector,
        runtime.flow.source,
    )

    def finish() -> None:
        # Where the logs end now: what was measured before the last lease ended is too little.
        monitor.measure()
        writer.write(fresh=True)

    view = FlowView(
        lambda: runtime.plan,
        lambda: runtime.leasable,
        runtime.ledger.store,
        monitor.reached,
        runtime.moves,
        lambda: runtime.holds,
    )
    writer = PositionWriter(topic, view, config.admin_timeout_ms)
    return ControlJob(
        f"writing positions of {runtime.flow} for MM2",
        _POSITIONS_SECONDS,
        writer.write,
        _SETTLED_SECONDS,
        writer.details,
        partial(writer.write, fresh=True),
        at_stop=finish,
    )


def _groups(runtime: FlowRuntime, monitor: FlowMonitor) -> Iterator[ControlJob]:
    """Checkpoints and group offset sync; both work from the same look at the source's groups."""
    config = runtime.config
    if not (config.emit_checkpoints_enabled or config.sync_group_offsets_enabled):
        return
    translation = GroupTranslation.of(
        config,
        runtime.client(config.source_admin),
        runtime.client(config.target_admin),
        runtime.ledger.store,
        lambda: runtime.plan,
        lambda: runtime.reverse,
        runtime.ledger.cuts.at,
    )
    if config.emit_checkpoints_enabled:
        yield _checkpoints(runtime, translation, monitor.groups)
    if config.sync_group_offsets_enabled:
        yield _group_sync(runtime, translation, monitor.groups)


def _drills(runtime: FlowRuntime, monitor: FlowMonitor) -> ControlJob:
    drills = Drills(
        runtime.config, runtime.ledger.rehearsals, monitor.events.publish, runtime.scope
    )
    return ControlJob(
        f"rehearsing a failover of {runtime.flow}",
        min(_DRILL_LOOK_SECONDS, runtime.config.drill_interval_seconds),
        drills.run,
        _DRILL_FIRST_SECONDS,
        drills.details,
    )


def _checkpoints(
    runtime: FlowRuntime, translation: GroupTranslation, watch: GroupWatch
) -> ControlJob:
    config, policy = runtime.config, policy_from(runtime.config)
    target = runtime.client(config.target_admin)
    emitter = CheckpointEmitter(
        runtime.flow,
        translation,
        CheckpointLog(target, policy.checkpoints_topic(runtime.flow.source)),
        lambda: runtime.plan,
        policy,
        young_seconds=_YOUNG * config.emit_checkpoints_interval_seconds,
        prune_seconds=config.refresh_groups_interval_seconds,
    )
    job = f"emitting checkpoints for {runtime.flow}"
    seconds = config.emit_checkpoints_interval_seconds

    def emit(*, fresh: bool = False) -> None:
        seen = emitter.emit(fresh=fresh)
        watch.say(job, emitter.details())
        if not config.sync_group_offsets_enabled:
            watch.look(seen, None, _OLD * seconds)

    return ControlJob(
        job, seconds, emit, _GROUPS_FIRST_SECONDS, emitter.details, partial(emit, fresh=True)
    )


def _group_sync(
    runtime: FlowRuntime, translation: GroupTranslation, watch: GroupWatch
) -> ControlJob:
    config = runtime.config
    target = runtime.client(config.target_admin)
    seconds = config.sync_group_offsets_interval_seconds
    sync = GroupOffsetSync(
        runtime.flow, translation, GroupClient(target), _YOUNG * seconds,
        FlowMeeting(config, target, runtime.ledger.store),
    )  # fmt: skip
    job = f"syncing group offsets of {runtime.flow}"

    def run(cycle: Callable[[], Synced]) -> None:
        synced = cycle()
        watch.say(job, sync.details())
        watch.look(synced.seen, synced.standings, _OLD * seconds)

    return ControlJob(
        job, seconds, partial(run, sync.sync), _GROUPS_FIRST_SECONDS, sync.details,
        partial(run, sync.finish),
    )  # fmt: skip
