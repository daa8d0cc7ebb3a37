"""The consumer groups of a flow's source, and where each of them goes on, on the target.

Runs in the driver and in commands. What checkpoints and the group offset sync have in common: both
work from one look at the source's groups, translated by the ledger.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from heliograph.config import FlowConfig
from heliograph.control.scheduler import MOST_DETAILS
from heliograph.control.topics.refresh import TopicPlan
from heliograph.errors import HeliographError
from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.reverse import ReverseFlow
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translation import MirroredPartition, Translator
from heliograph.model import ClientSettings, Flow, TopicPartition
from heliograph.policy import GroupFilter, group_filter_from, ledger_topic
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError, WireError
from heliograph.wire.groups import Committed, GroupClient, ListedGroup
from heliograph.wire.rights import denied, missing_right

log = logging.getLogger(__name__)

__all__ = [
    "ALL",
    "Complaints",
    "GroupTranslation",
    "TranslatedGroup",
    "TranslatedGroups",
    "TranslatedOffset",
    "explain",
    "is_denied",
    "ledger_of",
    "partitions",
    "shortened",
    "unsupported",
]

#: MM2's format has two bytes for the length of a text.
_LONGEST_METADATA_BYTES = 32_767
#: In reports: what concerns all groups.
ALL = "*"

_WHY_NOT = {
    "share": "they acknowledge record by record and have no offset to translate",
    "streams": "their state is in topics of their own, which an offset does not bring along",
}


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """What a group has committed for a partition, and where that is on the target.

    Attributes:
        behind: how many offsets the group is ahead of the mirror; ``downstream`` is then the
            target's end, and nothing will be skipped.
        end: where the target partition ends.
        replaced: whether the target topic was created anew: what was said of it before is about
            another one.
        deleted: how many offsets from the group's place on the target has deleted; ``downstream``
            is then where it starts.
        paired: whether a flow in the opposite direction brings records of the target's own, which
            count as unread, too.
    """

    upstream: int
    downstream: int
    metadata: str = ""
    behind: int = 0
    end: int = 0
    replaced: bool = False
    deleted: int = 0
    paired: bool = False


@dataclass(slots=True)
class TranslatedGroup:
    """A group of the source.

    Attributes:
        offsets: by partition of the target.
        untranslated: why there is no translation, by partition of the source.
        error: why there is nothing at all; empty if there is.
        denied: whether ``error`` is a missing right.
        committed: its offsets on mirrored topics, by partition of the source.
    """

    listed: ListedGroup
    offsets: dict[TopicPartition, TranslatedOffset] = field(default_factory=dict)
    untranslated: dict[TopicPartition, str] = field(default_factory=dict)
    error: str = ""
    denied: bool = False
    committed: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        """Offsets that the group has read and that are not mirrored yet."""
        return sum(o.behind for o in self.offsets.values())

    def summary(self) -> str:
        """What became of the group's offsets, in a few words."""
        if self.error:
            return self.error
        count = len(self.offsets) + len(self.untranslated)
        if not count:
            return "has committed nothing on mirrored topics"
        if self.untranslated:
            partition, reason = min(self.untranslated.items())
            more = f" (and {others} more)" if (others := len(self.untranslated) - 1) else ""
            return f"{len(self.offsets)} of {partitions(count)}; {partition}: {reason}{more}"
        if self.behind:
            return f"{partitions(count)}, {self.behind} offsets ahead of the mirror"
        return f"{partitions(count)}, up to date"


@dataclass(frozen=True, slots=True)
class TranslatedGroups:
    """One look at all groups that the filter selects.

    Attributes:
        taken_at: by the monotonic clock.
        blind_spot: which right is missing to see all groups; empty if none.
    """

    groups: Mapping[str, TranslatedGroup]
    taken_at: float
    blind_spot: str = ""


