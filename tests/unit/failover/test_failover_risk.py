"""What is lost if the source does not come back."""

import pytest

from heliograph.failover import risk as rules
from heliograph.failover.source_side import SourceSeen
from heliograph.ledger.handovers import CutAt
from heliograph.ledger.source_ends import LastSeen
from heliograph.model import TopicPartition

P0, P1, P2 = (TopicPartition("orders", i) for i in range(3))
GONE = SourceSeen(False, "connection refused")


def risk_of(positions, seen, noted, now=1_700_000_010.0, begun=()):
    return rules.risk_of(positions, seen, noted, now, begun)


def last(ends, *, complete=True, seconds=0.4):
    return LastSeen(1_700_000_000_000, ends, complete, 0, seconds)


def test_a_source_that_answers_says_exactly_what_is_at_risk():
    seen = SourceSeen(True, ends={P0: 110, P1: 50}, asked_ms=1_700_000_000_000)
    risk = risk_of({P0: CutAt(100, 100), P1: CutAt(50, 50)}, seen, last({P0: 105}))
    assert (risk.records, risk.exact, risk.unknown) == (10, True, 0)
    assert str(risk) == "10 records in 1 topic as of 2023-11-14T22:13:20.000Z, exact"


def test_of_a_source_that_is_gone_the_last_word_of_the_mirror_counts():
    risk = risk_of({P0: CutAt(100, 100), P1: CutAt(50, 50)}, GONE, last({P0: 105}))
    assert (risk.records, risk.exact, risk.seconds) == (5, False, 0.4)
    assert [p.partition for p in risk.behind] == [P0]
    assert "5 records in 1 topic (0.4 s) as of 2023-11-14T22:13:20.000Z" in str(risk)
    assert "what the source took after that is not known" in str(risk)


def test_what_came_over_since_the_last_word_is_not_at_risk():
    risk = risk_of({P0: CutAt(105, 105)}, GONE, last({P0: 105}))
    assert (risk.records, risk.seconds) == (0, 0.0)
    assert str(risk).startswith("no record as of")


def test_partitions_that_are_not_named_were_in_step_if_all_others_are_named():
    assert risk_of({P0: CutAt(9, 9)}, GONE, last({})).unknown == 0
    risk = risk_of({P0: CutAt(9, 9)}, GONE, last({}, complete=False))
    assert (risk.unknown, risk.records) == (1, 0)
    assert "1 partition of which it is not known" in str(risk)


def test_without_any_word_nothing_is_known():
    risk = risk_of({P0: CutAt(9, 9)}, GONE, None)
    assert (risk.unknown, risk.as_of_ms, risk.seconds) == (1, None, None)
    assert str(risk).startswith("not known")


def test_a_partition_that_was_never_begun_counts_with_all_that_it_had():
    risk = risk_of({P0: CutAt(9, 9)}, GONE, last({P2: 7}))
    assert {p.partition: p.records for p in risk.partitions} == {P0: 0, P2: 7}


def test_of_a_partition_that_was_never_begun_only_what_is_there_is_at_risk():
    noted = LastSeen(1_700_000_000_000, {P2: 1000}, True, 7, 0.4, begins={P2: 993})
    assert risk_of({P0: CutAt(9, 9)}, GONE, noted).records == 7
    seen = SourceSeen(True, ends={P0: 9, P2: 1002}, starts={P2: 993})
    risk = risk_of({P0: CutAt(9, 9)}, seen, noted)
    assert (risk.records, risk.exact) == (9, True)


def test_partitions_that_did_not_answer_are_not_called_in_step():
    noted = LastSeen(1_700_000_000_000, {P0: 12}, True, 2, 0.4, silent=frozenset({P0, P1}))
    risk = risk_of({P0: CutAt(10, 10), P1: CutAt(5, 5)}, GONE, noted)
    assert (risk.records, risk.unknown) == (2, 1)
    # One whose leader on the target is silent is not one that was never begun.
    risk = risk_of({P0: CutAt(10, 10)}, GONE, last({P0: 12, P1: 900}), begun={P0, P1})
    assert (risk.records, risk.unknown) == (2, 1)


def test_how_long_records_wait_of_a_source_that_answers_is_an_upper_bound():
    seen = SourceSeen(True, ends={P0: 12})
    assert risk_of({P0: CutAt(10, 10)}, seen, last({P0: 11})).seconds == pytest.approx(10.4)
    assert risk_of({P0: CutAt(10, 10)}, seen, None).seconds is None
    assert risk_of({P0: CutAt(12, 12)}, seen, None).seconds == 0.0


@pytest.mark.parametrize("answers", [{P0: 12}, {}])
def test_a_source_that_is_half_gone_is_believed_where_it_answers(answers):
    seen = SourceSeen(True, ends=answers, silent=frozenset({P0, P1} - answers.keys()))
    risk = risk_of({P0: CutAt(10, 10), P1: CutAt(5, 5)}, seen, last({P0: 11, P1: 6}))
    assert not risk.exact
    assert risk.records == (2 if answers else 1) + 1
