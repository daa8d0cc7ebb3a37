"""Makes all mirrors of a flow rest, and knows when nothing is copied any more.

A hold is written to the flow's ledger first. Then this process claims the flow as a mirror that
stands by would. So there are two ways to know:

- the mirror that has the flow answers: it obeys the hold, and its leases have ended;
- the claim of this process is the oldest that stands, because the others have ended, are known to
  be gone or have fallen silent. Their leases have ended at `FlowClaim.clear_from`.

A mirror that takes the flow over in between has read the hold, which is before its claim counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from heliograph.claims.flow_claim import described
from heliograph.claims.process_identity import tag_of
from heliograph.failover.lock import claim_of
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.target_side import TargetSide
from heliograph.ledger.holds import Subject

__all__ = ["Stopped", "stop_mirrors"]

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Stopped:
    """How the mirrors of a flow came to rest.

    ``by`` is the mirror that answered; empty if none was left to answer.
    """

    by: str
    seconds: float


def stop_mirrors(
    side: TargetSide,
    subjects: Collection[Subject],
    by: str,
    why: str,
    *,
    standby: bool = False,
    answers: Collection[Subject],
    patience_seconds: float,
    scope: str = "",
) -> Stopped:
    """Hold ``subjects``, and return when no mirror copies them any more.

    ``answers`` are those of them that a mirror must say it obeys. Raises HandoverFailed if one
    lives on and does not obey; the hold stays.
    """
    began = time.monotonic()
    side.holds.hold(subjects, by, why, standby=standby)
    claim = claim_of(side.config, scope, float(side.config.lease_seconds))
    claim.begin()
    clear_at = None
    try:
        while True:
            side.refresh()
            now = time.monotonic()
            if claim.holds:
                if time.time() >= claim.clear_from:
                    return Stopped("", now - began)
            elif (found := _obeyed(side, claim.id, answers)) is not None:
                who, clear_seconds = found
                clear_at = clear_at or now + clear_seconds
                if now >= clear_at:
                    return Stopped(who, now - began)
            if now - began > patience_seconds:
                raise HandoverFailed(
                    "handover.mirror-lives",
                    f"a mirror of {side.flow} still copies, or does not say that it rests"
                    f" ({_owner(side)}); it was told {now - began:.0f} s ago",
                    "stop that process; then repeat this command: it goes on from here",
                )
            time.sleep(_LOOK_SECONDS)
    finally:
        claim.end()


def _obeyed(side: TargetSide, own: str, subjects: Collection[Subject]) -> tuple[str, float] | None:
    """The mirror that has the flow, and for how long leases may run on, if it obeys the hold.

    ``own`` is the claim of this command.
    """
    owner = min(
        (s for s in side.claims.claims.standing.values() if s.claim.id != own),
        key=lambda s: s.first, default=None,
    )  # fmt: skip
    answer = side.holds.resting.get(tag_of(owner.claim.process)) if owner is not None else None
    held = side.holds.held
    if owner is None or answer is None:
        return None
    if not all(subject in held and answer.obeys(subject, held[subject]) for subject in subjects):
        return None
    return described(owner.claim), answer.clear_seconds


def _owner(side: TargetSide) -> str:
    owner = side.claims.claims.owner
    return described(owner.claim) if owner is not None else "none has a claim"
