"""Proves how far MM2 came in one partition, from the two logs and what MM2 wrote down. Pure.

MM2 stores its position once a minute, and when it is stopped in order. After a kill the target
goes on behind it. Its newest offset sync is a pair of offsets that is exact, but not the last one.
So the target's records from there on are compared with the source's; see `alignment` for what
counts as a proof. If MM2 was restarted and stopped again before it had caught up with itself, the
last record is further back than the end; older syncs and timestamps tell.

As `explore`, this is a generator that asks for stretches of the logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from heliograph.batch.log_slice import LogSlice
from heliograph.mm2.connect_offsets import StoredPosition
from heliograph.takeover.alignment import (
    Ambiguous,
    OtherRecords,
    Pair,
    Steps,
    Unproven,
    found_on,
    last_mirrored,
    located,
    stretches,
)
from heliograph.takeover.history import Asking, ByTime, History, Limits, Read, Side, ask, explore

__all__ = ["Evidence", "inquire"]

#: The target's records behind the newest sync are read up to this number.
_MOST_RECORDS = 500_000
#: Without a sync, the last so many records are looked for.
_WINDOWS = (200, 4_000, 80_000)
#: Source records before the first one that matters, so that others like it are noticed.
_MARGINS = (200, 4_000)
#: MM2 may have begun again behind its stored position; so far before a sync it is read at once.
_NEAR = 20_000
#: The ledger keeps the runs in one record.
_MOST_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to go by.

    Attributes:
        source_start: of the source's log.
        target_start: of the target's log, with ``target_end``.
        target_end: of the target's log; more than 0.
        sync: MM2's newest offset sync, if there is one.
        stored: MM2's stored position, if there is one.
        peaks: older syncs, each the last one before MM2 began again further back; in order.
        ours: the last record that Heliograph mirrored itself, if it did before MM2 went on.
    """

    source_start: int
    target_start: int
    target_end: int
    sync: Pair | None
    stored: StoredPosition | None
    peaks: tuple[Pair, ...] = ()
    ours: Pair | None = None

    @property
    def begin(self) -> int:
        """The first target offset that MM2 may have written."""
        behind = 0 if self.ours is None else self.ours.target + 1
        return max(self.target_start, behind)

    @property
    def least(self) -> int:
        """The first source offset that only MM2 can have mirrored."""
        return 0 if self.ours is None else self.ours.source + 1


_BEHIND = "MM2 was restarted, and stopped again before it had caught up with itself"


class _Proof(NamedTuple):
    """``last`` is the last source offset on the target; ``begin`` where reading began there."""

    last: int
    tail: Steps | None
    begin: int


def inquire(evidence: Evidence, limits: Limits = Limits()) -> Asking[History]:  # noqa: B008
    """What MM2 has mirrored, and the next source offset; raises Unproven."""
    start, end, ours = evidence.begin, evidence.target_end, evidence.ours
    least = evidence.least
    if evidence.target_start == end:
        return History(start, end, max(_of_an_empty_log(evidence) + 1, least), [], [])
    proof = yield from _prove(evidence)
    while True:
        ahead = yield from _ahead(evidence, proof)
        if ahead is None:
            break
        # MM2 had come further, before it began again: the same from there on.
        proof = yield from _prove(replace(evidence, sync=ahead, peaks=()))
        if proof.last < ahead.source:
            raise Unproven(_BEHIND)
    following, source = max(proof.last + 1, least), evidence.source_start
    history = yield from explore(start, end, source, following, proof.tail, limits, ours)
    if len(history.pairs) > _MOST_RUNS:
        history = yield from explore(start, end, source, following, None, limits, ours)
    if history.most >= following:
        raise Unproven(_BEHIND)
    if ours is not None and ours.target < proof.begin and ours.target + 1 == start:
        yield from _require_begun_behind(ours, history)
    return history


def _require_begun_behind(ours: Pair, history: History) -> Asking[None]:
    """Raise Unproven if MM2 may have begun before our last record: while we mirrored, too.

    Then some records that we did not mirror are before it, and would be skipped by translation.
    """
    here = yield from ask(Read(Side.SOURCE, ours.source + 1, committed=True))
    first = history.pairs[0].source if history.pairs else history.following
    if len(here) and here.offsets[0] < first and history.pairs:
        raise Unproven(
            f"source offset {here.offsets[0]} was not found behind Heliograph's last record, which"
            f" is at target offset {ours.target} (did both mirror at the same time?)"
        )


def _of_an_empty_log(evidence: Evidence) -> int:
    """All records were deleted since: MM2's own words must do, if they fit together."""
    stored, sync = evidence.stored, evidence.sync
    if stored is not None and stored.atomic:
        return stored.offset
    if sync is not None:
        behind = evidence.target_end - 1 - sync.target
        last = sync.source if stored is None else max(stored.offset, sync.source)
        if behind == last - sync.source:
            return last
    raise Unproven("all its records were deleted, and MM2's offset sync is older than the last one")


