"""Where groups start, in every log, and the CSV of kafka-consumer-groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.groups.offsets_csv import csv_line, parse_offsets, writable
from heliograph.control.groups.start_rules import AtTime, GroupStart, Log, Start, locate, start_at
from heliograph.errors import ConfigError
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.translation import MirroredPartition
from heliograph.model import TopicPartition

P = TopicPartition("A.orders", 0)
OFFSETS = st.integers(0, 60)
LOGS = st.tuples(OFFSETS, OFFSETS).map(lambda pair: Log(*sorted(pair)))


def test_behind_the_cut_of_a_failover_what_the_target_has_of_its_own_is_unread():
    ledger = PartitionLedger([Run(0, 0, 0)])
    parted = MirroredPartition(ledger, 0, 150, cut=CutAt(100, 100))
    assert locate(parted, 99) == (99, 99, "")
    assert locate(parted, 100) == (100, 100, "")
    assert locate(parted, 120) == (100, 100, "ahead of the mirror by 20 offsets")
    assert parted.to_target(99).offset == 99
    assert parted.to_target(120).offset == 100
    trimmed = MirroredPartition(ledger, 130, 150, cut=CutAt(100, 100))
    assert locate(trimmed, 120) == (100, 130, "a gap of 30 offsets from its place on: deleted")


@given(OFFSETS, LOGS, st.integers(-1, 60), st.none() | OFFSETS)
def test_skips_and_repeats_are_those_of_a_consumer_that_starts_there(wanted, log, committed, exact):
    start = start_at(P, wanted, log, committed=committed, exact=exact)
    assert log.start <= start.offset <= log.end
    assert start.offset == wanted or start.note
    read_until = exact
    if exact is None:
        read_until = committed if committed in range(log.start, log.end + 1) else log.start
    would_read = set(range(start.offset, 200))
    unread = set(range(read_until, 200))
    there = set(range(log.end))
    assert start.skips == len(unread - would_read)
    assert start.repeats == len((would_read - unread) & there)
    assert not (start.skips and start.repeats)
    assert start.ahead == (max(committed - start.offset, 0) if committed <= log.end else 0)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4)), max_size=6),
    st.data(),
)
def test_a_translated_start_skips_nothing_that_is_there_and_repeats_nothing(stretches, data):
    """Against the records themselves: (source offset, target offset) of each that is mirrored."""
    ledger, pairs, source, target = PartitionLedger(), [], 0, 0
    for count, source_gap, target_gap in stretches:
        source, target = source + source_gap, target + target_gap
        ledger.add(Run(len(pairs), source, target))
        pairs += [(source + n, target + n) for n in range(count)]
        source, target = source + count, target + count
    log = Log(data.draw(st.integers(0, target)), target)
    upstream = data.draw(st.integers(0, source + 5))
    found = locate(MirroredPartition(ledger, *log), upstream)
    if not pairs:
        # KAFKA-12635: never the source's number in an empty log.
        assert found.offset == log.end == 0
        return
    start = start_at(P, found.offset, log, exact=found.place, note=found.note)
    there = [pair for pair in pairs if pair[1] >= log.start]
    reads = {b for _, b in there if b >= start.offset}
    assert reads == {b for a, b in there if a >= upstream}
    assert start.repeats == 0
    gap = {b for a, b in pairs if a >= upstream and b < log.start}
    assert start.skips >= len(gap)
    assert bool(start.skips) == (found.place < log.start)
    if upstream > source:
        ahead = upstream - source
        unit = "offset" if ahead == 1 else "offsets"
        assert found.note == f"ahead of the mirror by {ahead} {unit}"


def test_a_partition_of_which_nothing_is_mirrored():
    nothing = PartitionLedger()
    assert locate(MirroredPartition(nothing, 0, 0), 0) == (0, 0, "")
    emptied = locate(MirroredPartition(nothing, 7, 7), 4711)
    assert (emptied.place, emptied.offset) == (None, 7)
    foreign = locate(MirroredPartition(nothing, 0, 5), 4711)
    assert foreign == (None, None, "nothing of it is mirrored yet")


def test_a_committed_offset_behind_the_end_is_not_ahead():
    literal = start_at(P, 0, Log(0, 0), committed=4711)
    assert literal.ahead == 0
    assert "4711, committed there, is behind the end" in literal.note


def test_a_group_adds_up_its_partitions():
    log = Log(0, 10)
    starts = {P: Start(P, 1, log, skips=3, as_of_ms=5),
              P._replace(partition=1): Start(P, 1, log, repeats=2, as_of_ms=4)}  # fmt: skip
    group = GroupStart("g", "Empty", starts=starts)
    assert (group.skips, group.repeats, group.as_of_ms) == (3, 2, 5)
    assert GroupStart("g", "Empty").as_of_ms is None
    assert AtTime.ago(2.5, 10.0) == AtTime(7500)


# -- CSV --------------------------------------------------------------------------------------


@given(st.text(min_size=1), st.integers(0, 999), st.integers(0, (1 << 63) - 1))
def test_what_is_written_is_read_again(group, partition, offset):
    line = csv_line(group, TopicPartition("a.b-c_1", partition), offset)
    if writable(group):
        found = parse_offsets(f"{line}\n", "f.csv")
        assert found == {group: {TopicPartition("a.b-c_1", partition): offset}}


def test_both_forms_are_read():
    assert parse_offsets("t,0,5\r\n\r\nt,1,6", "f.csv", "g") == {
        "g": {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    }
    text = '\ufeff"=cmd()|""x"",",t,0,5\nh,t,0,7\nh,t,0,7\n'
    assert parse_offsets(text, "f.csv") == {
        '=cmd()|"x",': {TopicPartition("t", 0): 5},
        "h": {TopicPartition("t", 0): 7},
    }


@pytest.mark.parametrize(("text", "says"), [
    ("t,0,5", "f.csv:1 names no group"),
    ("g,t,0,5\ng,t", "f.csv:2: has 2 fields"),
    ("g,t,0,-1", "f.csv:1: '-1' is no offset"),
    ("g,t,zero,1", "f.csv:1: 'zero' is no offset"),
    ("g,t,0,9999999999999999999", "larger than any offset"),
    ("g,t,0,٣", "is no offset"),
    ("g,,0,1", "names no topic"),
    ('g,"t,0,5', "f.csv:1: cannot be read"),
    ("g,t,0,5\ng,t,0,6", "f.csv:2: t-0 is at 5 in an earlier line, at 6 here"),
    ("\n", "there are no offsets in it"),
    ("GROUP,TOPIC,PARTITION,OFFSET", "is no offset or partition"),
])  # fmt: skip
def test_a_file_that_is_refused(text, says):
    with pytest.raises(ConfigError, match=r"offsets\.file") as refused:
        parse_offsets(text, "f.csv")
    assert says in str(refused.value)
