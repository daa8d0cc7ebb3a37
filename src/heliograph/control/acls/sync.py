"""Makes the ACLs of remote topics follow those of their source topics. Runs in the driver.

What is copied, and how, is said in `acl_rules`. Only what is missing is written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple

from heliograph.config import FlowConfig
from heliograph.control.acls.rules import AclPlan, AclRules, Change, plan
from heliograph.ledger.memory import SyncedMemory
from heliograph.policy import TopicSelection, group_filter_from, ledger_topic
from heliograph.wire import acls
from heliograph.wire.acls import Acl, NoAuthorizer
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError

__all__ = ["AclSync"]

log = logging.getLogger(__name__)

#: What `SyncedMemory` knows copied ACLs by.
_KIND = "acl"
#: A connection that broke since the last run is nothing to tell.
_PATIENCE_SECONDS = 5.0
#: A line in the log names so many, the status has all.
_MOST_NAMED = 3


class AclSync:
    """Plans and makes the changes of one flow; `sync` is called by one job.

    ``memory`` knows what earlier runs have added; without one, nothing was added ever.
    """

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        memory: SyncedMemory | None,
    ) -> None:
        self._config = config
        self._flow = config.flow
        self._source = source
        self._target = target
        self._memory = memory
        self._selection = TopicSelection(config)
        self._group_filter = group_filter_from(config)
        self._without: Sequence[str] = ()
        self._refused: set[Acl] = set()
        self._details: dict[str, str] = {}

    def details(self) -> Mapping[str, str]:
        """What the last run could not do, and why."""
        return self._details

    # -- planning -----------------------------------------------------------------------------

    def plan(self) -> AclPlan:
        """What `sync` would do now; changes nothing."""
        kinds = ["TOPIC", "GROUP"] if self._config.acls_groups else ["TOPIC"]
        try:
            here = _describe(self._source, kinds)
        except NoAuthorizer:
            return AclPlan(without=(self._flow.source, *self._open_target()))
        try:
            there = _describe(self._target, kinds)
        except NoAuthorizer:
            return AclPlan(without=(self._flow.target,))
        return plan(here, there, self._recall(), self._rules())

    def _open_target(self) -> list[str]:
        """The target, if it has no authorizer either."""
        try:
            _describe(self._target, ["TOPIC"])
        except NoAuthorizer:
            return [self._flow.target]
        except BrokerError:
            pass  # what it keeps from us, somebody guards
        return []

    def _recall(self) -> list[Acl]:
        if self._memory is None:
            return []
        self._memory.refresh()
        return [Acl(**fields) for fields in self._memory.recall(_KIND).values()]

    def _rules(self) -> AclRules:
        config, source, policy = self._config, self._flow.source, self._selection.policy

        def remote(topic: str) -> str:
            return policy.format_remote_topic(source, topic)

        mirrored: frozenset[str] = frozenset()
        foreign: frozenset[str] = frozenset()
        if config.acls_prefixed:
            mirrored = frozenset(filter(self._selection.includes, self._source.metadata().topics))
            copies = set(map(remote, mirrored))
            # Reading checkpoints and positions is nothing that a right to topics of A includes.
            own = {policy.checkpoints_topic(source), ledger_topic(source)}
            others = self._target.metadata().topics.keys() - copies
            foreign = frozenset({t for t in others if not self._is_copy(t)} | own)
        return AclRules(
            source=source,
            target=self._flow.target,
            mirrors=self._selection.includes,
            remote=remote,
            accepts_group=self._group_filter.should_replicate_group,
            mirrored=mirrored,
            foreign=foreign,
            prefixed=config.acls_prefixed,
            groups=config.acls_groups,
            revoke=config.acls_revoke,
        )

    def _is_copy(self, topic: str) -> bool:
        """Whether a topic of the target is, by its name alone, a copy of one of the source."""
        policy = self._selection.policy
        if policy.is_internal_topic(topic) or policy.topic_source(topic) != self._flow.source:
            return False
        # A policy that keeps names says of every topic that it is one.
        return policy.upstream_topic(topic) != topic

    # -- changing -----------------------------------------------------------------------------

    def sync(self) -> None:
        """Compare once, add what is missing and remove what is to be removed."""
        found = self.plan()
        self._tell_without(found.without)
        if found.without:
            return
        failed = self._add(found.additions)
        failed |= self._remove(found.removals)
        self._forget(found.forgotten)
        self._tell("added to", found.additions, failed)
        self._tell("removed from", found.removals, failed)
        details = {str(acl): str(error) for acl, error in failed.items()}
        for text in [t for t in details.values() if t not in self._details.values()][:_MOST_NAMED]:
            log.warning("%s: %s", self._flow, text)
        self._details = details

    def _add(self, additions: Sequence[Change]) -> dict[Acl, BrokerError]:
        wanted = [change.acl for change in additions]
        # Remembered first: what nobody remembers would never be removed again. But what was refused
        # the last time only once it is there, or the ledger would grow with every attempt.
        self._remember(acl for acl in wanted if acl not in self._refused)
        try:
            failed = acls.create(self._target, wanted)
        except BrokerError:
            self._refused.update(wanted)
            self._forget(wanted)
            raise
        self._refused = set(failed)
        self._forget(failed)
        self._remember(acl for acl in wanted if acl not in failed)
        return failed

    def _remove(self, removals: Sequence[Change]) -> dict[Acl, BrokerError]:
        gone = [change.acl for change in removals]
        failed = acls.delete(self._target, gone)
        self._forget(acl for acl in gone if acl not in failed)
        return failed

    def _remember(self, copied: Iterable[Acl]) -> None:
        if self._memory is not None:
            self._memory.remember(_KIND, {_subject(acl): asdict(acl) for acl in copied})

    def _forget(self, others: Iterable[Acl]) -> None:
        if self._memory is not None:
            self._memory.remember(_KIND, {_subject(acl): None for acl in others})

    # -- telling ------------------------------------------------------------------------------

    def _tell_without(self, without: Sequence[str]) -> None:
        """One side open and the other guarded is worth a warning, once; both open is not."""
        if without == self._without:
            return
        self._without = without
        if not without:
            log.info("%s: both clusters have an authorizer now: ACLs are synced", self._flow)
        elif len(without) == 1:
            log.warning(
                "%s: cluster %s has no authorizer: ACLs are not synced;"
                " set sync.topic.acls.enabled=false if that is meant",
                self._flow, without[0],
            )  # fmt: skip
        names = " and ".join(f"cluster {alias}" for alias in without)
        verb = "have" if len(without) > 1 else "has"
        self._details = {"authorizer": f"{names} {verb} none; nothing is synced"} if without else {}

    def _tell(self, what: str, changes: Sequence[Change], failed: Mapping[Acl, object]) -> None:
        done = [change for change in changes if change.acl not in failed]
        if not done:
            return
        named = "; ".join(f"{change.acl} ({change.reason})" for change in done[:_MOST_NAMED])
        more = f"; and {len(done) - _MOST_NAMED} more" if done[_MOST_NAMED:] else ""
        log.info("%s: ACLs %s %s: %s%s", self._flow, what, self._flow.target, named, more)


def _describe(client: ClusterClient, kinds: Iterable[str]) -> set[Acl]:
    def all_of(kind: str) -> set[Acl]:
        return client.retry(lambda: acls.describe(client, kind), _PATIENCE_SECONDS)

    return {acl for kind in kinds for acl in all_of(kind)}


def _subject(acl: Acl) -> str:
    return json.dumps(astuple(acl), separators=(",", ":"))