def _prove(evidence: Evidence) -> Asking[_Proof]:
    failures: list[Unproven] = []
    for anchor in _anchors(evidence):
        begin = _begin(evidence, anchor)
        said = "Heliograph's last record" if anchor == evidence.ours else "MM2's newest offset sync"
        too_long = Unproven(f"too much was written to it since {said}")
        if evidence.target_end - begin > _MOST_RECORDS:
            failures.append(too_long)
            continue
        there = yield from ask(Read(Side.TARGET, begin, evidence.target_end))
        if there.cut:
            failures.append(too_long)
            continue
        for low in _lows(evidence, anchor, there):
            try:
                return (yield from _compare(evidence, anchor, there, low))
            except Unproven as failure:
                failures.append(failure)
                if isinstance(failure, OtherRecords):
                    break
    if not failures:
        raise OtherRecords("MM2's newest offset sync is not about what it holds now")
    stored = evidence.stored
    if stored is not None and stored.atomic and isinstance(failures[-1], Ambiguous):
        return _Proof(stored.offset, None, evidence.target_end)
    # The first is about what MM2 itself said; the others about how we tried to do without.
    raise failures[0]


def _anchors(evidence: Evidence) -> Iterator[Pair | int]:
    """Our own last record, a sync, then numbers of records to look for without one."""
    sync, ours = evidence.sync, evidence.ours
    if ours is not None and evidence.target_start - 1 <= ours.target:
        yield ours
    if ours is not None and sync is not None and sync.target <= ours.target:
        sync = None
    # A sync beyond the end is of another target topic; one whose next record is gone is no help.
    if sync is not None and evidence.target_start - 1 <= sync.target < evidence.target_end:
        # Whether MM2 has caught up with itself since is to be seen.
        peaks = [
            p for p in evidence.peaks
            if evidence.target_start - 1 <= p.target and p.source > sync.source - _NEAR
        ]  # fmt: skip
        yield peaks[0] if peaks else sync
    if evidence.stored is not None:
        yield from _WINDOWS


def _begin(evidence: Evidence, anchor: Pair | int) -> int:
    if isinstance(anchor, Pair):
        return max(anchor.target, evidence.target_start)
    return max(evidence.target_end - anchor, evidence.begin)


def _lows(evidence: Evidence, anchor: Pair | int, there: LogSlice) -> list[int]:
    """Where to begin reading the source, nearest first."""
    stored = None if evidence.stored is None else evidence.stored.offset
    if not isinstance(anchor, Pair):
        lows = [(stored or 0) + 1 - len(there) - _MARGINS[0]]
    elif not there.offsets or there.offsets[-1] <= anchor.target:
        # Nothing follows the sync: its own record is all there is to compare.
        lows = [anchor.source]
    else:
        near = stored is not None and anchor.source - stored <= _NEAR
        low = min(anchor.source, stored + 1) if near and stored is not None else anchor.source
        lows = [low - margin for margin in _MARGINS]
        if not near or evidence.peaks or evidence.ours is not None:
            # MM2 may have begun again much further back; or begun where we had stored a position.
            lows.append(anchor.source - _MOST_RECORDS)
    return list(dict.fromkeys(max(low, evidence.source_start) for low in lows))


def _compare(evidence: Evidence, anchor: Pair | int, there: LogSlice, low: int) -> Asking[_Proof]:
    """The proof by the source's records from ``low`` on; raises Unproven."""
    sync = anchor if isinstance(anchor, Pair) else None
    stored = None if evidence.stored is None else evidence.stored.offset
    high = max(low, 0 if sync is None else sync.source, 0 if stored is None else stored)
    records = high - low + 1 + len(there)
    proofs: dict[int, Steps | None] = {}
    failure: Unproven | None = None
    # MM2 mirrors what transactions aborted, unless it was told otherwise.
    for committed in (False, True):
        here = yield from ask(Read(Side.SOURCE, low, None, committed, records))
        try:
            last = last_mirrored(here, there, sync, stored, whole=low <= 0)
        except OtherRecords as error:
            failure = failure or (error if sync != evidence.ours else _not_as_in_the_ledger(sync))
        except Unproven as error:
            failure = failure or error
        else:
            proofs.setdefault(last, _tail(here, there, sync, evidence.least))
        if not here.transactional:
            break
    if len(proofs) > 1:
        raise Ambiguous(
            f"it may hold the source up to offset {min(proofs)}, or with aborted transactions left"
            f" out up to {max(proofs)}"
        )
    if not proofs:
        assert failure is not None  # noqa: S101 - the loop ran
        raise failure
    [(last, tail)] = proofs.items()
    return _Proof(last, tail, there.start)


def _ahead(evidence: Evidence, proof: _Proof) -> Asking[Pair | None]:
    """The record behind the last one, if the target has that as well, before what was read of it.

    MM2 copies record after record: if it ever came further, it copied that one.
    """
    here = yield from ask(Read(Side.SOURCE, max(proof.last + 1, evidence.source_start)))
    if not len(here) or here.untimed or proof.begin <= evidence.begin:
        return None
    offset = yield ByTime(Side.TARGET, here.time_at(0))
    if not isinstance(offset, int) or offset >= proof.begin:
        return None
    there = yield from ask(Read(Side.TARGET, max(offset, evidence.begin)))
    return found_on(here, there)


def _not_as_in_the_ledger(ours: Pair | None) -> OtherRecords:
    assert ours is not None  # noqa: S101 - only a pair can be other records
    return OtherRecords(
        f"by the ledger, source offset {ours.source} is at target offset {ours.target}, but these"
        " are different records"
    )


def _tail(here: LogSlice, there: LogSlice, sync: Pair | None, least: int) -> Steps | None:
    """How the two go on together from the first record that is known."""
    first = sync
    if first is None or not _has(here, first.source) or not _has(there, first.target):
        first = located(here, there)
    return None if first is None else stretches(here, there, first, least=least)


def _has(part: LogSlice, offset: int) -> bool:
    return offset in part.offsets
