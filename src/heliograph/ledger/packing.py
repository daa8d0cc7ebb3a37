"""Runs as bytes: unsigned varints (LEB128), two to a run as a rule. Pure.

Version 2: a version byte, a mode byte, then per run

    growth of the sequence against the run before (the first: against 0)
    2 * gap     the source grew by so much more than the sequence; the target by the mode's rule
    1, gap, shift   both zigzag: anything else

A gap is what the source jumped over, a shift what the target jumped over. In mode `DENSE` the
target has no gaps (shift 0); in mode `IDENTICAL` it has the source's (shift = gap). Foreign records
on the target are the exception that the long form is for.

Version 1, still read: per run, the growth of sequence, source and target.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ledger.columns import Run

_PLAIN, _VERSION = 1, 2
DENSE, IDENTICAL = 0, 1
#: Instead of an even number: the long form follows.
_ESCAPE = 1


def pack(runs: Sequence[Run]) -> bytes:
    """Bytes of runs whose sequences grow."""
    before = Run(0, 0, 0)
    steps = []
    for run in runs:
        growth = run.sequence - before.sequence
        if growth < 0:
            raise ValueError(f"runs out of order: {run} behind {before}")
        steps.append((
            growth, run.source - before.source - growth, run.target - before.target - growth
        ))  # fmt: skip
        before = run
    identical = sum(gap == shift for _, gap, shift in steps)
    dense = sum(shift == 0 for _, _, shift in steps)
    mode = IDENTICAL if identical > dense else DENSE
    out = bytearray((_VERSION, mode))
    for growth, gap, shift in steps:
        put_varint(out, growth)
        if gap >= 0 and shift == (gap if mode == IDENTICAL else 0):
            put_varint(out, 2 * gap)
        else:
            out.append(_ESCAPE)
            put_varint(out, _zigzag(gap))
            put_varint(out, _zigzag(shift))
    return bytes(out)


def unpack(data: bytes) -> list[Run]:
    """Inverse of `pack`; raises ValueError on a version of the future."""
    if data[0] == _PLAIN:
        return _unpack_plain(varints(data[1:]))
    if data[0] != _VERSION or data[1] not in {DENSE, IDENTICAL}:
        raise ValueError(f"ledger entry of version {data[0]}: written by a newer Heliograph")
    identical = data[1] == IDENTICAL
    runs: list[Run] = []
    sequence = source = target = 0
    numbers = iter(varints(data[2:]))
    for growth in numbers:
        second = next(numbers)
        if second != _ESCAPE:
            gap = second >> 1
            shift = gap if identical else 0
        else:
            gap, shift = _unzigzag(next(numbers)), _unzigzag(next(numbers))
        sequence += growth
        source += growth + gap
        target += growth + shift
        runs.append(Run(sequence, source, target))
    return runs


def _unpack_plain(numbers: Sequence[int]) -> list[Run]:
    runs: list[Run] = []
    previous = Run(0, 0, 0)
    for i in range(0, len(numbers), 3):
        previous = Run(*(a + b for a, b in zip(previous, numbers[i : i + 3], strict=True)))
        runs.append(previous)
    return runs


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def varints(data: bytes) -> list[int]:
    """Every varint of ``data``."""
    numbers, value, shift = [], 0, 0
    for byte in data:
        if byte < 0x80:
            numbers.append(value | byte << shift)
            value = shift = 0
        else:
            value |= (byte & 0x7F) << shift
            shift += 7
    return numbers


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at an index, and the index behind it."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _zigzag(value: int) -> int:
    return 2 * value if value >= 0 else -2 * value - 1


def _unzigzag(value: int) -> int:
    return value >> 1 if value % 2 == 0 else -(value + 1 >> 1)
