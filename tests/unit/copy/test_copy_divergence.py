"""Any history of elections, clean and unclean: a mirror by the ledger's marks, and three logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from heliograph.copy.leader_epochs import divergence
from heliograph.ledger.epochs import UNKNOWN_EPOCH, EpochMark
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.wire.epochs import EpochEnd


class Item(NamedTuple):
    """What is at one offset of a log; ``number`` is None for a marker."""

    epoch: int
    number: int | None


@dataclass
class Source:
    """Three replicas; followers have what they fetched last, the leader is elected by anybody."""

    logs: list[list[Item]] = field(default_factory=lambda: [[], [], []])
    starts: list[dict[int, int]] = field(default_factory=lambda: [{0: 0}, {}, {}])
    leader: int = 0
    epoch: int = 0
    written: int = 0

    @property
    def log(self):
        return self.logs[self.leader]

    def write(self, kinds):
        for data in kinds:
            self.log.append(Item(self.epoch, self.written if data else None))
            self.written += 1

    def follow(self, replica, most):
        """Truncate to what the leader has too, then fetch so much."""
        log = self.logs[replica]
        same = 0
        while same < min(len(log), len(self.log)) and log[same] == self.log[same]:
            same += 1
        # A follower keeps what it has if the leader would only have more: no shorter than now.
        log[same:] = self.log[same : max(same, min(len(self.log), most))]

    def elect(self, replica, skipped):
        self.leader, self.epoch = replica, self.epoch + 1 + skipped

    def epoch_end(self, asked):
        """Kafka's LeaderEpochFileCache.endOffsetFor, for the leader's log."""
        starts: dict[int, int] = {}
        for offset, item in enumerate(self.log):
            starts.setdefault(item.epoch, offset)
        starts.setdefault(self.epoch, len(self.log))
        if asked == max(starts):
            return EpochEnd(0, asked, len(self.log))
        above = [e for e in starts if e > asked]
        if not above:
            return EpochEnd(0, -1, -1)
        below = [e for e in starts if e <= asked]
        return EpochEnd(0, max(below, default=asked), starts[min(above)])


@dataclass
class Mirror:
    """Copies as the data path does, one record a batch; goes on when the source has lost some."""

    ledger: PartitionLedger = field(default_factory=lambda: PartitionLedger([Run(0, 0, 0)]))
    target: list[int] = field(default_factory=list)
    #: Source offsets and records of what it believes the source to have.
    alive: dict[int, int] = field(default_factory=dict)
    lost: int = 0

    def look(self, source):
        asking = divergence(self.ledger, len(self.target), source.epoch)
        try:
            asked = next(asking)
            while True:
                asked = asking.send(source.epoch_end(asked))
        except StopIteration as stop:
            return stop.value

    def copy(self, source, most, write, settle):
        """Read so many offsets, write so many of the records: the others were only announced."""
        sequence = len(self.target)
        found, numbers = self.look(source), dict(enumerate(item.number for item in source.log))
        gone = [offset for offset, number in self.alive.items() if numbers.get(offset) != number]
        assert (found.lost if found else 0) == len(gone), "neither silent nor crying wolf"
        if found is not None:
            known = {offset for offset in self.alive if offset >= found.offset}
            assert known == set(gone)
            assert not gone or found.until == max(gone) + 1
            self.lost += found.lost
            self.alive = {o: n for o, n in self.alive.items() if o < found.offset}
            self.ledger.cut(Run(sequence, found.offset, len(self.target)), source.epoch)
            mark = EpochMark(sequence, found.epoch, True, found.offset, source.epoch)
            self.ledger.epochs.enter(mark)
        position = contiguous = self.ledger.source_of(sequence)
        epoch = self.ledger.epochs.at(sequence)
        wanted: list[tuple[int, int]] = []
        for offset in range(position, min(position + most, len(source.log))):
            item = source.log[offset]
            if item.epoch != epoch:
                anew = item.epoch < epoch
                leader = source.epoch if anew else UNKNOWN_EPOCH
                mark = EpochMark(sequence, item.epoch, anew, offset, leader)
                self.ledger.epochs.enter(mark)
                epoch = item.epoch
            position = offset + 1
            if item.number is not None:
                if offset != contiguous:
                    self.announce(Run(sequence, offset, sequence))
                wanted.append((offset, item.number))
                sequence, contiguous = sequence + 1, offset + 1
        self.target += [number for _, number in wanted[:write]]
        self.alive |= dict(wanted[:write])
        if settle and write >= len(wanted) and position > contiguous:
            self.announce(Run(sequence, position, sequence))

    def announce(self, run):
        """As `Announcer.announce`: what was announced further back was not found there."""
        self.ledger.add(run)
        if self.ledger.source_of(run.sequence) < run.source:
            self.ledger.correct(run)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.booleans(), min_size=1, max_size=4)),
        st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("elect"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("copy"), st.integers(0, 9), st.integers(0, 9), st.booleans()),
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=120)
def test_f11_a_mirror_that_goes_on_never_misses_a_record_and_never_cries_wolf(history):
    source, mirror = Source(), Mirror()
    for kind, *values in history:
        if kind == "write":
            source.write(*values)
        elif kind == "follow" and values[0] != source.leader:
            source.follow(*values)
        elif kind == "elect":
            source.elect(*values)
        elif kind == "copy":
            mirror.copy(source, *values)
    mirror.copy(source, 1000, 1000, settle=True)
    event("unclean elections noticed" if mirror.lost else "nothing lost")
    assert mirror.look(source) is None
    here = [item.number for item in source.log if item.number is not None]
    ledger, end = mirror.ledger, len(mirror.target)
    # Where each record of the source is: the translated place holds that very record.
    for offset, item in enumerate(source.log):
        if item.number is not None:
            assert mirror.target[ledger.to_target(offset, end)] == item.number
            assert ledger.to_source(ledger.to_target(offset, end), end) == offset
    kept = [mirror.target[ledger.to_target(o, end)] for o, i in enumerate(source.log)
            if i.number is not None]  # fmt: skip
    assert kept == here
