"""Transactions left open in a remote topic by somebody: consumers wait, the mirror does not.

Mirrored records are in no transaction, but a consumer that reads committed data only sees none of
them behind the first record of one that is open. Runs in the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from heliograph.control.topics.refresh import TopicPlan
from heliograph.model import Flow, PartitionEvent, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.ends import EndsQuery

CODE = "target.open-transaction"


@dataclass(slots=True)
class _Held:
    """A partition whose readers have been waiting at ``stable`` since then."""

    stable: int
    since: float
    told: bool = False


class OpenTransactions:
    """Watches the last stable offsets of a flow's target partitions.

    Args:
        flow: whose they are.
        target: a client of the target.
        plan: what is mirrored now.
        tell: takes what an operator must hear of.
        patience_seconds: transactions that end sooner are not worth a word.
    """

    def __init__(
        self,
        flow: Flow,
        target: ClusterClient,
        plan: Callable[[], TopicPlan],
        tell: Callable[[Iterable[PartitionEvent]], None],
        patience_seconds: float,
    ) -> None:
        self._flow = flow
        self._target = target
        self._plan = plan
        self._tell = tell
        self._patience = patience_seconds
        self._ends = EndsQuery(target)
        self._stable = EndsQuery(target, read_committed=True)
        self._asked = TopicPlan()
        self._sources: dict[TopicPartition, TopicPartition] = {}
        self._held: dict[TopicPartition, _Held] = {}
        self._why: dict[str, str] = {}

    def details(self) -> dict[str, str]:
        """Why which remote partitions are not read to their end by some."""
        return dict(self._why)

    def watch(self) -> None:
        """Look once; what has been waiting for long is told, once for each transaction.

        Raises WireError if a broker did not answer.
        """
        plan = self._plan()
        if plan.target is None:
            return
        if (plan.partitions, plan.target) != (self._asked.partitions, self._asked.target):
            self._asked = plan
            self._sources = {
                TopicPartition(name, p.partition): p for p, name in plan.partitions.items()
            }
        sources, target = self._sources, self._asked.target
        assert target is not None  # noqa: S101 - as the plan's
        # Ends first: what is written meanwhile must not look as if it was held back.
        for query in (self._ends, self._stable):
            query.ask(target, sources)
            for error in query.silent.values():
                raise error
        ends, stable = self._ends.found, self._stable.found
        now = time.time()
        behind = {t: at for t, at in stable.items() if at < ends.get(t, at)}
        for t in self._held.keys() - behind.keys():
            del self._held[t]
        late: list[TopicPartition] = []
        for t, at in behind.items():
            if t not in self._held or self._held[t].stable != at:
                self._held[t] = _Held(at, now)
            if now - self._held[t].since >= self._patience:
                late.append(t)
        producers = admin.describe_producers(self._target, target, late)
        self._why = {
            str(t): self._explain(t, producers.get(t, []), ends[t], now) for t in sorted(late)
        }
        events = []
        for t in late:
            held = self._held[t]
            if not held.told:
                held.told = True
                text = self._why[str(t)]
                events.append(
                    PartitionEvent(
                        str(self._flow), sources[t], CODE, text, held.stable, ends[t], now
                    )
                )
        if events:
            self._tell(events)

    def _explain(
        self, t: TopicPartition, producers: list[admin.ProducerState], end: int, now: float
    ) -> str:
        held = self._held[t]
        began = [p for p in producers if 0 <= p.transaction_start <= held.stable]
        who = ", ".join(f"producer id {p.producer_id}" for p in began) or "a producer"
        return (
            f"{who} has had a transaction open in {t} on {self._flow.target} for at least"
            f" {now - held.since:.0f} s, from offset {held.stable} on: mirroring goes on, but"
            f" consumers with isolation.level=read_committed see nothing of [{held.stable}, {end})."
            " Let it commit or abort, or end it: kafka-transactions.sh abort --topic"
            f" {t.topic} --partition {t.partition} --start-offset {held.stable}"
        )
