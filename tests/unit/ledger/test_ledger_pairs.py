"""Offsets of two logs that are mirrored into each other: nothing unread is skipped."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.known import Known
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.translation import Count, MirroredPartition, count
from heliograph.wire.admin import ProducerState

pytestmark = pytest.mark.hypothesis
MARKER = None


@dataclass
class Log:
    """Records are (where they began, number); a marker is no record."""

    name: str
    records: list = field(default_factory=list)

    def write(self, numbers):
        self.records += [(self.name, n) for n in numbers]

    @property
    def own(self):
        return [r for r in self.records if r is not MARKER and r[0] == self.name]


class OneWay:
    """A flow, as the copy loop writes its ledger: it skips what came from the target."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.ledger = PartitionLedger([Run(0, 0, len(target.records))])
        self.position = self.contiguous = self.count = 0
        self.expected = len(target.records)

    def copy(self, most):
        while most and self.position < len(self.source.records):
            record = self.source.records[self.position]
            if record is not MARKER and record[0] == self.source.name:
                at = len(self.target.records)
                if self.position != self.contiguous or at != self.expected:
                    self._announce(Run(self.count, self.position, at))
                self.target.records.append(record)
                self.count += 1
                self.contiguous, self.expected = self.position + 1, at + 1
                most -= 1
            self.position += 1

    def settle(self):
        """Passes what has nothing to mirror, and says so, as a lease does at its end."""
        while self.position < len(self.source.records):
            record = self.source.records[self.position]
            if record is not MARKER and record[0] == self.source.name:
                break
            self.position += 1
        if self.position != self.contiguous:
            self._announce(Run(self.count, self.position, self.expected))
            self.contiguous = self.position

    def _announce(self, run):
        known = self.ledger.at_sequence(run.sequence)
        if known is not None and known.sequence == run.sequence:
            self.ledger.correct(run)
        else:
            self.ledger.add(run)

    def view(self, blur=0):
        low, high = max(self.count - blur, 0), self.count + blur
        return MirroredPartition(
            self.ledger, 0, len(self.target.records), Count(low, high)
        )  # fmt: skip


class Both:
    def __init__(self):
        self.a, self.b = Log("A"), Log("B")
        self.ab, self.ba = OneWay(self.a, self.b), OneWay(self.b, self.a)
        self.written = 0

    def write(self, log, number):
        log.write(range(self.written, self.written + number))
        self.written += number

    def do(self, step):
        what, number = step
        if what == "a":
            self.write(self.a, number)
        elif what == "b":
            self.write(self.b, number)
        elif what == "ab":
            self.ab.copy(number)
        elif what == "ba":
            self.ba.copy(number)
        elif what == "mark a":
            self.a.records += [MARKER] * number
        elif what == "mark b":
            self.b.records += [MARKER] * number
        elif what == "settle":
            self.ab.settle()
            self.ba.settle()

    def views(self, blur=0):
        ab, ba = self.ab.view(blur), self.ba.view(blur)
        return (
            MirroredPartition(ab.ledger, ab.start, ab.end, ab.count, ba),
            MirroredPartition(ba.ledger, ba.start, ba.end, ba.count, ab),
        )

    @property
    def in_order(self):
        a, b = (self.a.records, self.b.records)
        return all(x == y for x, y in zip(a, b, strict=False))


def answers(view, here):
    return [view.to_target(n).offset for n in range(len(here.records) + 1)]


def back_answers(view, there):
    return [view.to_source(n).offset for n in range(len(there.records) + 1)]


def assert_nothing_is_skipped(here, there, found):
    for offset, at in enumerate(found):
        read = set(here.records[:offset])
        skipped = [
            r for r in there.records[:at]
            if r is not MARKER and r not in read
            # What was read there only is no business of a group of this side.
            and (r in here.records or r[0] == there.name)
        ]  # fmt: skip
        assert not skipped, (offset, at, here.records, there.records)


def assert_nothing_is_repeated(here, there, found):
    for offset, at in enumerate(found):
        read = set(here.records[:offset])
        repeated = [r for r in there.records[at:] if r is not MARKER and r in read]
        assert not repeated, (offset, at, here.records, there.records)


