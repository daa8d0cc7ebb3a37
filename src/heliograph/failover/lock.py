"""One handover of a flow at a time, by whoever and wherever it is begun.

A claim as those of mirrors, of a scope of its own in the same ledger: the oldest one that stands
has the lock. That of a process that was killed on this host is removed at once, that of a process
elsewhere when it has been silent. So a command that was stopped for seconds may have lost the lock
when it goes on: it looks at its `Lock` before whatever others must not do meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from heliograph.claims.flow_claim import FlowClaim
from heliograph.claims.registry import Registry
from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.ledger.follower import LedgerFollower
from heliograph.policy import ledger_topic
from heliograph.wire.cluster import ClusterClient

__all__ = ["Lock", "claim_of", "one_at_a_time"]

#: Raises HandoverFailed if the lock is lost.
Lock = Callable[[], None]

#: No connector has a name like that.
_SCOPE = "\0handover"
_REQUEST_SECONDS = 5.0
#: A claim is read every second or two; a broker that is restarted takes some seconds.
_RENEWED_SECONDS, _LOOK_SECONDS = 15.0, 0.05


def claim_of(config: FlowConfig, scope: str, lease_seconds: float) -> FlowClaim:
    """A claim of this process in a flow's ledger, with a client of its own; not begun yet."""
    client = ClusterClient(
        config.target_admin, f"{config.flow}|handover-claim", request_timeout=_REQUEST_SECONDS
    )
    follower = LedgerFollower(client, ledger_topic(config.flow.source))
    registry = Registry(follower, scope)
    return FlowClaim(
        str(config.flow), client, registry, lease_seconds, lambda: None, quiet=True
    )  # fmt: skip


@contextmanager
def one_at_a_time(config: FlowConfig, scope: str = "") -> Iterator[Lock]:
    """Keeps others from handing the flow over meanwhile; raises HandoverRefused if one does.

    Yields what is to be called before anything is changed.
    """
    claim = claim_of(config, _SCOPE + scope, 0.0)
    claim.begin()
    try:
        try:
            claim.require(threading.Event())
        except StartError as error:
            raise HandoverRefused(
                "handover.running",
                f"another handover of flow {config.flow} is being carried out"
                f" ({error.args[0].rpartition(': ')[2]})",
                "wait for it, or end it; then repeat this command",
            ) from error
        yield partial(_require, claim, claim.id, config)
    finally:
        claim.end()


def _require(claim: FlowClaim, held: str, config: FlowConfig) -> None:
    """A process that stood still reads on first; a claim that was removed has another id then."""
    deadline = time.monotonic() + _RENEWED_SECONDS
    while claim.id != held or not claim.holds:
        if claim.id != held or time.monotonic() > deadline:
            raise HandoverFailed(
                "handover.lock-lost",
                f"this command stood still, or {config.flow.target} did not answer it: somebody"
                f" else may hand flow {config.flow} over now",
                "repeat this command: it looks at what was done meanwhile, and goes on from there",
            )
        time.sleep(_LOOK_SECONDS)
