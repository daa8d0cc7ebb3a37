"""Which way a batch takes, and what becomes of transactions, holes and old formats."""

from __future__ import annotations

from typing import Any

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

from heliograph.batch.lanes import _behind_small, pieces
from heliograph.batch.pieces import (
    MERGED,
    PASSED,
    REWRITTEN,
    CorruptBatch,
    Guarded,
    NewEpoch,
    Piece,
    Refused,
    Rules,
)
from heliograph.batch.records import Record

PRODUCER, SEQUENCE = 4242, 1000
#: The leader epoch of the batches that are made here.
EPOCH = 7
#: Nothing is small: every batch takes its own way.
APART = Rules(small_bytes=0)


def records(*offsets, value=b"v"):
    return [Record(o, 1000 + o, b"k%d" % o, value, (("h", b"1"),)) for o in offsets]


def cut(data, start=0, aborted=(), rules=APART):
    """Pieces as comparable values, written with consecutive sequences."""
    out: list[Any] = []
    sequence = SEQUENCE
    for piece in pieces(data, start, list(aborted), rules, EPOCH):
        if isinstance(piece, int | Refused | Guarded):
            out.append(piece)
            continue
        assert isinstance(piece, Piece)
        parsed, seen = read(piece.signed(PRODUCER, sequence))
        assert (parsed.producer_id, parsed.base_sequence) == (PRODUCER, sequence)
        assert [r.offset for r in seen] == list(range(piece.record_count))
        sequence += piece.record_count
        out.append((piece, seen))
    return out


def contents(found):
    return [r._replace(offset=0) for item in found if type(item) is tuple for r in item[1]]


def as_content(wanted):
    return [r._replace(offset=0) for r in wanted]


def source_offsets(found):
    return [
        offset
        for item in found
        if type(item) is tuple
        for source, count in item[0].runs
        for offset in range(source, source + count)
    ]


def test_dense_batches_pass_through_undecoded():
    data = view(batch(records(5, 6, 7), codec=3), batch(records(8, 9)))
    found = cut(data, 5)
    assert [(p.runs, p.next_offset) for p, _ in found] == [([(5, 3)], 8), ([(8, 2)], 10)]
    assert all(p.data.obj is data.obj for p, _ in found), "no copy was made"
    assert contents(found) == as_content(records(5, 6, 7, 8, 9))


def test_pieces_tell_which_way_they_took():
    found = cut(view(batch(records(0, 1)), batch(records(2, 4))))
    assert [item[0].lane for item in found if type(item) is tuple] == [PASSED, REWRITTEN]
    found = cut(view(batch(records(0)), batch(records(1))), rules=MERGE)
    assert [item[0].lane for item in found if type(item) is tuple] == [MERGED]


def test_holes_are_closed_and_every_run_is_named():
    data = view(batch(records(11, 12, 15, 19), base=10, last=22, codec=4))
    [(piece, seen), after] = cut(data, 10)
    assert piece.runs == [(11, 2), (15, 1), (19, 1)]
    assert (piece.record_count, after) == (4, 23)
    assert as_content(seen) == as_content(records(11, 12, 15, 19))
    assert read(piece.data)[0].attributes == 4, "the codec is kept"


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
        assert ends[-1] == wanted[-1] + after + 1
    else:
        assert ends == []


def test_a_start_inside_a_batch_leaves_out_what_is_there_already():
    [(piece, seen), _] = cut(view(batch(records(5, 6, 7, 8))), 7)
    assert piece.runs == [(7, 2)]
    assert as_content(seen) == as_content(records(7, 8))


def test_batches_before_the_start_are_passed_over():
    data = view(batch(records(1, 2)), batch(records(3)))
    assert source_offsets(cut(data, 3)) == [3]


def test_log_append_time_becomes_create_time_as_for_mm2():
    data = view(batch(records(0, 1), flags=LOG_APPEND_TIME, max_timestamp=777_000))
    [(piece, seen), _] = cut(data)
    assert [r.timestamp for r in seen] == [777_000, 777_000]
    assert read(piece.data)[0].timestamp_type == 0
    assert [r.key for r in seen] == [b"k0", b"k1"]


