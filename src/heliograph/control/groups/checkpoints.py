"""MM2's checkpoints: where each group of the source goes on, on the target. Runs in the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from heliograph.control.groups.translated import (
    ALL,
    Complaints,
    GroupTranslation,
    TranslatedGroup,
    TranslatedGroups,
    TranslatedOffset,
    shortened,
)
from heliograph.control.topics.refresh import TopicPlan
from heliograph.mm2.checkpoints import CheckpointKey, CheckpointLog
from heliograph.mm2.formats import Checkpoint
from heliograph.model import Flow, TopicPartition
from heliograph.policy import ReplicationPolicy
from heliograph.shown import shown

__all__ = ["CheckpointEmitter", "goes_back", "next_checkpoint", "perhaps_gone"]

log = logging.getLogger(__name__)


def next_checkpoint(
    key: CheckpointKey, offset: TranslatedOffset, last: Checkpoint | None
) -> Checkpoint:
    """What the checkpoint of a group and partition is, after ``last``; the same if nothing changed.

    It goes back when the group itself does. Otherwise never, unless ``last`` is about a topic that
    is not there any more: one that was created anew, or that has lost its end.
    """
    downstream = offset.downstream
    if (
        last is not None
        and offset.upstream >= last.upstream
        and last.downstream <= offset.end
        and not offset.replaced
    ):
        downstream = max(downstream, last.downstream)
    return Checkpoint(*key, offset.upstream, downstream, offset.metadata)


def goes_back(new: Checkpoint, last: Checkpoint | None) -> bool:
    """Whether it goes back although the group does not."""
    return last is not None and new.downstream < last.downstream and new.upstream >= last.upstream


def perhaps_gone(
    known: Iterable[CheckpointKey],
    groups: Mapping[str, TranslatedGroup],
    accepts: Callable[[str], bool],
    source_topic: Callable[[str], str | None],
) -> dict[tuple[str, TopicPartition], CheckpointKey]:
    """Checkpoints without an offset behind them, by group and partition of the source.

    Not those of groups that the filter leaves out, nor of groups that could not be asked.
    """
    found = {}
    accepted: dict[str, bool] = {}
    for key in known:
        name, topic, partition = key
        if name not in accepted:
            accepted[name] = accepts(name)
        group = groups.get(name)
        upstream = source_topic(topic)
        if not accepted[name] or upstream is None:
            continue
        source = TopicPartition(upstream, partition)
        if group is None or not (
            group.error
            or TopicPartition(topic, partition) in group.offsets
            or source in group.untranslated
        ):
            found[name, source] = key
    return found


class CheckpointEmitter:
    """Writes the checkpoints of one flow.

    Args:
        young_seconds: how old a look at the groups may be, if another job has taken it.
        prune_seconds: how often to look for checkpoints of groups that are gone.
    """

    def __init__(
        self,
        flow: Flow,
        translation: GroupTranslation,
        checkpoints: CheckpointLog,
        plan: Callable[[], TopicPlan],
        policy: ReplicationPolicy,
        *,
        young_seconds: float,
        prune_seconds: float,
    ) -> None:
        self._flow = flow
        self._translation = translation
        self._checkpoints = checkpoints
        self._plan = plan
        self._policy = policy
        self._young_seconds = young_seconds
        self._prune_seconds = prune_seconds
        self._pruned_at = float("-inf")
        self._details: Mapping[str, str] = {}
        self._complaints = Complaints(flow)

    def details(self) -> Mapping[str, str]:
        """What the last run has to say of each group."""
        return self._details

    def emit(self, *, fresh: bool = False) -> TranslatedGroups:
        """One cycle: what has changed since the last one is written, in one append.

        With ``fresh`` the groups are looked at anew, whatever another job has seen. Returns them.

        Raises:
            WireError: a cluster is away.
            ValueError: the topic cannot be read; nothing is written then.
        """
        self._checkpoints.refresh()
        seen = self._translation.latest(0.0 if fresh else self._young_seconds)
        self._emit(seen)
        return seen

    def _emit(self, seen: TranslatedGroups) -> None:
        known = self._checkpoints.known
        changed, back = [], []
        for name, group in seen.groups.items():
            for partition, offset in group.offsets.items():
                key = (name, *partition)
                last = known.get(key)
                new = next_checkpoint(key, offset, last)
                if new != last:
                    changed.append(new)
                if last is not None and goes_back(new, last):
                    back.append((new, last))
        gone = self._gone(seen)
        if changed or gone:
            self._checkpoints.append(changed, gone)
        self._tell(back, gone)
        self._report(seen)

    def _gone(self, seen: TranslatedGroups) -> list[CheckpointKey]:
        """Checkpoints of which the source says that the group has no such offset any more."""
        now = time.monotonic()
        if now - self._pruned_at < self._prune_seconds:
            return []
        self._pruned_at = now
        sources = {name: p.topic for p, name in self._plan().partitions.items()}

        def source_topic(topic: str) -> str | None:
            return sources.get(topic) or self._policy.upstream_topic(topic)

        candidates = perhaps_gone(
            self._checkpoints.known, seen.groups, self._translation.accepts, source_topic
        )
        if not candidates:
            return []
        wanted: dict[str, list[TopicPartition]] = {}
        for group, partition in candidates:
            wanted.setdefault(group, []).append(partition)
        missing = self._translation.without_offsets(wanted)
        return [key for pair, key in candidates.items() if pair in missing]

    def _tell(self, back: list[tuple[Checkpoint, Checkpoint]], gone: list[CheckpointKey]) -> None:
        if back:
            new, last = back[0]
            log.warning(
                "%s: %d checkpoint(s) go back: %s-%d of %s was created anew or has lost its end;"
                " group %s goes on at %d there, not at %d",
                self._flow, len(back), new.topic, new.partition, self._flow.target, new.group,
                new.downstream, last.downstream,
            )  # fmt: skip
        if gone:
            groups = sorted({key[0] for key in gone})
            some = ", ".join(map(shown, groups[:5]))
            some += f" and {len(groups) - 5} more" if groups[5:] else ""
            log.info(
                "%s: removed %d checkpoint(s) whose offsets are gone on %s, of %s",
                self._flow, len(gone), self._flow.source, some,
            )  # fmt: skip

    def _report(self, seen: TranslatedGroups) -> None:
        report = shortened(
            (name, group.summary(), bool(group.error or group.untranslated))
            for name, group in seen.groups.items()
        )
        wrong = {name: g.error for name, g in seen.groups.items() if g.denied}
        if seen.blind_spot:
            report = {ALL: seen.blind_spot, **report}
            wrong[ALL] = seen.blind_spot
        self._details = report
        self._complaints.tell(wrong)
