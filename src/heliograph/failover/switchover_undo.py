"""Taking a switchover back, before its point of no return. In a command or the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from heliograph.errors import HeliographError, WireError
from heliograph.failover.fence import Fence
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.steps import Steps
from heliograph.failover.two_sides import TwoSides
from heliograph.ledger.handovers import Handover
from heliograph.ledger.holds import Subject
from heliograph.ledger.moves import forget_moves, moves_in
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.units import counted

__all__ = ["take_back"]


def take_back(two: TwoSides, steps: Steps, why: str) -> str:
    """Undo what was noted, the last thing first; returns what was done, for people.

    What the source does not let us undo now is left for ``--abort``: HandoverFailed says that.
    Raises WireError if the target does not answer: then the switchover stays open.
    """
    flow, facts = two.config.flow, steps.handover.facts
    steps.say("undo", "taking everything back")
    done: list[str] = []
    failed: list[str] = []
    with _noted(failed):
        if facts.get("moves"):
            two.back.open()
            names = {two.returns(p.topic) for p in two.side.mirrored().places}
            moves = [p for p in moves_in(two.back.memory) if p.topic in names]
            forget_moves(two.back.memory, moves)
    two.side.refresh()
    two.side.holds.lift([Subject(*subject) for subject in facts.get("held", ())])
    with _noted(failed):
        if facts.get("fence"):
            two.back.open()
            fence = Fence(two.back.client, two.back.fences)
            topics = fence.take_down(fence.of(steps.handover.id))
            done.append(f"the fence of {counted(topics, 'topic')} on {flow.source} is gone")
    # The hold is lifted once: a later one is somebody else's.
    steps.remember(left=bool(failed), held=[])
    steps.end(aborted=True)
    done.append(f"{flow} runs on")
    if failed:
        raise HandoverFailed(
            "switchover.left",
            f"{flow} runs on, but not all could be taken back: {failed[0]}",
            f"'heliograph switchover --to {flow.target} --abort' does it when {flow.source}"
            " answers",
        )
    text = f"All was taken back: {', '.join(done)}"
    steps.say("undo", text)
    _note_rehearsal(two, steps.handover, why)
    return text


def _note_rehearsal(two: TwoSides, handover: Handover, why: str) -> None:
    two.side.rehearsals.add(
        Rehearsal(
            handover.began_ms, RehearsalKind.SWITCHOVER, None, 0, 0.0, False, 0, handover.by,
            f"taken back: {why}",
        )
    )  # fmt: skip


@contextmanager
def _noted(failed: list[str]) -> Iterator[None]:
    """What goes wrong is kept: the rest has to be taken back, too."""
    try:
        yield
    except (HeliographError, WireError) as error:
        failed.append(str(error.args[0]))
