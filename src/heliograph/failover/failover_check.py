"""What speaks against a failover. All of it is found at once, so that all of it is told at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heliograph.config import FlowConfig
from heliograph.failover.failover_values import PARTS, FailoverWish
from heliograph.failover.open_handovers import goes_on, unfinished
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.risk import Risk
from heliograph.failover.source_side import SourceSeen
from heliograph.failover.target_health import unwritable
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.model import TopicPartition
from heliograph.units import counted, duration

__all__ = ["FailoverCheck"]

#: Partitions that the mirror could not copy, with the reason.
Faulted = Mapping[TopicPartition, str]


class FailoverCheck:
    """Looks at what a failover would begin with. One thread; asks the target only.

    ``side`` was read. ``reverse`` is the flow of the other direction, if the file has it.
    """

    def __init__(
        self, config: FlowConfig, wish: FailoverWish, side: TargetSide, reverse: FlowConfig | None
    ) -> None:
        self._flow = config.flow
        self._standby = config.standby
        self._wish = wish
        self._side = side
        self._reverse = reverse

    def refusals(
        self, mirrored: Mirrored, source: SourceSeen, risk: Risk, faulted: Faulted
    ) -> Iterator[HandoverRefused]:
        """What speaks against beginning it."""
        yield from self._another_handover()
        if self._stands_by():
            flow = self._flow
            yield HandoverRefused(
                "failover.stands-by",
                f"{flow} stands by: clients are at {flow.target} already",
                f"if it is {flow.target} that is gone: heliograph failover FILE --to {flow.source}",
            )
            return
        yield from self._healthy(source)
        yield from self._both_directions()
        yield from self._unfit(mirrored)
        yield from self._faulted(faulted)
        yield from self._too_much(risk)

    def _another_handover(self) -> Iterator[HandoverRefused]:
        last = self._side.handovers.last
        if last is None or not last.open:
            return
        yield HandoverRefused("handover.open", unfinished(self._flow, last), goes_on(last))

    def _stands_by(self) -> bool:
        standby = PARTS[:1] if self._standby else ()
        resting = self._side.holds.parts_with(standby).get(PARTS[0])
        return resting is not None and resting.standby

    def _healthy(self, source: SourceSeen) -> Iterator[HandoverRefused]:
        if source.healthy and not self._wish.force:
            yield HandoverRefused(
                "failover.source-healthy",
                f"{self._flow.source} answers, and all {len(source.ends)} partitions of it have a"
                " leader: nothing has to be lost",
                "'heliograph switchover' moves clients without loss; --force fails over all the"
                " same, and loses what is not mirrored",
            )

    def _both_directions(self) -> Iterator[HandoverRefused]:
        flow, reverse = self._flow, self._reverse
        # A handover that started this flow has put the other one into standby.
        stands_by = reverse is None or reverse.standby or self._side.holds.handed_over
        if reverse is not None and reverse.enabled and not stands_by and not self._wish.force:
            yield HandoverRefused(
                "failover.both-directions",
                f"{flow} and {reverse.flow} are both enabled: when {flow.source} is back,"
                f" {reverse.flow} would write to it before anybody has seen what only"
                f" {flow.source} has",
                f"set {reverse.flow}.heliograph.standby=true in the file, and have the mirror read"
                " it (SIGHUP); or --force",
            )

    def _unfit(self, mirrored: Mirrored) -> Iterator[HandoverRefused]:
        unfit, target = unwritable(self._side, mirrored), self._flow.target
        if unfit:
            more = f" (and {len(unfit) - 1} more)" if unfit[1:] else ""
            yield HandoverRefused(
                "failover.target-unfit",
                f"{target} cannot take writes: {unfit[0]}{more}",
                f"bring the brokers of {target} back first, or choose topics with --topics",
            )

    def _faulted(self, faulted: Faulted) -> Iterator[HandoverRefused]:
        """All topics go, or those that somebody has chosen: none is left behind unnoticed."""
        if not faulted or self._wish.topics is not None or self._wish.force:
            return
        first, why = min(faulted.items())
        topics = sorted({p.topic for p in faulted})
        more = f" (and {counted(len(faulted) - 1, 'partition')} more)" if len(faulted) > 1 else ""
        names = ", ".join(topics[:5]) + (" ..." if topics[5:] else "")
        yield HandoverRefused(
            "failover.faulted",
            f"{counted(len(topics), 'topic')} could not be mirrored when the mirror last looked:"
            f" {names}. {first}: {why}{more}",
            "--topics promotes those that it names; --force all, and loses what is not mirrored",
        )

    def _too_much(self, risk: Risk) -> Iterator[HandoverRefused]:
        wish, target = self._wish, self._flow.target
        limits = []
        if wish.max_records is not None and risk.records > wish.max_records:
            limits.append(counted(wish.max_records, "record"))
        if wish.max_seconds is not None and (risk.seconds or 0.0) > wish.max_seconds:
            limits.append(duration(wish.max_seconds))
        wanted = wish.max_records is not None or wish.max_seconds is not None
        if limits:
            worst = ", ".join(
                f"{p.partition} {counted(p.records or 0, 'record')}" for p in risk.behind[:5]
            )
            more = f" and {len(risk.behind) - 5} more partitions" if risk.behind[5:] else ""
            yield HandoverRefused(
                "failover.rpo",
                f"{target} is behind by more than {' and '.join(limits)}: {risk}. {worst}{more}",
                "wait for the mirror, or allow more with --max-rpo",
            )
        elif wanted and self._is_unknown(risk):
            yield HandoverRefused(
                "failover.rpo-unknown",
                f"how far {target} is behind is not known: {risk}",
                "without --max-rpo the failover goes on all the same",
            )

    def _is_unknown(self, risk: Risk) -> bool:
        """Whether it cannot be said that a limit is kept."""
        if self._wish.max_seconds is not None and risk.records and risk.seconds is None:
            return True
        return not risk.exact and (risk.as_of_ms is None or bool(risk.unknown))
