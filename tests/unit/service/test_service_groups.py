"""What the snapshot has of groups: from the jobs' last look, without asking a cluster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from heliograph.control.groups.offset_sync import GroupStanding
from heliograph.control.groups.translated import (
    TranslatedGroup,
    TranslatedGroups,
    TranslatedOffset,
)
from heliograph.model import Flow, TopicPartition
from heliograph.service import groups
from heliograph.service.groups import GroupWatch
from heliograph.service.snapshot import FlowState, GroupPartition, Life
from heliograph.wire.groups import ListedGroup

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
R0 = TopicPartition("A.t", 0)
RUNNING = Life(FlowState.RUNNING)
TARGETS = {T0: "A.t", T1: "A.t"}


def unmeasured(_):
    return None


def group(name="g", **values):
    return TranslatedGroup(ListedGroup(name, "classic", "consumer", "Empty"), **values)


def looked(standings, **found):
    watch = GroupWatch(Flow("A", "B"))
    watch.say("syncing", dict.fromkeys(found, "in step"))
    watch.look(TranslatedGroups(found, 0.0), standings, 20.0)
    return watch


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(groups, "time", SimpleNamespace(time=lambda: made.now))
    return made


def test_rows_say_whether_groups_are_ready_and_how_far_they_are():
    g = group(committed={T0: 5, T1: 7}, offsets={R0: TranslatedOffset(5, 5)},
              untranslated={T1: "nothing of it is mirrored yet"})  # fmt: skip
    h = group("h", committed={T0: 9}, offsets={R0: TranslatedOffset(9, 9)})
    watch = looked({"h": GroupStanding("Empty", in_step=1)}, h=h, g=g)
    ends = {T0: (12, 10), T1: (7, 0)}
    first, second = watch.rows(RUNNING, ends.get, 1)
    assert (first.group, first.ready, first.partitions, first.lag) == ("g", False, 2, 7)
    assert first.why == "t-1: nothing of it is mirrored yet"
    assert (second.ready, second.why, second.partitions, second.lag) == (True, "", 1, 3)
    assert second.said == {"syncing": "in step"}
    # Made anew only when something has changed.
    assert watch.rows(RUNNING, ends.get, 1)[1] is second
    ends[T0] = (20, 10)
    assert watch.rows(RUNNING, ends.get, 2)[1].lag == 11
    assert watch.rows(RUNNING, unmeasured, 3)[1].lag is None


def test_who_does_not_look_does_not_know(clock):
    g = group(committed={T0: 5}, offsets={R0: TranslatedOffset(5, 5)})
    watch = looked({"g": GroupStanding("Empty", in_step=1)}, g=g)
    [row] = watch.rows(Life(FlowState.PAUSED), unmeasured, 1)
    assert (row.ready, row.why) == (None, "checkpoints are paused")
    assert watch.rows(None, unmeasured, 1) == ()
    assert GroupWatch(Flow("A", "B")).rows(RUNNING, unmeasured, 1) == ()
    clock.now += 19
    assert watch.rows(RUNNING, unmeasured, 1)[0].why == ""
    # The source may be gone: what was seen last counts, and people know how old it is.
    clock.now += 2
    [row] = watch.rows(RUNNING, unmeasured, 1)
    assert (row.ready, row.why) == (True, "as of 1970-01-01T00:16:40.000Z, the last look")


def test_partitions_of_a_group_without_a_target_to_ask():
    g = group(committed={T1: 7, T0: 5}, offsets={R0: TranslatedOffset(5, 4)},
              untranslated={T1: "nothing of it is mirrored yet"})  # fmt: skip
    watch = looked(None, g=g)
    ends = {T0: (12, 10)}
    assert watch.partitions("g", TARGETS, ends.get, None) == (
        GroupPartition("t", 0, "A.t", 5, 12, 4, None, 10),
        GroupPartition("t", 1, "A.t", 7),
    )
    # A topic that is no longer mirrored.
    assert len(watch.partitions("g", {T0: "A.t"}, ends.get, None)) == 1
    with pytest.raises(KeyError):
        watch.partitions("h", TARGETS, ends.get, None)
