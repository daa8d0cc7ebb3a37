"""How many requests a target broker has in flight, and when the next ones leave. In executors.

At most five requests are in flight per broker: it recognises a repeated batch among a producer's
last five. Answers of a broker that is near are gathered: two requests keep it busy, so the next
ones leave together.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from heliograph.copy.broker_link import BrokerLink
from heliograph.copy.partition import PartitionCopy
from heliograph.model import TopicPartition
from heliograph.wire.connection import Connection
from heliograph.wire.produce import Producer

_MAX_IN_FLIGHT = 5
#: Brokers work on one request of a connection at a time. One that is near has enough to do with so
#: few more: until then its answers are gathered, and the next requests leave together.
_REFILL_AT, _NEAR_SECONDS = 2, 0.002
#: A broker is slow when an answer takes this long, or many times as long as the quickest one.
_SLOW_SECONDS, _SLOW_TIMES = 0.25, 4


class Sent(NamedTuple):
    """A request in flight: what it was, when it left, and how long its answer is at least."""

    markers: bool
    at: float
    answer_bytes: int


@dataclass(slots=True)
class TargetLink(BrokerLink):
    """A target broker: requests in flight and partitions with something to send.

    ``shortest_answer`` is the quickest answer so far, in seconds: how far away the broker is.
    ``busy`` while a broker that is near has enough to do.
    """

    producer: Producer
    sent: deque[Sent] = field(default_factory=deque)
    shortest_answer: float = float("inf")
    ready: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)
    aside: bool = False
    busy: bool = False

    @property
    def connection(self) -> Connection:
        """The producer's connection."""
        return self.producer.connection

    def may_send(self) -> bool:
        """Whether there is something to send, and it is time to; notes whether it is ``busy``."""
        in_flight = len(self.sent)
        if in_flight >= _MAX_IN_FLIGHT:
            self.busy = self.shortest_answer < _NEAR_SECONDS
        elif in_flight <= _REFILL_AT:
            self.busy = False
        return bool(self.ready) and in_flight < _MAX_IN_FLIGHT and not self.busy

    def gather(self) -> None:
        """Be woken when it has answered enough for `may_send`."""
        answers = len(self.sent) - _REFILL_AT if self.busy else 0
        enough = sum(sent.answer_bytes for sent in islice(self.sent, max(answers, 0)))
        self.connection.wake_for(max(enough, 1))

    def waited(self, now: float) -> float:
        """How many seconds the oldest request waits for its answer, those of a quota left out."""
        if not self.sent or self.connection.throttled:
            return 0.0
        return now - self.sent[0].at

    def is_slow(self, now: float) -> bool:
        """Whether it is no use to wait for its answer before others are served."""
        if self.connection.throttled:
            return True
        usual = self.shortest_answer if self.shortest_answer < float("inf") else 0.0
        return self.waited(now) > max(_SLOW_SECONDS, _SLOW_TIMES * usual)
