"""What tasks wrote: live reports count a lease, receipts decide."""

from __future__ import annotations

from heliograph.copy.counts import Counts, SpanValues
from heliograph.copy.lease_report import LeaseReport
from heliograph.model import Receipt, TopicPartition
from heliograph.service.copied import Copied

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def report(serial, records, *partitions, pending=0, free=0):
    counts = Counts(records, 10 * records)
    return LeaseReport("A->B", serial, counts=counts, partitions=partitions, pending=pending,
                       free_bytes=free)  # fmt: skip


def receipt(serial, records, partition=0, counts=None):
    text = (counts or Counts(records, 10 * records)).encode()
    return Receipt("A->B", "t", partition, 0, 0, records, 10 * records, 1, 0, 0, "", serial,
                   counts=text)  # fmt: skip


def test_receipts_take_the_place_of_reports():
    copied = Copied()
    assert (copied.counts, copied.free_bytes) == (Counts(), None)
    copied.heard(report(1, 5, pending=3, free=100), 1.0)
    copied.heard(report(2, 7, pending=1, free=50), 1.0)
    assert (copied.counts.records, copied.pending, copied.free_bytes) == (12, 4, 150)
    copied.received([receipt(1, 6)], 2.0)
    assert (copied.counts.records, copied.pending, copied.free_bytes) == (13, 1, 50)
    copied.heard(report(1, 5), 3.0)
    assert copied.counts.records == 13, "a report that came late"
    copied.heard(LeaseReport("A->B", 9), 3.0)
    assert copied.counts.records == 13, "one that counts nothing"


def test_partitions_have_sums_and_rates_that_end():
    copied = Copied()
    copied.heard(report(1, 6, (P, Counts(6, 60))), 100.0)
    copied.heard(report(1, 16, (P, Counts(16, 160))), 102.0)
    one = copied.partitions(102.0)[P]
    assert (one.counts.records, one.records_per_second, one.bytes_per_second) == (16, 5.0, 50.0)
    assert copied.partitions(103.0) is copied.partitions(104.0), "nothing has changed"
    assert copied.partitions(110.0)[P].records_per_second == 0.0
    copied.received([receipt(1, 20), receipt(1, 2, 1)], 111.0)
    found = copied.partitions(111.0)
    assert [found[p].counts.records for p in (P, Q)] == [20, 2]
    copied.forget({Q: ""})
    assert set(copied.partitions(112.0)) == {Q}
    assert copied.counts.records == 22, "what was done was done"


def test_ages_are_those_of_the_last_lease_that_wrote():
    copied = Copied()
    old, new = SpanValues(9, 9, 9, 9, 1), SpanValues(1, 1, 2, 3, 2)
    copied.received([receipt(1, 5, counts=Counts(5, 50, age=old, latency=old))], 1.0)
    copied.received([receipt(2, 4, counts=Counts(4, 40, age=new, latency=new))], 2.0)
    copied.received([receipt(3, 0)], 3.0)
    found = copied.partitions(3.0)[P]
    assert (found.age, found.latency) == (new, new)
    assert found.counts.records == 9