@pytest.mark.parametrize("magic", [0, 1])
def test_f19_small_batches_of_old_and_new_formats_are_neighbours(magic):
    old = [Record(o, 5000 + o, b"k%d" % o, b"v") for o in range(3)]
    data = view(legacy(magic, old), batch(records(3)), batch(records(4)))
    found = cut(data, rules=Rules())
    assert [r.value for r in contents(found)] == [b"v"] * 5
    assert source_offsets(found) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_f19_old_formats_are_written_anew(magic, codec):
    old = [Record(o, 5000 + o, b"k%d" % o, b"value-%d" % o) for o in range(3)]
    data = view(legacy(magic, old, codec), batch(records(3, 4)))
    found = cut(data)
    assert source_offsets(found) == [0, 1, 2, 3, 4]
    seen = contents(found)
    assert [(r.key, r.value) for r in seen[:3]] == [(r.key, r.value) for r in old]
    if magic == 1:
        assert [r.timestamp for r in seen[:3]] == [5000, 5001, 5002]
    assert all(item[0].data[16] == 2 for item in found if type(item) is tuple)


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
    walk = pieces(view(batch(records(6)), damaged()), 6, [], APART, EPOCH)
    first = next(walk)
    assert isinstance(first, Piece)
    assert first.runs == [(6, 1)]
    with pytest.raises(CorruptBatch, match=r"source offsets 7 to 8 does not match its CRC"):
        next(walk)


def test_a_wrong_crc_is_found_in_the_lane_that_decodes_too():
    with pytest.raises(CorruptBatch):
        list(pieces(view(damaged()), 8, [], APART, EPOCH))


def test_records_that_cannot_be_read_are_corrupt_even_with_a_right_crc():
    made = batch(records(3, 5))
    made[61:70] = b"\xff" * 9
    with pytest.raises(CorruptBatch, match="cannot be decoded"):
        list(pieces(view(sealed(made)), 3, [], APART, EPOCH))


def test_sequence_wraps_in_every_lane():
    dense, holed = batch(records(0, 1, 2)), batch(records(3, 5))
    found = [p for p in pieces(view(dense, holed), 0, [], APART, EPOCH) if isinstance(p, Piece)]
    for piece in found:
        assert read(piece.signed(1, (1 << 31) + 5))[0].base_sequence == 5


# -- merging ----------------------------------------------------------------------------------

MERGE = Rules(small_bytes=1 << 20)


@pytest.mark.parametrize("codec", range(5))
def test_small_neighbours_become_one_batch_of_the_same_codec(codec):
    data = view(*(batch(records(o), codec=codec) for o in range(50)))
    [(piece, seen)] = cut(data, 0, rules=MERGE)
    assert (piece.runs, piece.record_count, piece.next_offset) == ([(0, 50)], 50, 50)
    assert as_content(seen) == as_content(records(*range(50)))
    assert piece.header.codec == codec


def test_a_configured_codec_is_used_for_what_is_built_anew():
    data = view(*(batch(records(o), codec=1) for o in range(3)))
    [(piece, _)] = cut(data, 0, rules=MERGE._replace(codec=4))
    assert piece.header.codec == 4


def test_large_batches_between_small_ones_pass_through():
    large = batch([Record(2, 5, None, b"x" * 9000)])
    data = view(batch(records(0)), batch(records(1)), large, batch(records(3)), batch(records(4)))
    found = [item for item in cut(data, 0, rules=Rules(small_bytes=500)) if type(item) is tuple]
    assert [p.runs for p, _ in found] == [[(0, 2)], [(2, 1)], [(3, 2)]]
    assert found[1][0].data.obj is data.obj


