"""What only one side has, and what keeps a source's log from being gone on with."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.failover import divergence
from heliograph.failover.divergence import Parted
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.handovers import CutAt
from heliograph.model import TopicPartition

P0 = TopicPartition("orders", 0)


def parted(**changes):
    values: dict[str, Any] = {
        "source": P0, "target": P0, "cut": CutAt(100, 90), "source_end": 107, "target_end": 95,
        "source_id": "1",
    }  # fmt: skip
    return Parted(**values | changes)


def test_what_each_side_has_taken_since_the_cut():
    assert (parted().only_source, parted().only_target, parted().must_rebuild) == (7, 5, "")


@pytest.mark.parametrize(
    ("changes", "only_source", "why"),
    [
        ({"source_id": ""}, 107, "it is gone"),
        ({"recreated": True, "source_end": 3}, 3, "it was created anew"),
        ({"lost": 4, "source_end": 96}, 0, "it has lost 4 records that were mirrored"),
    ],
)
def test_a_log_that_cannot_be_gone_on_with(changes, only_source, why):
    found = parted(**changes)
    assert (found.only_source, found.must_rebuild) == (only_source, why)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_nothing_is_ever_counted_below_zero(cut, end, target_cut, target_end):
    found = parted(cut=CutAt(cut, target_cut), source_end=end, target_end=target_end)
    assert found.only_source == max(end - cut, 0)
    assert found.only_target == max(target_end - target_cut, 0)


def test_an_open_transaction_on_the_old_source_is_named():
    with pytest.raises(HandoverRefused) as caught:
        divergence._refuse_open("A", {P0: 40}, {P0: 42})
    assert caught.value.code == "failback.open-transaction"
    assert "orders-0 on A has an open transaction at offset 40" in str(caught.value)
    divergence._refuse_open("A", {P0: 42}, {P0: 42})
