"""What only one side has, and what keeps a source's log from being gone on with."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.failover import divergence
from heliograph.failover.brought import Copies
from heliograph.failover.divergence import Parted, Tail, tail
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.model import TopicPartition

P0 = TopicPartition("orders", 0)


def parted(**changes):
    values: dict[str, Any] = {
        "source": P0, "target": P0, "cut": CutAt(100, 90), "here": tail(100, 0, 107),
        "there": tail(90, 0, 95), "source_id": "1",
    }  # fmt: skip
    return Parted(**values | changes)


@pytest.mark.parametrize(
    ("begin", "start", "end", "records", "deleted"),
    [
        (100, 0, 107, 7, 0),
        (100, 103, 107, 4, 3),
        (100, 107, 107, 0, 7),
        # A log that was emptied, and one that ends before.
        (100, 120, 120, 0, 20),
        (100, 0, 96, 0, 0),
    ],
)
def test_what_a_log_has_from_where_it_parts(begin, start, end, records, deleted):
    assert tail(begin, start, end) == Tail(begin, start, end, records, deleted)


def copies(*runs, sequence):
    ledger = PartitionLedger()
    for run in runs:
        ledger.add(Run(*run))
    return Copies(ledger, sequence)


@pytest.mark.parametrize(
    ("begin", "start", "end", "records", "deleted"),
    [
        # 0-9 copied, 10-14 its own, 15-17 copied, 18-19 its own.
        (10, 0, 20, 7, 0),
        (10, 12, 20, 5, 2),
        (10, 16, 20, 2, 5),
        (10, 20, 20, 0, 7),
        (5, 0, 20, 7, 0),
        (0, 7, 20, 7, 0),
    ],
)
def test_what_was_copied_there_is_not_its_own(begin, start, end, records, deleted):
    copied = copies((0, 0, 0), (10, 10, 15), sequence=13)
    assert tail(begin, start, end, copied.before) == Tail(begin, start, end, records, deleted)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"source_id": ""}, "it is gone"),
        ({"recreated": True}, "it was created anew"),
        ({"lost": 4}, "it has lost 4 records that were mirrored"),
        ({"set_back": "its leader is of epoch 3"}, "its leader is of epoch 3"),
    ],
)
def test_a_log_that_cannot_be_gone_on_with(changes, why):
    assert parted(**changes).must_rebuild == why


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_nothing_is_ever_counted_below_zero_or_twice(begin, start, end):
    found = tail(begin, min(start, end), end)
    assert found.records >= 0
    assert found.deleted >= 0
    assert found.records + found.deleted == max(end - begin, 0)


def test_an_open_transaction_on_the_old_source_is_named():
    with pytest.raises(HandoverRefused) as caught:
        divergence._refuse_open("A", {P0: 40}, {P0: 42})
    assert caught.value.code == "failback.open-transaction"
    assert "orders-0 on A has an open transaction at offset 40" in str(caught.value)
    divergence._refuse_open("A", {P0: 42}, {P0: 42})


def test_a_leader_that_does_not_answer_is_named():
    with pytest.raises(HandoverRefused) as caught:
        divergence._refuse_silent("A", [P0])
    assert caught.value.code == "failback.silent"
    assert "the leader of orders-0 on A does not answer" in str(caught.value)


def test_a_log_that_ends_before_the_cut_has_lost_what_was_mirrored():
    ledger = PartitionLedger([Run(0, 10, 0)])
    side: Any = SimpleNamespace(store=SimpleNamespace(at=lambda _: ledger))
    mirrored: Any = SimpleNamespace(places={P0: None})
    metadata: Any = SimpleNamespace(leader_epoch=lambda *_: 0)
    source: Any = None
    for end, parting in ((96, (96, 86, 4, "")), (100, None), (107, None)):
        found = divergence._partings(
            side, mirrored, {P0: CutAt(100, 90)}, source, metadata, {P0: end}
        )
        assert found.get(P0) == parting
