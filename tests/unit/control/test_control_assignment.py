"""Dealing partitions to leases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.assignment import assign
from heliograph.model import TopicPartition

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 40))
weights = st.dictionaries(partitions, st.floats(1, 1e6), max_size=60)


def load(group, weights):
    return sum(weights[p] for p in group)


@given(weights, st.integers(1, 12), st.lists(st.lists(partitions, max_size=8), max_size=14))
def test_every_partition_is_dealt_exactly_once(weights, leases, previous):
    dealt = assign(weights, leases, previous)
    assert sorted(p for group in dealt for p in group) == sorted(weights)
    assert len(dealt) <= leases
    assert all(dealt), "no empty lease"


@given(weights, st.integers(1, 12), st.lists(st.lists(partitions, max_size=8), max_size=14))
def test_no_lease_outgrows_its_share(weights, leases, previous):
    dealt = assign(weights, leases, previous)
    if not dealt:
        return
    fair = sum(weights.values()) / min(leases, len(weights))
    heaviest = max(weights.values())
    # Only a partition that cannot be cut may weigh a lease down further.
    assert max(load(group, weights) for group in dealt) <= fair * 1.25 + heaviest + 1e-6


@given(weights, st.integers(1, 12))
def test_s30_fresh_dealing_is_balanced(weights, leases):
    dealt = assign(weights, leases)
    if len(dealt) > 1:
        loads = [load(group, weights) for group in dealt]
        assert max(loads) - min(loads) <= max(weights.values()) + 1e-6


@given(weights, st.integers(1, 12))
def test_dealing_again_moves_nothing(weights, leases):
    first = assign(weights, leases)
    again = assign(weights, leases, first)
    assert [sorted(g) for g in again] == [sorted(g) for g in first]


def test_a_new_partition_disturbs_nobody():
    equal = {TopicPartition("t", i): 10.0 for i in range(8)}
    first = assign(equal, 4)
    more = equal | {TopicPartition("t", 99): 10.0}
    second = assign(more, 4, first)
    assert all(set(old) <= set(new) for old, new in zip(first, second, strict=True))


def test_a_hot_lease_gives_partitions_away():
    names = [TopicPartition("t", i) for i in range(4)]
    quiet = dict.fromkeys(names, 1.0)
    hot = {**quiet, names[0]: 1000.0, names[1]: 1000.0}
    groups = assign(hot, 2, [[names[0], names[1]], [names[2], names[3]]])
    assert {len({names[0], names[1]} & set(g)) for g in groups} == {1}


def test_fewer_partitions_than_leases():
    one = TopicPartition("t", 0)
    assert assign({one: 0.0}, 8) == [[one]]
    assert assign({}, 8) == []
