"""All that the driver knows from the ledger of one flow, by one reading of its topic."""

from __future__ import annotations

from heliograph.ledger.handovers import RestingCuts
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.memory import SyncedMemory
from heliograph.ledger.rehearsals import Rehearsals
from heliograph.ledger.source_ends import SourceEnds
from heliograph.ledger.store import LedgerStore
from heliograph.wire.cluster import ClusterClient

__all__ = ["FlowLedger"]


class FlowLedger:
    """The views of one follower. Used by the monitor and the jobs of a flow, in any threads.

    Attributes:
        store: the runs of every place, and the signature.
        memory: what control jobs have written to the target.
        keeper: keeps the topic small; for one job.
        source_ends: where the source ended when it last answered, as a mirror of this scope noted.
        rehearsals: failovers, switchovers and drills of this scope.
        cuts: where failovers of this scope have parted logs.
    """

    def __init__(self, client: ClusterClient, topic: str, scope: str = "") -> None:
        self.store = LedgerStore(client, topic, shared=True)
        self.memory = SyncedMemory(self.store.follower)
        self.keeper = LedgerKeeper(self.store)
        self.source_ends = SourceEnds(self.store.follower, scope)
        self.rehearsals = Rehearsals(self.store.follower, scope)
        self.cuts = RestingCuts(self.store.follower, scope)
