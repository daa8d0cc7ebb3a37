"""Keeps producers from a cluster: everybody is denied to write to some topics.

A DENY counts more than any ALLOW, and holds for producers that are connected, too. It does not hold
for super users, nor for a broker without an authorizer: whether it does is proven by the ends of
logs (`heliograph.failover.quiet`). What is there already and was not put there by a switchover is
never touched.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.ledger.fences import Fences
from heliograph.units import counted
from heliograph.wire import acls, admin
from heliograph.wire.acls import WILDCARD, Acl
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.rights import missing_right

__all__ = ["Fence", "FencePlan", "denial"]

_ALTER = 7
_EVERYBODY = "User:*"
#: A broker learns of rights a moment after they were made.
_SHOWN_SECONDS, _LOOK_SECONDS = 10.0, 0.05


@dataclass(frozen=True, slots=True)
class FencePlan:
    """What a fence of some topics needs.

    Attributes:
        missing: topics that have to be fenced yet.
        others: topics that are denied to everybody by somebody else: that stays as it is.
    """

    missing: frozenset[str]
    others: frozenset[str]


def denial(topic: str) -> Acl:
    """The right that fences a topic."""
    return Acl("TOPIC", topic, "LITERAL", _EVERYBODY, WILDCARD, "WRITE", "DENY")


class Fence:
    """The fence of one cluster. ``record`` is what a ledger on that cluster says of it."""

    def __init__(self, client: ClusterClient, record: Fences) -> None:
        self._client = client
        self._record = record

    def plan(self, topics: Iterable[str]) -> FencePlan:
        """Look at what is there; raises HandoverRefused if we may not fence, and WireError."""
        alias = self._client.alias
        try:
            there = acls.describe(self._client, "TOPIC")
            self._require_alter()
        except acls.NoAuthorizer as error:
            raise HandoverRefused(
                "switchover.no-authorizer",
                f"{alias} has no authorizer: --fence can deny nobody anything",
                "stop the producers yourself, and leave --fence out",
            ) from error
        except BrokerError as error:
            raise HandoverRefused("switchover.may-not-fence", str(error)) from error
        ours = self._record.topics.keys()
        denied = {topic for topic in topics if denial(topic) in there}
        return FencePlan(frozenset(set(topics) - denied), frozenset(denied - ours))

    def _require_alter(self) -> None:
        try:
            operations = admin.cluster_operations(self._client)
        except BrokerError:
            return  # before 2.8, which cannot tell: it refuses later
        if operations and _ALTER not in operations:
            right = missing_right(self._client.settings, "Alter", "cluster")
            raise HandoverRefused(
                "switchover.may-not-fence", f"we may not fence {self._client.alias}", right
            )

    def put_up(self, topics: Collection[str], handover: str, by: str) -> FencePlan:
        """Fence topics; returns what was found before. Raises HandoverFailed, WireError."""
        plan = self.plan(topics)
        # First, so that whoever comes after a kill knows what to take down.
        self._record.note(plan.missing, handover, by)
        wanted = {denial(topic) for topic in plan.missing}
        refused = acls.create(self._client, sorted(wanted))
        for error in refused.values():
            raise HandoverFailed("switchover.fence", str(error))
        self._await(wanted, there=True)
        return plan

    def of(self, handover: str) -> frozenset[str]:
        """The topics that a handover has fenced."""
        return frozenset(t for t, f in self._record.topics.items() if f.handover == handover)

    def take_down(self, topics: Collection[str] | None = None) -> int:
        """Lift it from topics (None: all), as far as it is ours; returns from how many."""
        topics = {t for t in self._record.topics if topics is None or t in topics}
        unwanted = {denial(topic) for topic in topics}
        if not topics:
            return 0
        kept = acls.delete(self._client, sorted(unwanted))
        for error in kept.values():
            raise HandoverFailed(
                "switchover.fence", str(error), "repeat this command when that is possible"
            )
        self._await(unwanted, there=False)
        self._record.clear(topics)
        return len(topics)

    def _await(self, rights: Collection[Acl], *, there: bool) -> None:
        """Until the broker that we ask knows of it; the others do at about the same time."""
        deadline = time.monotonic() + _SHOWN_SECONDS
        while rights:
            found = acls.describe(self._client, "TOPIC")
            if all((right in found) is there for right in rights):
                return
            if time.monotonic() > deadline:
                what = "put up" if there else "taken down"
                raise HandoverFailed(
                    "switchover.fence",
                    f"the fence of {counted(len(rights), 'topic')} on {self._client.alias} was"
                    f" {what}, and a broker does not know it after {_SHOWN_SECONDS:.0f} s",
                )
            time.sleep(_LOOK_SECONDS)
