"""What to know of a failover that does not speak against it. Runs in a command or the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from heliograph.failover.source_side import SourceSeen
from heliograph.failover.target_side import Mirrored, TargetSide
from heliograph.shown import shown
from heliograph.units import counted
from heliograph.wire import configs
from heliograph.wire.cluster import ClusterClient

__all__ = ["differences", "streams_applications"]

#: What decides whether clients find the same at the target, and can do the same.
_COMPARED = (
    "cleanup.policy", "max.message.bytes", "min.insync.replicas", "retention.bytes", "retention.ms",
)  # fmt: skip
_NAMED = 3
#: Topics that Kafka Streams makes for an application, behind its id.
_STATE = ("-changelog", "-repartition")


def differences(
    source: ClusterClient, seen: SourceSeen, side: TargetSide, mirrored: Mirrored
) -> Iterator[str]:
    """Where topics of the target are not as those of a source that answers; raises WireError."""
    alias, there = side.flow.source, side.flow.target
    remote = {topic: side.remote_topic(topic) for topic in mirrored.topics}
    partitions = Counter(p.topic for p in seen.ends)
    for topic, name in remote.items():
        copies = len(mirrored.metadata.topics[name].partitions)
        if partitions[topic] != copies:
            yield (
                f"{shown(topic)} has {counted(partitions[topic], 'partition')} on {alias} and"
                f" {copies} on {there}"
            )
    here = configs.describe(source, remote, _COMPARED)
    copied = configs.describe(side.client, remote.values(), _COMPARED)
    found: dict[tuple[str, str, str], list[str]] = {}
    for topic, name in remote.items():
        for key in _COMPARED:
            one, other = here.value(topic, key, ""), copied.value(name, key, "")
            # What may not be described is not known to differ.
            if one and other and one != other:
                found.setdefault((key, one, other), []).append(topic)
    for (key, one, other), topics in sorted(found.items()):
        yield f"{key} is {one} on {alias} and {other} on {there}: {_some(topics)}"


def streams_applications(groups: Collection[str], topics: Collection[str]) -> Iterator[str]:
    """Groups of Kafka Streams whose state is mirrored, too. Pure.

    Changelogs and inputs are cut each where its own mirror stood: they do not belong together.
    """
    for group in sorted(groups):
        state = [t for t in topics if t.startswith(f"{group}-") and t.endswith(_STATE)]
        if state:
            yield (
                f"{shown(group)} is an application of Kafka Streams: its state"
                f" ({_some(sorted(state))}) and its input were not cut at the same point. Reset it"
                " (kafka-streams-application-reset.sh) and let it rebuild its state; its"
                " exactly-once does not reach across a failover"
            )


def _some(topics: list[str]) -> str:
    more = f" and {len(topics) - _NAMED} more" if topics[_NAMED:] else ""
    return ", ".join(map(shown, topics[:_NAMED])) + more