class GroupTranslation:
    """Looks at the groups of one flow's source and translates what they have committed.

    Used by the jobs of two threads, one at a time: who comes second gets the other's result.

    Args:
        refresh_seconds: how often new groups are looked for; None: only the first time.
        reverse: the flow in the opposite direction, if there is one by now.
        cuts: where a failover has parted logs.
    """

    def __init__(
        self,
        source: GroupClient,
        target: ClusterClient,
        ledger: LedgerStore,
        plan: Callable[[], TopicPlan],
        group_filter: GroupFilter,
        refresh_seconds: float | None,
        reverse: Callable[[], ReverseFlow | None] = lambda: None,
        cuts: Callable[[Place], CutAt | None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._ledger = ledger
        self._translator = Translator(target, ledger, source.client, reverse, cuts)
        self._plan = plan
        self._filter = group_filter
        self._refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._listed: dict[str, ListedGroup] | None = None
        self._listed_at = 0.0
        self._blind_spot = ""
        self._last: TranslatedGroups | None = None

    @classmethod
    def of(
        cls,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        ledger: LedgerStore,
        plan: Callable[[], TopicPlan],
        reverse: Callable[[], ReverseFlow | None],
        cuts: Callable[[Place], CutAt | None],
    ) -> GroupTranslation:
        """As the flow's configuration asks for it; the clients are for nothing else."""
        seconds = config.refresh_groups_interval_seconds if config.refresh_groups_enabled else None
        groups = group_filter_from(config)
        return cls(GroupClient(source), target, ledger, plan, groups, seconds, reverse, cuts)

    def latest(self, max_age_seconds: float) -> TranslatedGroups:
        """The groups as they were at most so long ago; raises WireError if a cluster is away."""
        with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._last.taken_at > max_age_seconds:
                self._last = self._look(now)
            return self._last

    def accepts(self, group: str) -> bool:
        """Whether the filter selects a group."""
        return self._filter.should_replicate_group(group)

    def without_offsets(
        self, wanted: Mapping[str, Collection[TopicPartition]]
    ) -> set[tuple[str, TopicPartition]]:
        """Those of which the source's coordinators say that nothing is committed.

        Asked by name, so that a missing right is not taken for a missing offset. A group whose
        coordinator does not answer is not among them.
        """
        with self._lock:
            answers = self._source.committed_of(wanted)
        return {
            (group, partition)
            for group, offsets in answers.found.items()
            for partition, committed in offsets.items()
            if committed.error == NONE and committed.offset < 0
        }

    # -- one look -----------------------------------------------------------------------------

    def _look(self, now: float) -> TranslatedGroups:
        groups = {g: TranslatedGroup(listed) for g, listed in self._list(now).items()}
        wanted = []
        for name, group in groups.items():
            group.error = unsupported(group.listed)
            if not group.error:
                wanted.append(name)
        answers = self._source.committed(wanted)
        settings = self._source.client.settings
        for name, error in answers.errors.items():
            groups[name].error = explain(error, settings, "Describe", name)
            groups[name].denied = is_denied(error)
        plan = self._plan()
        asked = {
            p for offsets in answers.found.values() for p in offsets if p in plan.partitions
        }  # fmt: skip
        # Only now, after the offsets were read: they are about these topics, or older ones.
        mirrored = self._mirrored({p: plan.partitions[p] for p in asked})
        for name, offsets in answers.found.items():
            _translate(groups[name], offsets, mirrored)
        return TranslatedGroups(groups, now, self._blind_spot)

    def _list(self, now: float) -> Mapping[str, ListedGroup]:
        known = self._listed
        due = self._refresh_seconds is not None and (
            now - self._listed_at >= self._refresh_seconds
        )  # fmt: skip
        if known is not None and not due:
            return known
        found = self._source.list_groups()
        listed = {g: info for g, info in found.groups.items() if self.accepts(g)}
        if known is not None and found.failures:
            # Those of a broker that did not answer are still there, as far as anybody knows.
            listed = known | listed
        self._listed, self._listed_at = listed, now
        self._blind_spot = "" if found.all_visible else (
            "only groups that may be described are seen: "
            + missing_right(self._source.client.settings, "Describe", "cluster")
        )  # fmt: skip
        return listed

    def _mirrored(self, wanted: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, _Mirrored]:
        """What is known of source partitions, which are mirrored to the named topics."""
        if not wanted:
            return {}
        metadata = self._source.client.metadata(sorted({p.topic for p in wanted}))
        here = metadata.topics
        there = self._target.metadata(sorted(set(wanted.values())))
        places = {}
        for p, name in wanted.items():
            if p.topic in here and name in there.topics:
                ids = here[p.topic].topic_id, there.topics[name].topic_id
                places[p] = Place(p.topic, p.partition, *ids)
        targets = {place: TopicPartition(wanted[p], p.partition) for p, place in places.items()}
        found = self._translator.look(there, targets, metadata)
        others = self._other_generations(set(places.values()))
        return {
            p: _Mirrored(
                TopicPartition(name, p.partition),
                found.get(places[p]) if p in places else None,
                others.get(places[p], ()) if p in places else (),
            )
            for p, name in wanted.items()
        }

    def _other_generations(self, places: Collection[Place]) -> Mapping[Place, Collection[Place]]:
        """Other topics of the same names, on either side, that the ledger has runs of."""
        return {
            place: [
                other
                for other in self._ledger.generations_of(place.topic, place.partition)
                if other != place
            ]
            for place in places
        }


@dataclass(frozen=True, slots=True)
class _Mirrored:
    """A source partition on the target; ``found`` is None if there is no saying now."""

    target: TopicPartition
    found: MirroredPartition | None
    others: Collection[Place]

    @property
    def recreated(self) -> bool:
        """Whether only an earlier topic of that name was mirrored."""
        found = self.found
        return bool(self.others) and found is not None and not (found.ledger.runs or found.back)


def _translate(
    group: TranslatedGroup,
    offsets: Mapping[TopicPartition, Committed],
    mirrored: Mapping[TopicPartition, _Mirrored],
) -> None:
    for partition, committed in offsets.items():
        at = mirrored.get(partition)
        if at is None or committed.offset < 0 or committed.error != NONE:
            continue
        group.committed[partition] = committed.offset
        if at.found is None:
            group.untranslated[partition] = f"{at.target} cannot be asked at the moment"
            continue
        if at.recreated:
            group.untranslated[partition] = "its topic was created anew, and is not mirrored yet"
            continue
        translation = at.found.to_target(committed.offset)
        if translation.offset is None:
            group.untranslated[partition] = translation.note
            continue
        group.offsets[at.target] = TranslatedOffset(
            committed.offset,
            translation.offset,
            _fitting(committed.metadata),
            _behind(at.found, committed.offset, translation.offset),
            at.found.end,
            bool(at.others),
            _deleted(at.found, committed.offset),
            at.found.back is not None,
        )


def _behind(found: MirroredPartition, upstream: int, downstream: int) -> int:
    if downstream < found.end:
        return 0
    position = found.position
    return max(upstream - position, 0) if position is not None else 0


def _deleted(found: MirroredPartition, upstream: int) -> int:
    return max(found.start - found.ledger.to_target(upstream), 0) if found.ledger.runs else 0


def _fitting(metadata: str) -> str:
    return metadata if len(metadata.encode()) <= _LONGEST_METADATA_BYTES else ""


def unsupported(group: ListedGroup) -> str:
    """Why the offsets of such a group cannot be translated; empty if they can."""
    if group.kind in _WHY_NOT:
        return f"{group.kind} groups cannot be synced: {_WHY_NOT[group.kind]}"
    if group.protocol_type not in {"", "consumer"}:
        return (
            f"{shown(group.protocol_type)} groups cannot be synced: they are not made of consumers"
        )
    return ""


def explain(error: WireError, settings: ClientSettings, operation: str, group: str) -> str:
    """What went wrong with a group; if a right is missing, which, and how to grant it."""
    if is_denied(error):
        return missing_right(settings, operation, "group", group)
    return str(error)


def ledger_of(config: FlowConfig, target: ClusterClient) -> LedgerStore:
    """The ledger of a flow, for a command; raises HeliographError if there is none."""
    flow, topic = config.flow, ledger_topic(config.flow.source)
    if topic not in target.metadata([topic]).topics:
        raise HeliographError(
            "groups.not-mirrored",
            f"flow {flow}: nothing is mirrored yet, {flow.target} has no ledger of it",
            "heliograph run mirrors it",
        )
    return LedgerStore(target, topic)


def is_denied(error: WireError) -> bool:
    """Whether it says that a right is missing."""
    return isinstance(error, BrokerError) and denied(error.code)


class Complaints:
    """Says once what is wrong with groups until somebody does something; ``*`` stands for all."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: set[str] = set()

    def tell(self, wrong: Mapping[str, str]) -> None:
        """Warn of groups that were not there the last time, all in one line."""
        new = sorted(wrong.keys() - self._known)
        self._known = set(wrong)
        if new:
            more = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
            who = "groups" if new[0] == ALL else f"group {shown(new[0])}"
            log.warning("%s: %s: %s%s", self._flow, who, wrong[new[0]], more)


def partitions(count: int) -> str:
    """A count of partitions in words."""
    return f"{count} partition" if count == 1 else f"{count} partitions"


def shortened(details: Iterable[tuple[str, str, bool]]) -> dict[str, str]:
    """(group, text, whether it needs attention) as a report; those that do come first."""
    ordered = sorted(details, key=lambda d: (not d[2], d[0]))
    if len(ordered) > MOST_DETAILS:
        more = len(ordered) - (MOST_DETAILS - 1)
        ordered[MOST_DETAILS - 1 :] = [("...", f"and {more} more groups", False)]
    return {group: text for group, text, _ in ordered}
