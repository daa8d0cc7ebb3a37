"""When an offset sync is written: MM2's PartitionState, on batches (S52 to S55)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.mm2.formats import OffsetSync
from heliograph.mm2.offset_syncs import OffsetSyncs
from heliograph.model import TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def sync(upstream, downstream, partition=P):
    return OffsetSync(partition.topic, partition.partition, upstream, downstream)


@pytest.fixture
def syncs():
    """Past the first sync, which every lease writes: source 9 is at target 9."""
    made = OffsetSyncs(100)
    made.acknowledged(P, 0, 9, 9)
    assert made.take(delayed=False) == [sync(9, 9)]
    return made


def test_s52_the_first_batch_of_a_lease_is_synced():
    assert not OffsetSyncs(100).due
    fresh = OffsetSyncs(100)
    fresh.acknowledged(P, 500, 509, 42)
    assert fresh.due
    assert fresh.take(delayed=False) == [sync(509, 42)]
    assert not fresh.due


def test_s54_small_steps_wait_until_the_delayed_are_taken(syncs):
    syncs.acknowledged(P, 10, 19, 19)
    syncs.acknowledged(P, 20, 29, 29)
    assert not syncs.due
    assert syncs.take(delayed=False) == []
    assert syncs.take(delayed=True) == [sync(29, 29)], "only the latest, and none is lost"
    assert syncs.take(delayed=True) == []


@pytest.mark.parametrize(("last", "due"), [(108, False), (109, False), (110, True)])
def test_s52_offset_lag_max(syncs, last, due):
    # MM2: downstream - (last sync downstream + 1) >= offset.lag.max
    syncs.acknowledged(P, 10, last, last)
    assert syncs.due is due


def test_s52_a_gap_on_the_source_is_synced_at_once(syncs):
    syncs.acknowledged(P, 11, 12, 11)
    assert syncs.take(delayed=False) == [sync(12, 11)]


def test_s52_a_target_that_went_back_is_synced_at_once(syncs):
    syncs.acknowledged(P, 10, 10, 3)
    assert syncs.take(delayed=False) == [sync(10, 3)]


def test_s53_offset_lag_max_zero_syncs_every_time():
    every = OffsetSyncs(0)
    for n in range(5):
        every.acknowledged(P, n, n, n)
        assert every.take(delayed=False) == [sync(n, n)]


def test_s55_while_one_is_due_the_latest_replaces_it(syncs):
    syncs.acknowledged(P, 50, 50, 10)
    syncs.acknowledged(P, 51, 52, 12)
    assert syncs.take(delayed=True) == [sync(52, 12)]


def test_a_due_sync_makes_the_delayed_one_needless(syncs):
    syncs.acknowledged(P, 10, 11, 11)
    syncs.acknowledged(P, 40, 40, 12)
    assert syncs.take(delayed=True) == [sync(40, 12)]


def test_taking_a_delayed_sync_counts_for_the_lag(syncs):
    syncs.acknowledged(P, 10, 90, 90)
    assert syncs.take(delayed=True) == [sync(90, 90)]
    syncs.acknowledged(P, 91, 150, 150)
    assert not syncs.due


def test_partitions_do_not_disturb_each_other(syncs):
    syncs.acknowledged(Q, 0, 0, 70)
    syncs.acknowledged(P, 10, 10, 10)
    assert syncs.take(delayed=False) == [sync(0, 70, Q)]
    assert syncs.take(delayed=True) == [sync(10, 10)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 60), st.sampled_from(["", "take", "all"])),
        max_size=40,
    )
)
def test_s71_translation_is_never_older_than_offset_lag_max(steps):
    """Every batch is synced, or within offset.lag.max of one that is written or waiting."""
    syncs = OffsetSyncs(100)
    source = target = 0
    synced = None
    for gap, count, take in steps:
        source += gap
        first = source
        source, target = source + count, target + count
        syncs.acknowledged(P, first, source - 1, target - 1)
        if take:
            for written in syncs.take(delayed=take == "all"):
                assert synced is None or written.upstream > synced.upstream
                synced = written
            assert synced is not None
            assert target - 1 - synced.downstream <= 100
            if take == "all":
                assert (synced.upstream, synced.downstream) == (source - 1, target - 1)
