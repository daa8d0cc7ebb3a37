"""Handovers of both directions between two clusters exclude each other.

The lock of a flow is in its ledger on the target, and so are its handovers. So whoever hands one
direction over looks at the other one on the source, if that answers. While it does not, nobody else
can hand the other direction over either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.failover.lock import Lock, one_at_a_time
from heliograph.failover.open_handovers import goes_on, unfinished
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.target_side import TargetSide
from heliograph.wire.errors import WireError

__all__ = ["both_at_a_time", "nobody_the_other_way", "other_direction", "refusal_of_open"]


@contextmanager
def other_direction(reverse: FlowConfig | None, scope: str = "") -> Iterator[TargetSide | None]:
    """The other direction as its ledger on the source tells of it.

    None if it has none, or the source does not answer.
    """
    if reverse is None:
        yield None
        return
    with TargetSide(reverse, scope) as back:
        try:
            there = back.topic in back.client.metadata([back.topic]).topics
        except WireError:
            there = False
        if there:
            back.open()
        yield back if there else None


def refusal_of_open(other: TargetSide | None, since_ms: int) -> HandoverRefused | None:
    """Why a handover is refused while the other direction's is not ended.

    None if there is none, or it was begun before ``since_ms``: it has been overtaken.
    """
    last = other.handovers.last if other is not None else None
    if other is None or last is None or not last.open or last.began_ms < since_ms:
        return None
    return HandoverRefused("handover.open", unfinished(other.flow, last), goes_on(last))


@contextmanager
def both_at_a_time(
    config: FlowConfig, reverse: FlowConfig | None, scope: str = ""
) -> Iterator[Lock]:
    """As `one_at_a_time`, of both directions."""
    with ExitStack() as held:
        locks = [held.enter_context(one_at_a_time(config, scope))]
        with other_direction(reverse, scope) as other:
            there = other is not None
        if there and reverse is not None:
            locks.append(held.enter_context(one_at_a_time(reverse, scope)))

        def require() -> None:
            for lock in locks:
                lock()

        yield require


@contextmanager
def nobody_the_other_way(
    reverse: FlowConfig | None, since_ms: int, scope: str = ""
) -> Iterator[None]:
    """Keeps others from handing the other direction over, as long as the source is there.

    It may go away meanwhile, or answer by halves: that must not stop what goes on without it.
    Raises HandoverRefused if the other direction is being handed over, or that was not ended.
    """
    with ExitStack() as held:
        with suppress(StartError, WireError):
            with other_direction(reverse, scope) as other:
                refusal, there = refusal_of_open(other, since_ms), other is not None
            if refusal is not None:
                raise refusal
            if there and reverse is not None:
                held.enter_context(one_at_a_time(reverse, scope))
        yield
