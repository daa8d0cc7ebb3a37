"""Answers what inquiries about many partitions ask, all of a round at once. Runs in the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from heliograph.batch.log_slice import LogSlice
from heliograph.model import TopicPartition
from heliograph.takeover.history import Answer, Asking, ByTime, Read, Request, Side
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError
from heliograph.wire.fetch import Fetched
from heliograph.wire.ranges import PARTITION_BYTES, offsets_at, read_ranges
from heliograph.wire.rights import denied, missing_right

__all__ = ["Refused", "answer_all"]

T = TypeVar("T")

#: What is read of one partition for one answer, at most; then the answer is cut short.
_MOST_BYTES = 256 << 20
#: Where a record is enough: a batch of a producer with default settings.
_PROBE_BYTES = 20 << 10
#: Partitions that are asked about at once: their slices are in memory together.
_AT_ONCE = 500


class Refused(Exception):
    """Thrown into an inquiry whose question a broker refuses to answer.

    Attributes:
        right: what is missing, if that is why.
    """

    def __init__(self, error: BrokerError, right: str) -> None:
        super().__init__(str(error))
        self.right = right


@dataclass(slots=True)
class _Open(Generic[T]):
    """An inquiry that waits for an answer."""

    target: TopicPartition
    asking: Asking[T]
    request: Request

    def proceed(self, answer: Answer | Refused) -> None:
        """Give the answer and take the next question; raises StopIteration at the end."""
        if isinstance(answer, Refused):
            self.request = self.asking.throw(answer)
        else:
            self.request = self.asking.send(answer)


def answer_all(
    source: ClusterClient,
    target: ClusterClient,
    inquiries: Mapping[TopicPartition, tuple[TopicPartition, Asking[T]]],
    ended: Callable[[TopicPartition, T | Exception], None],
) -> None:
    """Carry inquiries through, each about a source partition and its target partition.

    ``ended`` is called with what each returns or raises. Raises WireError if a cluster fails.
    """
    clients = {Side.SOURCE: source, Side.TARGET: target}
    waiting = deque(inquiries.items())
    opened: dict[TopicPartition, _Open[T]] = {}

    @contextmanager
    def outcome(partition: TopicPartition) -> Iterator[None]:
        """Whatever an inquiry returns or raises is its outcome."""
        try:
            yield
        except StopIteration as stop:
            opened.pop(partition, None)
            ended(partition, stop.value)
        except Exception as error:  # noqa: BLE001 - one partition's matter
            opened.pop(partition, None)
            ended(partition, error)

    while waiting or opened:
        while waiting and len(opened) < _AT_ONCE:
            partition, (there, asking) = waiting.popleft()
            with outcome(partition):
                opened[partition] = _Open(there, asking, next(asking))
        for partition, answer in list(_answers(clients, opened)):
            with outcome(partition):
                opened[partition].proceed(answer)


def _answers(
    clients: Mapping[Side, ClusterClient], opened: Mapping[TopicPartition, _Open[T]]
) -> Iterator[tuple[TopicPartition, Answer | Refused]]:
    """One answer for each open inquiry."""
    for side, client in clients.items():
        mine = {p: i for p, i in opened.items() if i.request.side is side}
        names = {p: p if side is Side.SOURCE else i.target for p, i in mine.items()}
        times = {
            names[p]: i.request.timestamp for p, i in mine.items() if isinstance(i.request, ByTime)
        }
        found = offsets_at(client, times) if times else {}
        yield from ((p, found.get(names[p])) for p in mine if names[p] in times)
        for committed in (False, True):
            reads = {
                names[p]: i.request for p, i in mine.items()
                if isinstance(i.request, Read)
                and (i.request.committed or side is Side.TARGET) is committed
            }  # fmt: skip
            slices, refused = _read(client, reads, committed)
            for p in mine:
                if names[p] in refused:
                    yield p, _explained(client, names[p], refused[names[p]])
                elif names[p] in slices:
                    yield p, slices[names[p]]


def _explained(client: ClusterClient, partition: TopicPartition, error: BrokerError) -> Refused:
    right = ""
    if denied(error.code):
        right = missing_right(client.settings, "Read", "topic", partition.topic)
    return Refused(error, right)


def _read(
    client: ClusterClient, reads: Mapping[TopicPartition, Read], committed: bool
) -> tuple[dict[TopicPartition, LogSlice], dict[TopicPartition, BrokerError]]:
    slices = {p: LogSlice(request.start) for p, request in reads.items()}
    sizes = dict.fromkeys(reads, 0)

    def take(fetched: Fetched) -> int | None:
        request, part = reads[fetched.partition], slices[fetched.partition]
        aborted = fetched.aborted if committed else []
        following = part.take(fetched.records, aborted, request.end, request.most)
        sizes[fetched.partition] += len(fetched.records)
        enough = len(part) >= request.records if request.end is None else following >= request.end
        if following == fetched.offset:
            return following
        part.cut = not enough and sizes[fetched.partition] > _MOST_BYTES
        return None if enough or part.cut else following

    refused: dict[TopicPartition, BrokerError] = {}
    for size in (_PROBE_BYTES, PARTITION_BYTES):
        starts = {
            p: request.start for p, request in reads.items()
            if (request.end is None and request.records == 1) is (size == _PROBE_BYTES)
        }  # fmt: skip
        refused |= read_ranges(client, starts, take, read_committed=committed, partition_bytes=size)
    return slices, refused