def assert_exact_both_ways(both, blur=0):
    for here, there, view, other in (
        (both.a, both.b, *both.views(blur)),
        (both.b, both.a, *reversed(both.views(blur))),
    ):
        found = answers(view, here)
        assert found == back_answers(other, here)
        assert_nothing_is_skipped(here, there, found)
        if both.in_order and not blur:
            assert_nothing_is_repeated(here, there, found)


STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", "ba", "settle"]), st.integers(1, 5)), max_size=30
)
MARKED = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ab", "ba", "settle", "mark a", "mark b"]), st.integers(1, 5)
    ),
    max_size=30,
)


@given(STEPS)
def test_whoever_writes_and_copies_in_whatever_order(steps):
    both = Both()
    for step in steps:
        both.do(step)
    assert_exact_both_ways(both)


@given(MARKED, st.integers(0, 4))
def test_markers_and_brokers_that_have_forgotten_repeat_at_most(steps, blur):
    both = Both()
    for step in steps:
        both.do(step)
    for here, there, view in zip((both.a, both.b), (both.b, both.a), both.views(blur), strict=True):
        assert_nothing_is_skipped(here, there, answers(view, here))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.integers(0, 5))
def test_one_direction_after_the_other_leaves_both_logs_alike(rounds, rest):
    """Switchovers in order, and some records that are not mirrored yet."""
    both = Both()
    for number, settled in rounds:
        both.do(("a", number))
        both.ab.copy(1 << 30)
        both.do(("b", number))
        both.ba.copy(1 << 30)
        if settled:
            both.do(("settle", 1))
    both.do(("a", rest))
    assert both.in_order
    assert_exact_both_ways(both)


def test_the_page_of_the_module():
    both = Both()
    for step in (("a", 3), ("ab", 3), ("b", 3), ("ba", 3), ("a", 1), ("ab", 1)):
        both.do(step)
    ab, ba = both.views()
    assert answers(ab, both.a) == answers(ba, both.b) == list(range(8))
    assert ab.to_target(4).exact
    assert ab.to_target(9).note == "not mirrored yet; the target ends at 7"
    assert ab.position == ba.position == 7


def test_without_the_other_ledger_the_order_is_taken_to_be_the_same():
    both = Both()
    for step in (("a", 3), ("ab", 3), ("b", 3), ("ba", 3), ("a", 2), ("ab", 1), ("settle", 1)):
        both.do(step)
    view = both.ab.view()
    alone = MirroredPartition(
        view.ledger, view.start, view.end, view.count, back_away="A does not answer"
    )
    found = answers(alone, both.a)
    # In the gap (4 and 5) nobody knows which of B's records were read: none of them.
    assert found == [0, 1, 2, 3, 3, 3, 6, 7, 7]
    assert alone.to_target(6).note == "A does not answer"
    # The next record of A that B does not have.
    assert alone.to_source(5).offset == 6
    assert alone.to_source(7).offset == 7


def test_what_a_broker_remembers_counts_exactly_else_what_is_known():
    ledger = PartitionLedger([Run(0, 0, 0)])
    remembered = ProducerState(7, 9, 0)
    assert count(ledger, [remembered], 7, 15) == Count(10, 10)
    assert count(ledger, [remembered], 8, 15) == Count(0, 15)
    ledger.known = Known(8, 8, 8, 12, 0)
    assert count(ledger, [], 7, 12) == Count(8, 8)
    assert count(ledger, [], 7, 15) == Count(8, 15)
    assert count(PartitionLedger(), [], 7, 15) == Count(0, 0)


@given(STEPS, STEPS)
def test_what_was_answered_while_the_source_was_there_skips_nothing_when_it_is_gone(before, after):
    """As checkpoints do. B writes, and what was under way from A arrives."""
    both = Both()
    for step in before:
        both.do(step)
    view, _ = both.views()
    told = answers(view, both.a)
    read = [set(both.a.records[:offset]) for offset in range(len(both.a.records) + 1)]
    for what, number in after:
        both.do((what if what in {"b", "ab"} else "b", number))
    ab = both.ab.view()
    alone = MirroredPartition(ab.ledger, 0, ab.end, ab.count, back_away="A is gone")
    for offset, earlier in enumerate(told):
        at = alone.to_target(offset, earlier).offset
        skipped = [r for r in both.b.records[:at] if r not in read[offset]]
        assert not skipped
        # Nor is more repeated than then.
        assert at >= earlier
