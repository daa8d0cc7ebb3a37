"""MirroredPartition: the ledger's translation, kept inside of what the target holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.translation import MirroredPartition, Translation


def mirrored(*kept: int, start: int = 0, records: int | None = None) -> MirroredPartition:
    """Source offsets ``kept`` mirrored densely; ``records`` of them have arrived."""
    runs = [
        Run(n, source, n)
        for n, source in enumerate(kept)
        if n == 0 or kept[n - 1] + 1 != source
    ]  # fmt: skip
    end = len(kept) if records is None else records
    return MirroredPartition(PartitionLedger(runs), start, end)


def test_what_was_never_mirrored_is_only_known_at_its_beginning():
    empty = MirroredPartition(PartitionLedger(), 0, 0)
    assert empty.to_target(0) == Translation(0, exact=True)
    assert empty.to_source(0) == Translation(0, exact=True)
    for found in (empty.to_target(5), empty.to_source(5)):
        assert (found.offset, found.exact) == (None, False)
        assert "nothing of it is mirrored" in found.note


def test_beyond_the_mirror_is_its_end():
    found = mirrored(0, 1, 2, 3, records=2).to_target(3)
    assert (found.offset, found.exact) == (2, False)
    assert "the target ends at 2" in found.note


def test_below_the_targets_log_is_its_start():
    partition = mirrored(0, 1, 2, 3, start=2)
    assert (partition.to_target(1).offset, partition.to_target(1).exact) == (2, False)
    assert "starts at 2" in partition.to_target(1).note
    assert partition.to_source(0).offset == 2
    assert not partition.to_source(0).exact
    assert partition.to_source(9).offset == 4


@given(
    st.sets(st.integers(0, 60), min_size=1).map(sorted),
    st.integers(0, 70),
    st.data(),
)
def test_nothing_is_skipped_and_nothing_that_arrived_is_repeated(kept, offset, data):
    arrived = data.draw(st.integers(0, len(kept)))
    start = data.draw(st.integers(0, arrived))
    found = mirrored(*kept, start=start, records=arrived).to_target(offset)
    first = next((n for n, source in enumerate(kept) if source >= offset), len(kept))
    assert found.offset == min(max(first, start), arrived)
    if start <= first < arrived:
        assert found.exact


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted), st.data())
def test_there_and_back_is_the_same_record(kept, data):
    partition = mirrored(*kept)
    index = data.draw(st.integers(0, len(kept) - 1))
    assert partition.to_target(kept[index]) == Translation(index, exact=True)
    assert partition.to_source(index) == Translation(kept[index], exact=True)
