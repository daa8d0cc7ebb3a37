"""Is somebody in the middle of handing a flow over? Then it must not go on unasked.

A flow that is resumed between two steps of a failover copies on while clients are sent elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection

from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.handovers import Handover, Handovers, Kind
from heliograph.ledger.holds import Subject
from heliograph.model import Flow
from heliograph.shown import shown
from heliograph.units import moment

__all__ = ["OpenHandovers", "goes_on", "unfinished"]


def unfinished(flow: Flow, handover: Handover) -> str:
    """An open handover, in words."""
    began = moment(handover.began_ms / 1000)
    topics, about = handover.topics, ""
    if topics is not None:
        more = f" and {len(topics) - 3} more" if topics[3:] else ""
        about = f" (topics {', '.join(map(shown, topics[:3]))}{more})"
    by = shown(handover.by)
    return f"a {handover.kind} of flow {flow}{about}, begun by {by} at {began}, was not ended"


def goes_on(handover: Handover) -> str:
    """Which command ends an open handover."""
    what = f"the same 'heliograph {handover.kind}"
    if handover.kind is Kind.FAILOVER:
        pattern = handover.facts.get("pattern")
        what += f" --topics {shown(pattern)}" if pattern is not None else " without --topics"
    what += "' goes on with it"
    if handover.kind is Kind.SWITCHOVER:
        what += "; with --abort it is taken back"
    return what


class OpenHandovers:
    """The handovers of a flow that were begun and not ended, as of the last reading of its ledger.

    Those of one scope, and those of the whole pair of clusters.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        self._views = [Handovers(follower, one) for one in sorted({"", scope})]

    def refuse_to_resume(self, flow: Flow, subjects: Collection[Subject]) -> None:
        """Raise HandoverRefused if one of them is held by an open handover, or will be."""
        for view in self._views:
            last = view.last
            if last is not None and last.open and _concerns(last, subjects):
                raise HandoverRefused(
                    "handover.open",
                    f"{flow} must not go on now: {unfinished(flow, last)}",
                    f"{goes_on(last)}; when it is through, 'heliograph resume' lets {flow} go on",
                )


def _concerns(handover: Handover, subjects: Collection[Subject]) -> bool:
    if handover.topics is None:
        return bool(subjects)
    return any(s in subjects for s in map(Subject.topic, handover.topics))
