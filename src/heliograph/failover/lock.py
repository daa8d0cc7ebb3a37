"""One handover of a flow at a time, by whoever and wherever it is begun.

A claim as those of mirrors, of a scope of its own in the same ledger: the oldest one that stands
has the lock. That of a process that was killed on this host is removed at once, that of a process
elsewhere when it has been silent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from heliograph.claims.flow_claim import FlowClaim
from heliograph.claims.registry import Registry
from heliograph.config import FlowConfig
from heliograph.errors import StartError
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.follower import LedgerFollower
from heliograph.policy import ledger_topic
from heliograph.wire.cluster import ClusterClient

__all__ = ["claim_of", "one_at_a_time"]

#: No connector has a name like that.
_SCOPE = "\0handover"
_REQUEST_SECONDS = 5.0


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
def one_at_a_time(config: FlowConfig, scope: str = "") -> Iterator[None]:
    """Keeps others from handing the flow over meanwhile; raises HandoverRefused if one does."""
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
        yield
    finally:
        claim.end()