@given(sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=40))
def test_neighbours_of_any_sizes_are_found(sizes):
    made, offset = [], 0
    for count, size in sizes:
        for _ in range(count):
            made.append(batch([Record(offset, 7, None, b"x" * 100 * size)]))
            offset += 1
    data = view(*made)
    ends = [len(b"".join(bytes(b) for b in made[: n + 1])) for n in range(len(made))]
    small = max(len(b) for b in made[: len(made) // 2 + 1])
    starts = [0, *ends]
    behind, last = _behind_small(data, -1, 0, len(data), small)
    assert behind == next(
        (end - len(b) for end, b in zip(ends, made, strict=True) if len(b) > small), ends[-1]
    )
    assert last == max((start for start in starts if start < behind), default=-1)
    for cut_at in (len(data) - 1, len(data) // 2):
        behind, last = _behind_small(data, -1, 0, cut_at, 1 << 20)
        assert behind == max([end for end in ends if end <= cut_at], default=0)
        assert last == max((start for start in starts if start < behind), default=-1)


def test_a_lonely_small_batch_is_not_decoded():
    data = view(batch(records(0)))
    [(piece, _)] = cut(data, 0, rules=MERGE)
    assert piece.data.obj is data.obj


def test_a_wrong_crc_among_small_ones_stops_after_what_is_sound():
    walk = pieces(view(batch(records(5)), batch(records(6)), damaged()), 5, [], MERGE, EPOCH)
    first = next(walk)
    assert isinstance(first, Piece)
    assert first.runs == [(5, 2)]
    with pytest.raises(CorruptBatch, match=r"source offsets 7 to 8 does not match its CRC"):
        next(walk)


def test_what_exceeds_the_target_is_split_and_a_single_record_is_refused():
    big = [Record(o, 5, b"k", b"x" * 600) for o in range(10)]
    big[4] = big[4]._replace(value=b"y" * 5000)
    found = cut(view(batch(big)), 0, rules=APART._replace(max_bytes=2000))
    assert source_offsets(found) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert all(len(item[0].data) <= 2000 for item in found if type(item) is tuple)
    [refused] = [item for item in found if isinstance(item, Refused)]
    assert (refused.record.offset, refused.record.value) == (4, b"y" * 5000)
    assert "max.message.bytes=2000" in refused.reason


def test_a_compressed_record_that_fits_is_not_refused():
    data = view(batch([Record(0, 5, b"k", b"x" * 9000), Record(2, 5, b"k", b"v")], codec=4))
    found = cut(data, 0, rules=APART._replace(max_bytes=2000))
    assert source_offsets(found) == [0, 2]


def test_refused_records_are_left_out_and_named():
    data = view(batch(records(0, 1, 2, 3)), batch(records(4)))
    found = cut(data, 0, rules=MERGE._replace(refused={1: "because", 4: "too"}))
    assert source_offsets(found) == [0, 2, 3]
    assert [(r.record.offset, r.reason) for r in found if isinstance(r, Refused)] == [
        (1, "because"),
        (4, "too"),
    ]
    assert found[-1] == 5


shapes = st.lists(
    st.tuples(
        st.sampled_from(["plain", "aborted", "committed", "empty", "append-time"]),
        st.integers(1, 4),  # records
        st.integers(0, 2),  # holes before each
        st.integers(0, 4),  # codec
    ),
    min_size=1,
    max_size=12,
)


@given(shapes=shapes, one_run=st.booleans(), small=st.sampled_from([0, 250, 1 << 20]),
       start=st.integers(0, 20), limit=st.sampled_from([1 << 30, 400]))  # fmt: skip
def test_any_mixture_arrives_whole(shapes, one_run, small, start, limit):
    """Against a brute-force model: every wanted record once, in order, at its source offset."""
    data, wanted, aborted, offset = [], [], [], 0
    for kind, count, holes, codec in shapes:
        if kind == "empty":
            data.append(empty(offset, offset + count))
            offset += count + 1
            continue
        first, offsets = offset, []
        for _ in range(count):
            offset += holes
            offsets.append(offset)
            offset += 1
        made = records(*offsets, value=kind.encode())
        if kind in {"aborted", "committed"}:
            pid = 7 if kind == "aborted" else 8
            data.append(batch(made, base=first, last=offset - 1, codec=codec,
                              flags=TRANSACTIONAL, producer=(pid, 0, 0)))  # fmt: skip
            data.append(marker(offset, pid, COMMIT))
            if kind == "aborted":
                aborted.append((pid, first))
            offset += 1
        elif kind == "append-time":
            data.append(batch(made, base=first, last=offset - 1, codec=codec,
                              flags=LOG_APPEND_TIME, max_timestamp=777))  # fmt: skip
            made = [r._replace(timestamp=777) for r in made]
        else:
            data.append(batch(made, base=first, last=offset - 1, codec=codec))
        if kind != "aborted":
            wanted += [r for r in made if r.offset >= start]
    rules = Rules(small_bytes=small, one_run=one_run, max_bytes=limit)
    found = cut(view(*data), start, aborted, rules)
    assert source_offsets(found) == [r.offset for r in wanted]
    assert contents(found) == as_content(wanted)
    made_of = [item[0] for item in found if type(item) is tuple]
    if one_run:
        assert all(len(piece.runs) == 1 for piece in made_of)
    ends = [item if isinstance(item, int) else item[0].next_offset for item in found]
    assert ends == sorted(ends)
    if start < offset:
        assert ends[-1] == offset


# -- leader epochs ----------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1),
    st.sampled_from([-1, 0, 3]),
    st.booleans(),
)
def test_f11_every_record_is_told_under_the_epoch_of_its_batch(made, known, small):
    """Whatever is merged, no piece holds records of two epochs."""
    epoch, data, wanted, before = 0, [], {}, known
    changes = []
    for offset, (grown, size, control) in enumerate(made):
        epoch += grown
        if control:
            one = marker(offset, 9, COMMIT)
        else:
            one = batch([Record(offset, 7, b"k", b"x" * 50 * size)])
            wanted[offset] = epoch
        one[12:16] = epoch.to_bytes(4, "big")
        data.append(one)
        if epoch != before:
            before = epoch
            changes.append(epoch)
    seen, told, current = {}, [], known
    for item in pieces(view(*data), 0, [], MERGE if small else APART, known):
        if isinstance(item, NewEpoch):
            current = item.epoch
            told.append(current)
        elif isinstance(item, Piece):
            for source, count in item.runs:
                seen |= dict.fromkeys(range(source, source + count), current)
    assert seen == wanted
    assert told == changes


def test_f11_batches_of_old_formats_and_of_unknown_epochs_tell_none():
    nameless = batch(records(4), leader_epoch=-1)
    for rules in (APART, MERGE):
        for data in (legacy(1, records(3)), nameless):
            found = list(pieces(view(data), 3, [], rules, EPOCH))
            assert not [item for item in found if isinstance(item, NewEpoch)]


# -- what came from the target --------------------------------------------------------------------

THEIRS = 99
GUARD = Rules(guard=frozenset({THEIRS}))
KINDS = st.sampled_from(["theirs", "ours", "other", "legacy", "theirs, lz4", "ours, large"])


@given(
    st.lists(st.tuples(KINDS, st.integers(1, 3)), max_size=20),
    st.integers(0, 10),
    st.integers(0, 15),
    st.booleans(),
)
def test_exactly_what_came_from_the_target_is_left_out(plan, start, since, merging):
    log, offset, wanted = bytearray(), 0, []
    # Old formats stand at the beginning of a log.
    for kind, count in sorted(plan, key=lambda item: item[0] != "legacy"):
        offsets = range(offset, offset + count)
        made = records(*offsets, value=b"x" * 5000 if kind == "ours, large" else b"v")
        if kind == "legacy":
            log += legacy(1, made)
        else:
            producer = {"theirs": THEIRS, "theirs, lz4": THEIRS, "other": 5}.get(kind, -1)
            codec = 3 if kind == "theirs, lz4" else 0
            log += batch(made, producer=(producer, 0, 7), codec=codec)
        guarded = kind.startswith("theirs") and offset >= since
        wanted += [] if guarded else [o for o in offsets if o >= start]
        offset += count
    rules = GUARD._replace(guard_since=since, small_bytes=4096 if merging else 0)
    found = cut(view(log), start, (), rules)
    assert source_offsets(found) == wanted
    passed = [f.next_offset for f in found if isinstance(f, Guarded)]
    assert passed == sorted(passed)
    assert all(o > start for o in passed)


def test_many_small_batches_are_merged_up_to_those_that_came_from_the_target():
    def small(offsets, producer):
        return b"".join(bytes(batch(records(o), producer=(producer, 0, o))) for o in offsets)

    log = small(range(40), 5) + small(range(40, 45), THEIRS) + small(range(45, 90), 5)
    found = cut(view(bytearray(log)), 0, (), GUARD)
    kinds = [f.next_offset if isinstance(f, Guarded) else f[0].lane for f in found]
    assert kinds == [MERGED, 41, 42, 43, 44, 45, MERGED]
    # Without the guard, all of it is one batch.
    assert len(cut(view(bytearray(log)), 0, (), Rules())) == 1


def test_nothing_is_left_out_on_the_word_of_a_damaged_header():
    data = batch(records(0, 1), producer=(5, 0, 7))
    data[43:51] = THEIRS.to_bytes(8, "big")
    with pytest.raises(CorruptBatch, match="does not match its CRC"):
        cut(view(data), 0, (), GUARD)
