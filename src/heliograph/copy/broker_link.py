"""What the links to source and target brokers share. In executors, in the thread of the copy loop.

A broker that is silent may have lost its partitions: the others are asked, in the background. A
broker whose quota is exceeded says for how long it does not go on: its partitions show that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from heliograph.copy.background import Background
from heliograph.copy.links import Cluster
from heliograph.copy.partition import PartitionCopy
from heliograph.copy.unresponsive_brokers import ASK_SECONDS
from heliograph.model import TopicPartition


@dataclass(slots=True)
class BrokerLink:
    """A broker. ``asking`` while the others are asked about it; not again before a given time."""

    node: int
    asking: bool = field(default=False, kw_only=True)
    ask_again_at: float = field(default=0.0, kw_only=True)


Link = TypeVar("Link", bound=BrokerLink)


def ask_others(
    link: Link,
    links: Mapping[int, Link],
    led: Iterable[TopicPartition],
    cluster: Cluster,
    background: Background,
    lose: Callable[[Link, str], None],
) -> None:
    """A broker is silent: ``lose`` its link if, by the others, it no longer leads all of ``led``.

    ``links`` are those of its side: one that was replaced meanwhile is not lost again.
    """
    if link.asking:
        return
    link.asking, link.ask_again_at = True, time.monotonic() + ASK_SECONDS
    mine, silent, node = list(led), cluster.silent, link.node
    silent.add(node)

    def answered(lost: bool) -> None:
        link.asking = False
        if lost and links.get(node) is link:
            lose(link, f"broker {node} of {cluster.client.alias} is silent")

    background.run(
        cluster.spare_lane,
        lambda: silent.lost(node, mine),
        answered,
        lambda _: answered(False),
    )


def throttle(node: int, led: Iterable[PartitionCopy], seconds: float, limit: str) -> None:
    """A broker does not go on for so many seconds, because of a quota: ``limit`` says which."""
    until = time.time() + seconds
    why = f"{limit}: broker {node} makes us wait {seconds:.1f} s"
    for p in led:
        # Answers that come during a pause repeat the rest of it.
        p.throttled_ms += int(1000 * (until - max(time.time(), min(p.throttled_until, until))))
        p.throttled_until, p.throttled_by = until, why
