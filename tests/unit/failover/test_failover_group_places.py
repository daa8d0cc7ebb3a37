"""Which consumers still have to read, before they change sides."""

from heliograph.control.groups.start_rules import GroupStart, Log, Start
from heliograph.failover.group_places import behind, in_use_there
from heliograph.failover.two_sides import Reached
from heliograph.ledger.handovers import CutAt
from heliograph.model import TopicPartition

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
#: The source ends at 105, with five markers behind the record that is at 99 on the target.
AT = {HERE: Reached(CutAt(105, 100), behind_all=100, goes_on=False)}


def group(upstream, offset):
    start = Start(THERE, offset, Log(0, 100), upstream=upstream)
    return GroupStart("billing", "Empty", "", {THERE: start})


def unread(upstream, offset):
    return behind(group(upstream, offset), {THERE: HERE}, AT)


def test_a_group_is_at_the_end_if_only_markers_lie_behind_its_offset():
    assert unread(105, 100) == 0
    assert unread(100, 100) == 0


def test_a_group_that_has_not_read_the_last_record_is_behind():
    assert unread(99, 99) == 6
    assert unread(0, 0) == 105


def test_partitions_that_are_not_moved_do_not_matter():
    assert behind(group(0, 0), {}, AT) == 0
    assert behind(group(None, 0), {THERE: HERE}, AT) == 0


def test_who_is_in_use_on_the_target_is_named():
    groups = {
        "used": GroupStart("used", "Stable", "is in use on B (Stable)"),
        "free": GroupStart("free", "Empty"),
        "new": GroupStart("new", "absent"),
        "unclear": GroupStart("unclear", "", "its state on B is unknown"),
    }
    assert in_use_there(groups) == {"used": "Stable"}
