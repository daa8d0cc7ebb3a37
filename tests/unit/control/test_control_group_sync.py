"""Whom the group offset sync may write to, and what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.groups.offset_sync import ABSENT, GroupStanding, compare, judge
from heliograph.control.groups.translated import TranslatedOffset
from heliograph.model import TopicPartition
from heliograph.wire.groups import Committed, ListedGroup

P = [TopicPartition("A.orders", n) for n in range(8)]
UNSTABLE = 88


def listed(state, kind="classic", protocol_type="consumer"):
    return ListedGroup("g", kind, protocol_type, state)


@pytest.mark.parametrize("kind", ["classic", "consumer", ""])
def test_s65_a_group_that_is_listed_as_empty_may_be_written_to(kind):
    assert judge("g", "B", listed("Empty", kind), "") == GroupStanding("Empty")


def test_s65_a_group_with_offsets_only_may_be_written_to():
    assert judge("g", "B", listed("Empty", "classic", ""), "") == GroupStanding("Empty")


def test_s65_a_group_that_its_coordinator_does_not_know_may_be_written_to():
    assert judge("g", "B", None, "Dead") == GroupStanding(ABSENT)


@pytest.mark.parametrize(
    "state",
    ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NewOne"],
)
def test_s65_any_other_state_is_in_use(state):
    assert judge("g", "B", listed(state), "").reason == f"is in use on B ({state})"
    # Kafka before 2.6 lists no states; the coordinator tells.
    assert judge("g", "B", listed("", ""), state).reason == f"is in use on B ({state})"
    assert judge("g", "B", None, state).reason == f"is in use on B ({state})"


@pytest.mark.parametrize("entry", [None, listed("")])
def test_s65_without_evidence_nothing_is_written(entry):
    """KAFKA-19794: what is not known to be empty is not new."""
    assert judge("g", "B", entry, "").reason == "its state on B is unknown"
    assert judge("g", "B", entry, "Unknown").reason == "its state on B is unknown"


def test_a_group_of_another_kind_is_left_alone():
    assert judge("g", "B", listed("Empty", "share", "share"), "").reason == (
        "g is a share group on B"
    )
    assert judge("g", "B", listed("Empty", "classic", "connect"), "").reason == (
        "g is a connect group on B"
    )


def compared(wanted, there):
    """Coordinators answer for every partition that they are asked about."""
    standing = GroupStanding("Empty")
    compare(standing, wanted, dict.fromkeys(wanted, Committed(-1)) | there)
    return standing


def test_s67_s68_absent_negative_and_lower_offsets_are_written():
    wanted = {P[n]: TranslatedOffset(20, 10, "m") for n in range(5)}
    there = {P[0]: Committed(-1), P[1]: Committed(9), P[2]: Committed(10), P[3]: Committed(13)}
    standing = compared(wanted, there)
    assert standing.writes == dict.fromkeys((P[0], P[1], P[4]), Committed(10, "m"))
    assert standing.ahead == {P[3]: 3}
    assert standing.in_step == 1


def test_s69_offset_0_is_written_where_nothing_is():
    assert compared({P[0]: TranslatedOffset(0, 0)}, {}).writes == {P[0]: Committed(0)}


def test_an_offset_in_an_open_transaction_is_left_alone():
    standing = compared({P[0]: TranslatedOffset(20, 10)}, {P[0]: Committed(-1, "", UNSTABLE)})
    assert (standing.writes, standing.unclear) == ({}, {P[0]: UNSTABLE})


def test_what_the_target_does_not_answer_for_is_left_alone():
    standing = GroupStanding("Empty")
    compare(standing, {P[0]: TranslatedOffset(20, 10)}, {})
    assert (standing.writes, list(standing.unclear)) == ({}, [P[0]])


some_offsets = st.dictionaries(st.sampled_from(P), st.integers(-1, 50))


@given(some_offsets, some_offsets)
def test_s66_a_group_is_never_rewound(wanted, there):
    standing = compared(
        {p: TranslatedOffset(99, max(o, 0)) for p, o in wanted.items()},
        {p: Committed(o) for p, o in there.items()},
    )
    after = there | {p: c.offset for p, c in standing.writes.items()}
    assert all(after[p] >= there.get(p, -1) for p in after)
    assert all(after[p] >= max(o, 0) for p, o in wanted.items())
    assert all(p in wanted for p in standing.writes)
    done = len(standing.writes) + len(standing.ahead) + standing.in_step
    assert done == len(wanted)
