"""Where histories meet in one partition, an offset passes no record that was not read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch.header import SEQUENCE_MODULUS
from heliograph.control.groups.shared_partitions import Read, last_target, lowest
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.wire.admin import ProducerState


def remembers(last_sequence):
    return ProducerState(1, last_sequence, 0)


def ledger_of(log, who):
    """The runs of one history in a log of names; its source offsets are 0, 1, 2, ..."""
    ledger, count = PartitionLedger(), 0
    for target, name in enumerate(log):
        if name == who:
            if not ledger.runs or ledger.target_of(count) != target:
                ledger.add(Run(count, count, target))
            count += 1
    return ledger, count


@given(
    log=st.lists(st.sampled_from("xyz"), min_size=1, max_size=60),
    start=st.integers(0, 60),
    data=st.data(),
)
def test_nothing_unread_is_passed_and_nothing_read_is_repeated_needlessly(log, start, data):
    start = min(start, len(log))
    read, known, reads = {}, True, {}
    for who in sorted(set(log)):
        ledger, count = ledger_of(log, who)
        # A group may be ahead of the mirror; of one that nobody speaks of, nothing is read.
        upstream = data.draw(st.none() | st.integers(0, count + 3), who)
        remembered = data.draw(st.booleans(), f"{who} remembered")
        read[who] = upstream or 0
        known = known and remembered
        last = last_target(ledger, remembers(count - 1), len(log)) if remembered else None
        target = ledger.runs[0].target if upstream is None else ledger.to_target(upstream)
        reads[who] = Read(target, last, told=upstream is not None)
    offset, decides = lowest(reads, start, len(log))
    seen = dict.fromkeys(read, 0)
    unread, deleted = [], False
    for target, who in enumerate(log):
        if seen[who] >= read[who]:
            deleted = deleted or target < start
            unread += [target] if target >= start else []
        seen[who] += 1
    first = unread[0] if unread else len(log)
    assert start <= offset <= first
    assert decides in reads
    if known and not deleted:
        assert offset == first


def test_a_sequence_that_contradicts_the_ledger_says_nothing():
    ledger = PartitionLedger([Run(0, 0, 0), Run(10, 20, 15)])
    assert last_target(ledger, remembers(11), 40) == 16
    # The second run is announced and not begun.
    assert last_target(ledger, remembers(9), 15) == 9
    assert last_target(ledger, remembers(4), 40) is None


def test_sequences_start_again_after_two_thousand_million():
    run = Run(SEQUENCE_MODULUS + 5, 7, 9)
    assert last_target(PartitionLedger([run]), remembers(8), 13) == 12
