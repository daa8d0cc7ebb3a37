"""Whether consumers of a group could go on at the target now, skipping nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.control.groups.offset_sync import GroupStanding
from heliograph.control.groups.readiness import readiness
from heliograph.control.groups.translated import TranslatedGroup, TranslatedOffset
from heliograph.model import Flow, TopicPartition
from heliograph.wire.errors import BrokerError, ConnectionFailed
from heliograph.wire.groups import Committed, ListedGroup

FLOW = Flow("A", "B")
P = [TopicPartition("A.t", n) for n in range(3)]
LISTED = ListedGroup("g", "classic", "consumer", "Stable")
OFFSETS = {p: TranslatedOffset(10, 10, end=20) for p in P[:2]}


def group(**values):
    return TranslatedGroup(LISTED, **{"offsets": OFFSETS, **values})


def standing(**values):
    return GroupStanding("Empty", **{"in_step": 2, **values})


def judged(group_, standing_=None, synced=True):
    return readiness(FLOW, group_, standing_, synced=synced)


def test_a_group_that_is_in_step_or_was_just_written_is_ready():
    assert judged(group(), standing()) == (True, "")
    written = standing(in_step=1, writes={P[1]: Committed(10)})
    assert judged(group(), written) == (True, "")


def test_a_group_ahead_of_the_mirror_is_ready_and_reads_again():
    ahead = {p: replace(o, behind=4) for p, o in OFFSETS.items()}
    ready, why = judged(group(offsets=ahead), standing())
    assert (ready, why.split()[0]) == (True, "8")


def test_a_group_that_is_held_back_by_another_flow_skips_nothing():
    ready, why = judged(group(), standing(held={P[0]: "is held at 3: C->B goes on there"}))
    assert (ready, why) == (True, "A.t-0 is held at 3: C->B goes on there")


@pytest.mark.parametrize(
    ("group_", "standing_", "synced", "ready", "said"),
    [
        (group(), standing(in_step=1, ahead={P[0]: 5}), True, False, "A.t-0 is committed 5 ahead"),
        (group(), None, False, False, "sync.group.offsets.enabled=false"),
        (group(untranslated={P[2]: "nothing of it is mirrored yet"}), standing(), True, False,
         "A.t-2: nothing of it is mirrored yet"),
        (group(), GroupStanding("Stable", "is in use on B (Stable)"), True, False, "is in use on"),
        (group(), standing(in_step=0, reason="no right", error=BrokerError(30, "no"),
                           writes={P[0]: Committed(10)}), True, False, "no right"),
        (group(error="why"), None, True, None, "why"),
        (TranslatedGroup(replace(LISTED, kind="share"), error="share groups cannot be synced"),
         None, True, False, "share groups"),
        (group(offsets={}), None, True, None, "committed nothing"),
        (group(), GroupStanding("", "its state on B is unknown"), True, None, "is unknown"),
        (group(), standing(in_step=0, reason="away", error=ConnectionFailed("away")), True, None,
         "away"),
        (group(), standing(in_step=1, unclear={P[1]: 88}), True, None, "A.t-1: UNSTABLE"),
        (group(), standing(in_step=1, held={P[1]: "no saying"}), True, None, "A.t-1 no saying"),
        (group(), None, True, None, ""),
        (group(offsets={**OFFSETS, P[1]: TranslatedOffset(3, 10, end=20, deleted=7)}), standing(),
         True, None, "A.t-1: B has deleted the 7 offset(s)"),
    ],
)  # fmt: skip
def test_what_might_skip_something_is_not_ready(group_, standing_, synced, ready, said):
    found, why = judged(group_, standing_, synced)
    assert found is ready
    assert said in why
