"""A flow measured from Kafka alone, by a command: nothing of it is run, claimed or written.

For those who have the file of a mirror, but no REST API to ask. Lag is measured as a running mirror
measures it (`FlowMonitor`). Who mirrors the flow is read from the claims in its ledger. What the
mirror's tasks say is not known here: a partition is judged by two measurements.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from heliograph.claims.log import Claim, Standing
from heliograph.claims.process_identity import is_gone, this_process
from heliograph.config import FlowConfig
from heliograph.errors import HeliographError, StartError
from heliograph.ledger.holds import Holds, Subject
from heliograph.model import PartitionState
from heliograph.policy import ledger_topic
from heliograph.service.events import Event, EventBus
from heliograph.service.flow import FlowRuntime, Observation
from heliograph.service.ledger_history import LedgerHistory
from heliograph.service.monitor import FlowMonitor
from heliograph.service.parts import configured_parts, life_of_flow, standby_parts
from heliograph.service.snapshot import (
    COPYING,
    FlowSnapshot,
    FlowState,
    Life,
    PartitionSnapshot,
    RiskSnapshot,
    TopicSnapshot,
)
from heliograph.wire.errors import WireError

__all__ = ["NOBODY", "FlowSurvey"]

NOBODY = "no mirror runs this flow"


@dataclass(frozen=True, slots=True)
class _Look:
    """What decides over the state of a partition, besides its lag.

    ``resting`` are reasons by source topic, ``still`` the positions of the look before.
    """

    why_not: str
    resting: Mapping[str, str]
    still: Mapping[str, int | None]
    stalled_after: float


class FlowSurvey:
    """Looks at one flow, again and again. For one thread; `snapshot` for any.

    Attributes:
        owner: the claim of the mirror that has the flow; None if there is none, or its process is
            known to be gone.
        unmirrored: source topics that should be mirrored and are not, or not all partitions.
    """

    def __init__(self, config: FlowConfig) -> None:
        self.config = config
        self.owner: Claim | None = None
        self.unmirrored: tuple[str, ...] = ()
        self._runtime = FlowRuntime(config)
        self._monitor: FlowMonitor | None = None
        self._before: dict[str, int | None] = {}
        self._known: FlowSnapshot | None = None
        self._history: LedgerHistory | None = None

    @property
    def orders(self) -> Holds | None:
        """What is held of the flow, and a way to hold and lift; None if it has no ledger."""
        return self._runtime.orders

    def refuse_to_resume(self, subjects: Collection[Subject]) -> None:
        """Raise HandoverRefused if somebody hands over what is to go on; reads the ledger."""
        handovers = self._runtime.open_handovers
        if self._runtime.orders is not None and handovers is not None:
            self._runtime.orders.refresh()
            handovers.refuse_to_resume(self.config.flow, subjects)

    def find_owner(self) -> None:
        """Read who has the flow, from the target alone; raises StartError."""
        self.owner = _living(self._runtime.read_claims())

    def history(self) -> list[Event]:
        """What the ledger tells of the flow's past since the last time, oldest first.

        After `find_owner` or `look`; raises StartError.
        """
        if self._runtime.orders is None:
            return []
        if self._history is None:
            topic = ledger_topic(self.config.flow.source)
            client = self._runtime.client(self.config.target_admin)
            self._history = LedgerHistory(
                client, topic, str(self.config.flow), self._runtime.scope
            )  # fmt: skip
        try:
            return self._history.read()
        except WireError as error:
            raise StartError("flow.observe", f"flow {self.config.flow}: {error}") from error

    def look(self) -> Observation:
        """Read who has the flow, and which topics there are; raises StartError."""
        seen = self._runtime.observe()
        self.owner = _living(seen.owner)
        self.unmirrored = tuple(seen.unmirrored)
        return seen

    def measure(self) -> None:
        """Look, and measure both clusters; raises StartError."""
        self.look()
        if self._runtime.orders is None:
            return  # it has no ledger: nothing was ever mirrored
        if self._monitor is None:
            self._monitor = FlowMonitor(self._runtime, EventBus())
        before = {p.name: p.position for p in self._known.partitions} if self._known else {}
        with suppress(WireError):  # what did not answer is not measured, and shown as such
            self._monitor.measure()
        self._before = before
        self._known = self._monitor.snapshot(Life(FlowState.RUNNING), {})

    def snapshot(self) -> FlowSnapshot:
        """What was measured last, judged."""
        flow, now = self.config.flow, time.time()
        parts = self._parts(now)
        life = life_of_flow(parts.values())
        known = self._known
        if known is None:
            reason = f"{NOBODY}, and none ever did" if self._runtime.orders is None else NOBODY
            life = replace(life, reason=reason)
            return FlowSnapshot(str(flow), flow.source, flow.target, life, parts)
        orders = self._runtime.orders
        copying = parts.get(COPYING)
        paused = {t: str(hold) for t, hold in (orders.topics if orders else {}).items()}
        look = _Look(
            copying.reason if copying is not None else "",
            {t: f"its topic is {why}" for t, why in paused.items()},
            self._before,
            float(self.config.stalled_after_seconds),
        )
        known = replace(known, life=life, parts=MappingProxyType(parts), paused_topics=paused)
        return judged(known, look, now)

    def away(self, error: HeliographError) -> FlowSnapshot:
        """What is known although a cluster does not answer.

        Of a source that is gone, the ledger on the target tells what rests, and what the source had
        when it last answered.
        """
        flow = self.config.flow
        life = Life(FlowState.FAILED, str(error), error.code, time.time())
        if self._runtime.orders is None:
            return FlowSnapshot(str(flow), flow.source, flow.target, life)
        parts = self._parts(time.time())
        held = life_of_flow(parts.values())
        if held.state in {FlowState.PAUSED, FlowState.STANDING_BY}:
            life = held
        last = self._runtime.ledger.source_ends.last
        risk = None if last is None or self._runtime.is_standby else RiskSnapshot(
            last.records, len({p.topic for p in last.ends}), last.seconds, last.unmeasured,
            last.at_ms / 1000,
        )  # fmt: skip
        return FlowSnapshot(str(flow), flow.source, flow.target, life, parts, at_risk=risk)

    def _parts(self, now: float) -> dict[str, Life]:
        orders = self._runtime.orders
        held = orders.parts_with(standby_parts(self.config)) if orders is not None else {}
        parts: dict[str, Life] = {}
        for name in sorted(configured_parts(self.config)):
            if name in held:
                hold = held[name]
                rests = FlowState.STANDING_BY if hold.standby else FlowState.PAUSED
                parts[name] = Life(rests, str(hold), since=hold.since_ms / 1000)
            elif self.owner is None:
                parts[name] = Life(FlowState.STOPPED, NOBODY, since=now)
            else:
                parts[name] = Life(FlowState.RUNNING, since=self.owner.since_ms / 1000)
        return parts

    def close(self) -> None:
        """Close all connections."""
        self._runtime.close()


def _living(owner: Standing | None) -> Claim | None:
    """The claim, unless its process ran here and has ended. Of other hosts that is not known."""
    if owner is None or is_gone(owner.claim.process, this_process()):
        return None
    return owner.claim


def judged(flow: FlowSnapshot, look: _Look, now: float) -> FlowSnapshot:
    """The flow with the states of its partitions as two measurements show them. Pure."""
    made = tuple(_judge(p, look, now) for p in flow.partitions)
    states = Counter(p.state for p in made)
    troubled = Counter(p.topic for p in made if p.troubled)
    return replace(
        flow,
        partitions=made,
        topics=tuple(_counted(t, troubled) for t in flow.topics),
        states=MappingProxyType(
            {s.value: states[s] for s in reversed(PartitionState) if states[s]}
        ),
    )


def _counted(topic: TopicSnapshot, troubled: Counter[str]) -> TopicSnapshot:
    return replace(topic, troubled=troubled[topic.topic])


def _judge(p: PartitionSnapshot, look: _Look, now: float) -> PartitionSnapshot:
    def state(which: PartitionState, reason: str = "") -> PartitionSnapshot:
        waited = p.lag_seconds or 0.0
        return p._replace(state=which, reason=reason, code="", since=now - waited, next_try=0.0)

    if p.lag_records is None:
        return state(PartitionState.WAITING, p.reason or "it could not be measured")
    if not p.lag_records:
        return state(PartitionState.IDLE)
    why = look.resting.get(p.topic) or look.why_not
    if why:
        return state(PartitionState.WAITING, f"{p.lag_records:,} record(s) wait: {why}")
    old = p.lag_seconds is not None and p.lag_seconds >= look.stalled_after
    if old and look.still.get(p.name) == p.position:
        text = f"nothing was copied between two looks, although {p.lag_records:,} record(s) wait"
        return state(PartitionState.STALLED, text)
    return state(PartitionState.COPYING)
