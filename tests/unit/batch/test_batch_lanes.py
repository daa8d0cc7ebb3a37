"""Which way a batch takes, and what becomes of transactions, holes and old formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_batches import (
    COMMIT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    batch,
    empty,
    legacy,
    marker,
    read,
    sealed,
    view,
)

from heliograph.batch.lanes import CorruptBatch, Piece, pieces
from heliograph.batch.records import Record

PRODUCER, SEQUENCE = 4242, 1000


def records(*offsets, value=b"v"):
    return [Record(o, 1000 + o, b"k%d" % o, value, (("h", b"1"),)) for o in offsets]


def cut(data, start=0, aborted=()):
    """Pieces as comparable values, written with consecutive sequences."""
    out = []
    sequence = SEQUENCE
    for piece in pieces(data, start, list(aborted)):
        if isinstance(piece, int):
            out.append(piece)
            continue
        parsed, seen = read(piece.signed(PRODUCER, sequence))
        assert (parsed.producer_id, parsed.base_sequence) == (PRODUCER, sequence)
        assert [r.offset for r in seen] == list(range(piece.record_count))
        sequence += piece.record_count
        out.append((piece, seen))
    return out


def contents(found):
    return [r._replace(offset=0) for item in found if not isinstance(item, int) for r in item[1]]


def as_content(wanted):
    return [r._replace(offset=0) for r in wanted]


def source_offsets(found):
    return [
        offset
        for item in found
        if not isinstance(item, int)
        for source, count in item[0].runs
        for offset in range(source, source + count)
    ]


def test_dense_batches_pass_through_undecoded():
    data = view(batch(records(5, 6, 7), codec=3), batch(records(8, 9)))
    found = cut(data, 5)
    assert [(p.records, p.runs, p.next_offset) for p, _ in found] == [
        (None, [(5, 3)], 8),
        (None, [(8, 2)], 10),
    ]
    assert contents(found) == as_content(records(5, 6, 7, 8, 9))


def test_holes_are_closed_and_every_run_is_named():
    data = view(batch(records(11, 12, 15, 19), base=10, last=22, codec=4))
    [(piece, seen)] = cut(data, 10)
    assert piece.runs == [(11, 2), (15, 1), (19, 1)]
    assert (piece.record_count, piece.next_offset) == (4, 23)
    assert as_content(seen) == as_content(records(11, 12, 15, 19))
    assert read(piece.signed(1, 1))[0].attributes == 4, "the codec is kept"


@given(
    offsets=st.sets(st.integers(0, 60), min_size=1),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    start=st.integers(0, 64),
    codec=st.integers(0, 4),
)
def test_any_holes_any_start(offsets, before, after, start, codec):
    wanted = sorted(o + before for o in offsets)
    made = records(*wanted)
    data = view(batch(made, base=0, last=wanted[-1] + after, codec=codec))
    found = cut(data, start)
    kept = [r for r in made if r.offset >= start]
    assert source_offsets(found) == [r.offset for r in kept]
    assert contents(found) == as_content(kept)
    ends = [item if isinstance(item, int) else item[0].next_offset for item in found]
    if start <= wanted[-1] + after:
        assert ends == [wanted[-1] + after + 1]
    else:
        assert ends == []


def test_a_start_inside_a_batch_leaves_out_what_is_there_already():
    [(piece, seen)] = cut(view(batch(records(5, 6, 7, 8))), 7)
    assert piece.runs == [(7, 2)]
    assert as_content(seen) == as_content(records(7, 8))


def test_batches_before_the_start_are_passed_over():
    data = view(batch(records(1, 2)), batch(records(3)))
    assert source_offsets(cut(data, 3)) == [3]


def test_log_append_time_becomes_create_time_as_for_mm2():
    data = view(batch(records(0, 1), flags=LOG_APPEND_TIME, max_timestamp=777_000))
    [(piece, seen)] = cut(data)
    assert [r.timestamp for r in seen] == [777_000, 777_000]
    assert read(piece.signed(1, 1))[0].timestamp_type == 0
    assert [r.key for r in seen] == [b"k0", b"k1"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_old_formats_are_written_anew(magic, codec):
    old = [Record(o, 5000 + o, b"k%d" % o, b"value-%d" % o) for o in range(3)]
    data = view(legacy(magic, old, codec), batch(records(3, 4)))
    found = cut(data)
    assert source_offsets(found) == [0, 1, 2, 3, 4]
    seen = contents(found)
    assert [(r.key, r.value) for r in seen[:3]] == [(r.key, r.value) for r in old]
    if magic == 1:
        assert [r.timestamp for r in seen[:3]] == [5000, 5001, 5002]
    assert all(p.signed(1, 1)[16] == 2 for p, _ in found)


def test_an_old_message_set_from_its_middle():
    old = [Record(o, 5000 + o, None, b"%d" % o) for o in range(4)]
    found = cut(view(legacy(1, old, 1)), 2)
    assert [r.value for r in contents(found)] == [b"2", b"3"]
    assert source_offsets(found) == [2, 3]


def test_control_and_empty_batches_are_skipped():
    data = view(batch(records(0)), marker(1, 9, COMMIT), empty(2, 6), batch(records(7)))
    found = cut(data)
    assert [item if isinstance(item, int) else item[0].runs for item in found] == [
        [(0, 1)],
        2,
        7,
        [(7, 1)],
    ]


def transactional(producer_id, *offsets):
    made = records(*offsets, value=b"txn of %d" % producer_id)
    return batch(made, flags=TRANSACTIONAL, producer=(producer_id, 0, 0))


def test_aborted_transactions_of_interleaved_producers():
    # 1 aborts, commits, aborts again; 2 commits over all of it; 3 writes without a transaction.
    data = view(
        transactional(1, 0, 1),
        transactional(2, 2),
        batch(records(3)),
        marker(4, 1),
        transactional(1, 5, 6),
        transactional(2, 7),
        marker(8, 1, COMMIT),
        transactional(1, 9),
        marker(10, 2, COMMIT),
        marker(11, 1),
        transactional(1, 12),
        marker(13, 1, COMMIT),
    )
    found = cut(data, aborted=[(1, 9), (1, 0)])
    assert source_offsets(found) == [2, 3, 5, 6, 7, 12]


def test_an_aborted_transaction_may_begin_before_the_fetch():
    data = view(transactional(1, 30), marker(31, 1), transactional(1, 32), marker(33, 1, COMMIT))
    found = cut(data, 30, aborted=[(1, 12)])
    assert source_offsets(found) == [32]
    assert [item for item in found if isinstance(item, int)] == [31, 32, 34]


def test_a_start_between_an_aborted_batch_and_its_marker():
    # The fetch answers with the whole batch around the start: it still opens the transaction.
    data = view(transactional(1, 0, 1, 2), transactional(1, 3), marker(4, 1), batch(records(5)))
    assert source_offsets(cut(data, 2, aborted=[(1, 0)])) == [5]


def test_read_uncommitted_gets_no_list_and_takes_everything():
    data = view(transactional(1, 0), marker(1, 1), transactional(2, 2))
    assert source_offsets(cut(data)) == [0, 2]


def test_an_aborted_producer_does_not_hide_its_plain_batches():
    data = view(transactional(1, 0), batch(records(1), producer=(1, 0, 5)), marker(2, 1))
    assert source_offsets(cut(data, aborted=[(1, 0)])) == [1]


@given(
    plan=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["data", "abort", "commit"])), max_size=40
    ),
    split=st.integers(0, 60),
)
def test_any_interleaving_any_split_of_fetches(plan, split):
    """Against a model: what consumers with read_committed see, in two fetches."""
    out, offset, open_since, records_of = [], 0, {}, {}
    aborted, committed = [], []
    for producer_id, what in [*plan, *((p, "commit") for p in range(4))]:
        if what == "data":
            out.append((offset, transactional(producer_id, offset, offset + 1)))
            open_since.setdefault(producer_id, offset)
            records_of.setdefault(producer_id, []).extend((offset, offset + 1))
            offset += 2
        elif producer_id in open_since:
            out.append((offset, marker(offset, producer_id, COMMIT if what == "commit" else 0)))
            first = open_since.pop(producer_id)
            if what == "abort":
                aborted.append((producer_id, first, offset))
            else:
                committed += records_of[producer_id]
            records_of[producer_id] = []
            offset += 1
    seen = []
    for low, high in ((0, split), (split, offset)):
        part = [(at, b) for at, b in out if low <= at < high]
        if not part:
            continue
        listed = [(p, first) for p, first, last in aborted if last >= part[0][0] and first < high]
        seen += source_offsets(cut(view(*(b for _, b in part)), part[0][0], listed))
    assert seen == sorted(committed)


def damaged():
    made = batch(records(7, 8))
    made[-1] ^= 1
    return made


def test_a_wrong_crc_stops_the_partition_after_what_is_sound():
    walk = pieces(view(batch(records(6)), damaged()), 6, [])
    first = next(walk)
    assert isinstance(first, Piece)
    assert first.runs == [(6, 1)]
    with pytest.raises(CorruptBatch, match=r"source offsets 7 to 8 does not match its CRC"):
        next(walk)


def test_a_wrong_crc_is_found_in_the_lane_that_decodes_too():
    with pytest.raises(CorruptBatch):
        list(pieces(view(damaged()), 8, []))


def test_records_that_cannot_be_read_are_corrupt_even_with_a_right_crc():
    made = batch(records(3, 5))
    made[61:70] = b"\xff" * 9
    with pytest.raises(CorruptBatch, match="cannot be decoded"):
        list(pieces(view(sealed(made)), 3, []))


def test_sequence_wraps_in_every_lane():
    dense, holed = batch(records(0, 1, 2)), batch(records(3, 5))
    found = [p for p in pieces(view(dense, holed), 0, []) if isinstance(p, Piece)]
    for piece in found:
        assert read(piece.signed(1, (1 << 31) + 5))[0].base_sequence == 5
