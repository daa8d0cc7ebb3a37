"""What a switchover would do, and what speaks against it. In a command or the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.config import FlowConfig
from heliograph.config.key import BoundedPattern
from heliograph.control.groups.start_rules import GroupStart
from heliograph.failover.fence import Fence, FencePlan
from heliograph.failover.group_places import GroupPlaces, in_use_there
from heliograph.failover.liveness import living_mirrors
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.target_health import unwritable
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.failover.two_sides import Shared, TwoSides
from heliograph.ledger.handovers import Handover, Kind
from heliograph.ledger.holds import STANDBY, Hold, Subject
from heliograph.model import TopicPartition
from heliograph.shown import shown
from heliograph.units import counted, moment

__all__ = ["SwitchoverPlan", "SwitchoverWish", "check", "few", "most", "rests"]

_COPYING = Subject.part("copying")


@dataclass(frozen=True, slots=True)
class SwitchoverWish:
    """What an operator asks for.

    Attributes:
        topics: source topics whose names it matches wholly; None: all of the flow.
        groups: likewise consumer groups.
        fence: keep producers from the source; otherwise they have been stopped.
        max_lag: how many records the target may be behind at the beginning.
        quiet_seconds: for how long the source must stand still.
        timeout_seconds: how long each step may take.
        force: although groups are in use on the target, or consumers do not come to the end.
        rewind: groups that are ahead on the target are set back.
        by: who asks.
    """

    topics: BoundedPattern | None = None
    groups: BoundedPattern | None = None
    fence: bool = False
    max_lag: int = 100_000
    quiet_seconds: float = 2.0
    timeout_seconds: float = 120.0
    force: bool = False
    rewind: bool = False
    by: str = "somebody"


@dataclass(frozen=True, slots=True)
class SwitchoverPlan:
    """What a switchover would do now.

    Attributes:
        shared: the partitions that change direction.
        topics: their source topics; None for all of the flow.
        mirrors: the mirror that answers for each flow, by flow; not asked of one that was begun.
        lags: partitions that are behind, in offsets.
        groups: where each group would start.
        in_use: the groups that have members on the source, with their state.
        fence: what a fence needs; None if none was asked for, or it may not be put up.
        before: the switchover that was begun before, or is through; None if there is none.
        refusals: what speaks against it; empty if it may be begun.
    """

    flow: str
    reverse: str
    shared: Shared
    topics: tuple[str, ...] | None
    mirrors: Mapping[str, str]
    lags: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupStart]
    in_use: Mapping[str, str]
    fence: FencePlan | None
    before: Handover | None
    refusals: tuple[HandoverRefused, ...]


def check(
    two: TwoSides, wish: SwitchoverWish, before: Handover | None, scope: str
) -> SwitchoverPlan:
    """Look at both sides, which are open; raises HandoverRefused, WireError.

    What was begun ``before`` is not refused: its steps find out themselves.
    """
    pattern = wish.topics if before is None else None
    shared = two.look(pattern)
    if before is not None:
        shared = shared.of(before.topics)
    if pattern is not None and not shared.targets:
        raise HandoverRefused(
            "switchover.no-topics",
            f"flow {two.config.flow} mirrors no topic that matches {pattern.pattern!r}",
        )
    topics = before.topics if before is not None else None
    if pattern is not None:
        topics = tuple(shared.topics)
    mirrored = two.mirrored(shared)
    lags = two.lags(shared, two.ends(shared), two.positions(mirrored))
    places = GroupPlaces(two, wish.groups, None if topics is None else frozenset(topics))
    groups = places.look()
    fence, refusals = None, []
    if wish.fence and before is None:
        try:
            fence = Fence(two.back.client, two.back.fences).plan(shared.topics)
        except HandoverRefused as refused:
            refusals.append(refused)
    mirrors: Mapping[str, str] = {}
    if before is None:
        mirrors = living_mirrors([two.config, two.reverse], scope)
        looked = _Looked(two, wish, shared, mirrored, mirrors, lags, groups)
        refusals = [*looked.refusals(), *refusals]
    return SwitchoverPlan(
        str(two.config.flow), str(two.reverse.flow), shared, topics, mirrors, lags, groups,
        places.in_use(groups), fence, before, tuple(refusals),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found of a switchover that was not begun yet."""

    two: TwoSides
    wish: SwitchoverWish
    shared: Shared
    mirrored: Mirrored
    mirrors: Mapping[str, str]
    lags: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupStart]

    def refusals(self) -> Iterator[HandoverRefused]:
        """All that speaks against it."""
        yield from self._open_handovers()
        yield from self._directions()
        yield from self._lag()
        yield from self._target()
        yield from self._groups()

    def _open_handovers(self) -> Iterator[HandoverRefused]:
        for side in (self.two.side, self.two.back):
            last = side.handovers.last
            if last is not None and last.open:
                began = moment(last.began_ms / 1000)
                yield HandoverRefused(
                    "handover.open",
                    f"a {last.kind} of flow {side.flow}, begun by {last.by} at {began}, was not"
                    " ended",
                    f"'heliograph {last.kind}' goes on with it; with --abort it is taken back",
                )

    def _directions(self) -> Iterator[HandoverRefused]:
        two, flow, reverse = self.two, self.two.config.flow, self.two.reverse.flow
        hold = rests(two.side, two.config)
        if hold is not None:
            yield HandoverRefused(
                "switchover.rests", f"{flow} does not copy: it is {hold}",
                f"'heliograph resume FILE --flow {flow}' lets it go on" if not hold.standby else
                f"clients are at {flow.target} as it seems; '--to {flow.source}' brings them back",
            )  # fmt: skip
        elif str(flow) not in self.mirrors:
            yield HandoverRefused(
                "switchover.nobody", f"no mirror of {flow} answers", "start 'heliograph run'"
            )
        back = rests(two.back, two.reverse)
        held = [t for t in self.shared.topics if Subject.topic(t) in two.side.holds.held]
        if held:
            yield HandoverRefused(
                "switchover.topic-rests",
                f"{flow} does not copy {few(held)}: {two.side.holds.held[Subject.topic(held[0])]}",
                "choose other topics with --topics",
            )
        # Whoever switched topics one by one, and back, has both flows running.
        resting = all(
            Subject.topic(two.returns(topic) or topic) in two.back.holds.held
            for topic in self.shared.topics
        )
        if back is None and not resting:
            yield HandoverRefused(
                "switchover.both-directions",
                f"{reverse} is copied, too: it must rest until it is needed",
                f"set {reverse}.heliograph.standby=true in the file, and have the mirror read it"
                " (SIGHUP)",
            )
        elif back is not None and not back.standby and _failed_over(two.back):
            yield HandoverRefused(
                "switchover.failed-over",
                f"{reverse} was failed over to {flow.source} and not brought back: {flow.target}"
                f" may have records that {flow.source} has not",
                f"'heliograph failback --to {flow.target}' comes first",
            )
        if str(reverse) not in self.mirrors:
            yield HandoverRefused(
                "switchover.nobody", f"no mirror is ready to copy {reverse}",
                f"enable {reverse} in the file of a 'heliograph run', with"
                f" {reverse}.heliograph.standby=true",
            )  # fmt: skip
        if unreturned := two.not_returned(self.shared.topics):
            yield HandoverRefused(
                "switchover.one-way",
                f"{reverse} does not mirror {few(unreturned)}: what clients write to"
                f" {flow.target} would not come to {flow.source}",
                f"add it to {reverse}.topics, or choose topics with --topics",
            )

    def _lag(self) -> Iterator[HandoverRefused]:
        flow = self.two.config.flow
        if self.shared.unmirrored:
            yield HandoverRefused(
                "switchover.unmirrored",
                f"{flow.target} does not have all of {few(self.shared.unmirrored)}",
                f"'heliograph topics FILE --flow {flow}' says why; or choose topics with --topics",
            )
        total = sum(self.lags.values())
        if total > self.wish.max_lag:
            named = ", ".join(f"{p} {counted(n, 'record')}" for p, n in most(self.lags))
            yield HandoverRefused(
                "switchover.lag",
                f"{flow.target} is {counted(total, 'record')} behind {flow.source}, more than"
                f" {self.wish.max_lag:,}: {named}",
                "wait for the mirror, or allow more with --max-lag",
            )

    def _target(self) -> Iterator[HandoverRefused]:
        target = self.two.config.flow.target
        if unfit := unwritable(self.two.side, self.mirrored):
            more = f" (and {len(unfit) - 1} more)" if unfit[1:] else ""
            yield HandoverRefused(
                "switchover.target-unfit", f"{target} cannot take writes: {unfit[0]}{more}",
                f"bring the brokers of {target} back first, or choose topics with --topics",
            )  # fmt: skip

    def _groups(self) -> Iterator[HandoverRefused]:
        target, wish = self.two.config.flow.target, self.wish
        used = in_use_there(self.groups)
        if used and not wish.force:
            yield HandoverRefused(
                "switchover.group-in-use",
                f"{counted(len(used), 'group')} of {self.two.config.flow.source} cannot be moved,"
                f" consumers of it are at {target} already: {few(used)}",
                "stop them, choose groups with --groups, or leave these where they are with"
                " --force",
            )
        ahead = {
            name: n for name, group in self.groups.items() if name not in used
            and (n := sum(start.ahead for start in group.starts.values()))
        }  # fmt: skip
        if ahead and not wish.rewind and not wish.force:
            yield HandoverRefused(
                "switchover.group-ahead",
                f"{counted(len(ahead), 'group')} is further on at {target} than at"
                f" {self.two.config.flow.source}, and would skip records: {few(ahead)}",
                "--rewind sets back what is ahead, --force leaves it",
            )


def rests(side: TargetSide, config: FlowConfig) -> Hold | None:
    """Why a flow does not copy; None if it does."""
    if _COPYING in side.holds.held:
        return side.holds.held[_COPYING]
    return STANDBY if config.standby and not side.holds.started else None


def _failed_over(side: TargetSide) -> bool:
    last = side.handovers.last
    return last is not None and last.kind is Kind.FAILOVER and not last.aborted


def most(counts: Mapping[Any, int]) -> list[tuple[Any, int]]:
    """The three largest, for a message."""
    return sorted(counts.items(), key=lambda item: -item[1])[:3]


def few(names: Iterable[object]) -> str:
    """A few of many, for a message."""
    listed = sorted(shown(str(name)) for name in names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if listed[3:] else "")
