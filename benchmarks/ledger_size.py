"""How large is the ledger of a gappy topic? ``python -m benchmarks.ledger_size``; needs no broker.

Writes the runs of such a topic with the store's own code, into a topic in memory that keeps the
very batches a broker would keep, tidies it as the driver does, lets a cleaner remove what has a
tombstone, and prints bytes per million gaps:

- live: a run to an entry, one entry per gap, as a slow topic with transactions makes them;
- catch-up: 500 runs to an entry, as large fetches make them;
- tidied: what remains of the live entries after `LedgerKeeper.tidy`, every 3,000 of them (five
  minutes at ten a second), and compaction;
- read: seconds to read the tidied topic into a process; memory: what it takes there.
"""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

import click

from heliograph.batch.records import Record, build, decode
from heliograph.ledger.codec import Entry, Place
from heliograph.ledger.keeper import LedgerKeeper
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.topic_log import Pair, TopicLog, batch_of

_MILLION = 1_000_000
_CATCH_UP_RUNS = 500
_TIDY_ENTRIES = 3000
_ZSTD = 4
_PLACE = Place("orders", 0, uuid.UUID(int=random.Random(1).getrandbits(128)),
               uuid.UUID(int=random.Random(2).getrandbits(128)))  # fmt: skip


class _Topic:
    """Batches by their base offset."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.batches: list[bytes] = []
        self.end = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    def append(self, batch: memoryview | bytes, base: int | None = None) -> None:
        base = self.end if base is None else base
        self.bases.append(base)
        self.batches.append(struct.pack(">q", base) + bytes(batch[8:]))
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        self.end = base + last_delta + 1

    def read(self, start: int) -> Iterator[memoryview]:
        for batch in self.batches[bisect_left(self.bases, start) :]:
            yield memoryview(batch)

    def compacted(self) -> _Topic:
        """What a cleaner leaves, its tombstones expired."""
        last = {r.key: r.offset for batch in self.batches for r in decode(batch)}
        made = _Topic()
        for base, batch in zip(self.bases, self.batches, strict=True):
            records = list(decode(batch))
            kept = [r for r in records if last[r.key] == r.offset and r.value is not None]
            if len(kept) == len(records):
                made.append(batch, base)
            elif kept:
                # As the broker's: rewritten, still compressed.
                made.append(build(kept, codec=_ZSTD), kept[0].offset)
        return made


class _InMemory(TopicLog):
    """A topic in memory."""

    def __init__(self, topic: _Topic) -> None:
        self._topic = topic

    def find_end(self, position: int) -> bool:
        return True

    def read(self, position: int) -> Iterator[Iterable[Record]]:
        return map(decode, self._topic.read(position))

    def append(self, pairs: Iterable[Pair], producer_id: int = -1, sequence: int = -1) -> None:
        self._topic.append(batch_of(pairs, producer_id, sequence))

    def allocate_producer_id(self) -> int:
        return 1


def _store(topic: _Topic) -> LedgerStore:
    store = LedgerStore(None, "ledger")  # type: ignore[arg-type]
    store.follower.log = _InMemory(topic)
    return store


def _transactions(gaps: int) -> Iterator[tuple[int, int]]:
    """(records, missing offsets): a marker after every 100 records."""
    return ((100, 1) for _ in range(gaps))


def _mixed_transactions(gaps: int) -> Iterator[tuple[int, int]]:
    """A marker after 1 to 200 records."""
    rng = random.Random(7)
    return ((rng.randint(1, 200), 1) for _ in range(gaps))


def _compacted(gaps: int) -> Iterator[tuple[int, int]]:
    """A compacted topic of which every other record is left, at random."""
    rng = random.Random(7)

    def stretch() -> int:
        count = 1
        while rng.random() < 0.5:
            count += 1
        return count

    return ((stretch(), stretch()) for _ in range(gaps))


def _runs(stretches: Iterator[tuple[int, int]], identical: bool) -> list[Run]:
    run, found = Run(0, 0, 0), []
    for records, missing in stretches:
        run = Run(
            run.sequence + records,
            run.source + records + missing,
            run.target + records + (missing if identical else 0),
        )
        found.append(run)
    return found


def _written(runs: list[Run], step: int) -> int:
    topic = _Topic()
    writer = _store(topic)
    for i in range(0, len(runs), step):
        writer.write([Entry(_PLACE, runs[i : i + step])])
    return topic.size


def _tidied(runs: list[Run]) -> tuple[_Topic, int]:
    """The topic as the driver and the cleaner leave it, and all that was ever written to it."""
    topic, total = _Topic(), 0
    for begin in range(0, len(runs), _TIDY_ENTRIES):
        writer, keeper = _store(topic), LedgerKeeper(_store(topic))
        writer.refresh()
        before = topic.size
        for run in runs[begin : begin + _TIDY_ENTRIES]:
            writer.write([Entry(_PLACE, [run])])
        keeper.tidy({_PLACE: 0}, least=1)
        total += topic.size - before
        topic = topic.compacted()
    return topic, total


def _read(topic: _Topic) -> tuple[PartitionLedger, float, int]:
    began = time.perf_counter()
    _store(topic).refresh()
    seconds = time.perf_counter() - began
    store = _store(topic)
    tracemalloc.start()
    store.refresh()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return store.at(_PLACE), seconds, memory


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--gaps", default=100_000, show_default=True, help="Gaps to write; sizes scale.")
def main(gaps: int) -> None:
    """Print the ledger's size and memory per million gaps."""
    kinds: dict[str, Callable[[int], Iterator[tuple[int, int]]]] = {
        "marker every 100 records": _transactions,
        "marker every 1 to 200": _mixed_transactions,
        "compacted, random holes": _compacted,
    }
    scale = _MILLION / gaps
    mb = scale / 1e6
    click.echo(f"MB per million gaps (of {gaps:,})")
    head = ("offsets", "live", "catch-up", "tidied", "written", "read", "memory")
    click.echo(f"{'':28}{head[0]:>10}" + "".join(f"{name:>10}" for name in head[1:]))
    for name, stretches in kinds.items():
        for identical in (False, True):
            runs = _runs(stretches(gaps), identical)
            sample = runs[: max(gaps // 10, 1)]
            live = _written(sample, 1) / len(sample) * gaps
            catch_up = _written(runs, _CATCH_UP_RUNS)
            topic, total = _tidied(runs)
            ledger, seconds, memory = _read(topic)
            if list(ledger.runs) != runs:
                raise click.ClickException("the tidied ledger is not what was written")
            cells = [f"{size * mb:.1f}" for size in (live, catch_up, topic.size, total)]
            cells += [f"{seconds * scale:.2f} s", f"{memory * mb:.1f}"]
            mode = "identical" if identical else "dense"
            click.echo(f"{name:28}{mode:>10}" + "".join(f"{cell:>10}" for cell in cells))
    tracemalloc.start()
    tuples = [Run(n + _MILLION, 2 * n + _MILLION, n + _MILLION) for n in range(gaps)]
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    click.echo(f"as a list of {len(tuples):,} tuples it would take {memory * mb:.0f} MB of memory")


if __name__ == "__main__":
    main()
