"""What a drill calls proven, which starts it looks at, and whose copies it deletes."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from heliograph.batch.records import Record
from heliograph.claims.process_identity import this_process
from heliograph.control.groups.start_rules import GroupStart, Log, Start
from heliograph.failover.drill_copies import drill_running, left_over
from heliograph.failover.drill_rules import Found, Outcome, chosen, judge, where_it_starts
from heliograph.model import TopicPartition
from heliograph.policy import DRILL_GROUPS

P = TopicPartition("A.orders", 0)
MINE = Found(Record(40, 1000, b"k", b"v", [("h", b"x")]), 3)
#: The same record 10 offsets earlier on the target.
THEIRS = Found(Record(30, 1000, b"k", b"v", (("h", b"x"),)), 5)


def outcome(there=THEIRS, here=MINE, **told):
    known = {"offset": 30, "upstream": 40, "mirrored": 100, "origin": 40, "compacted": False} | told
    return judge(there, here, **known)


def changed(found, **fields):
    return found._replace(record=found.record._replace(**fields))


def test_the_very_record_is_proven():
    assert outcome() == (Outcome.SAME, "40 on the source, 30 on the target")
    dated = changed(THEIRS, timestamp=9)
    assert outcome(dated._replace(append_time=True))[0] is Outcome.SAME
    assert outcome(dated) == (
        Outcome.WRONG,
        "the record at 30 is not the source's record at 40: timestamp (1000 -> 9)",
    )


def test_what_differs_is_wrong_and_says_how():
    for fields, word in (
        ({"key": b"other"}, "key"), ({"value": None}, "value (bytes -> null)"),
        ({"headers": (("h", b"y"),)}, "header h"),
    ):  # fmt: skip
        found, text = outcome(changed(THEIRS, **fields))
        assert found is Outcome.WRONG
        assert word in text


def test_ends_agree_or_the_next_record_is_on_its_way():
    nothing = Found(None)
    assert outcome(nothing, nothing) == (Outcome.AT_END, "")
    assert outcome(nothing, mirrored=40)[0] is Outcome.AWAITED
    missing, text = outcome(nothing, mirrored=41)
    assert missing is Outcome.WRONG
    assert text == "the source's record 40 was mirrored, and nothing is there from 30 on"
    assert outcome(nothing, mirrored=41, compacted=True)[0] is Outcome.UNPROVEN
    # The source ends, and somebody else has written to the target.
    assert outcome(here=nothing, origin=100)[0] is Outcome.WRONG
    assert outcome(here=nothing, origin=40)[0] is Outcome.UNPROVEN, "retention was there"


def test_records_that_one_side_has_not_got_any_more():
    later = changed(THEIRS, value=b"later")
    assert outcome(later, origin=41) == (
        Outcome.WRONG, "the source's record 40 is not there, 41 comes first"
    )  # fmt: skip
    assert outcome(later, origin=41, compacted=True)[0] is Outcome.UNPROVEN
    assert outcome(later, origin=39)[0] is Outcome.UNPROVEN, "compacted on the source"
    assert outcome(later, note="mirrored by MM2")[0] is Outcome.UNPROVEN


def test_where_both_write_another_next_record_is_no_wrong_start():
    other = changed(THEIRS, value=b"of the target's own")
    assert outcome(other)[0] is Outcome.WRONG
    assert outcome(other, both_write=True)[0] is Outcome.UNPROVEN
    assert outcome(both_write=True)[0] is Outcome.SAME
    assert outcome(Found(None, why="no leader"), both_write=True)[0] is Outcome.WRONG


def test_what_cannot_be_read_is_wrong_on_the_target_and_unproven_on_the_source():
    broken = Found(None, why="no leader")
    assert outcome(broken) == (Outcome.WRONG, "cannot be read at 30: no leader")
    assert outcome(here=broken) == (Outcome.UNPROVEN, "no leader")
    assert outcome(here=None)[0] is Outcome.UNPROVEN
    assert outcome(upstream=None)[0] is Outcome.UNPROVEN


def start(offset, committed=-1, p=P):
    return Start(p, offset, Log(0, 1000), committed)


def test_a_copy_starts_where_a_failover_leaves_its_group():
    assert where_it_starts(start(30)) == 30
    assert where_it_starts(start(30, committed=20)) == 30
    assert where_it_starts(start(30, committed=45)) == 45, "ahead: it is kept"
    assert where_it_starts(start(30, committed=1001)) == 30, "behind the end: nobody can start"


@given(st.lists(st.integers(0, 6), max_size=8), st.integers(0, 30), st.text(max_size=3))
def test_every_group_is_looked_at_before_one_is_looked_at_twice(sizes, most, seed):
    groups = [
        GroupStart(f"g{n}", "Empty", "", {
            TopicPartition("t", i): start(i, p=TopicPartition("t", i)) for i in range(size)
        })
        for n, size in enumerate(sizes)
    ]  # fmt: skip
    found = chosen(groups, most, seed)
    assert found == chosen(groups, most, seed), "the same sample again"
    assert len(found) == len(set(found)) == min(most, sum(sizes))
    counts = {g.group: sum(name == g.group for name, _ in found) for g in groups}
    for one in groups:
        for other in groups:
            if counts[one.group] < len(one.starts):
                assert counts[other.group] <= counts[one.group] + 1


def test_groups_that_are_ahead_are_not_sampled():
    ahead = GroupStart("g", "Empty", "", {P: start(30, committed=45)})
    assert chosen([ahead], 10, "") == []


def test_copies_of_drills_that_run_are_nobodys_leftovers():
    here, now = this_process(), time.time()
    with drill_running() as name:
        group = f"{DRILL_GROUPS}{name}.orders.app"
        assert not left_over(group, here, now)
    assert left_over(group, here, now), "it has ended, in this very process"
    elsewhere = replace_host(here)
    assert not left_over(group, elsewhere, now), "who knows what runs there"
    assert left_over(group, elsewhere, now + 3601), "but not for so long"
    gone = group.replace(f"-{here.pid}-", "-4194305-")
    assert left_over(gone, here, now), "that process has ended"


def replace_host(process):
    return process._replace(host="elsewhere")


def test_groups_of_others_are_never_deleted():
    here, now = this_process(), time.time() + 1e6
    with drill_running() as name:
        pass
    for group in (
        "orders.app", name, f"{name}.orders", DRILL_GROUPS, f"{DRILL_GROUPS}orders",
        f"{DRILL_GROUPS}{name}", f"x{DRILL_GROUPS}{name}.g", f"{DRILL_GROUPS}..g",
    ):  # fmt: skip
        assert not left_over(group, here, now), group
    assert left_over(f"{DRILL_GROUPS}{name}.", here, now), "of a group without a name"
