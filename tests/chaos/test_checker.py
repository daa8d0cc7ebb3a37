"""The checker finds what it is for: each anomaly planted once, and named."""

import random

import numpy as np
import pytest
from checker import SAMPLE_EVERY, Log, compare, translations, unacknowledged
from hypothesis import given, settings
from hypothesis import strategies as st


def log_of(numbers, flagged=(), pieces=3):
    """A log read in a few pieces, its offsets being positions."""
    log, taken = Log(), 0
    for piece in np.array_split(np.array(numbers, np.int64), pieces):
        log.take(piece, lambda i, start=taken: start + i)
        taken += len(piece)
    log.flagged.update(flagged)
    return log


def anomalies(verdict):
    names = ("lost", "behind", "repeated", "reordered", "aborted_visible", "foreign")
    return {name: count for name in names if (count := getattr(verdict, name))}


SOURCE = list(range(10, 5000))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (SOURCE, {}),
        (SOURCE[:777] + SOURCE[778:], {"lost": 1}),
        (SOURCE[:-3], {"behind": 3}),
        ([*SOURCE[:100], SOURCE[99], *SOURCE[100:]], {"repeated": 1}),
        (SOURCE[:2000] + SOURCE[1500:], {"repeated": 500}),
        ([*SOURCE[:50], SOURCE[51], SOURCE[50], *SOURCE[52:]], {"reordered": 1}),
        (SOURCE[:50] + SOURCE[51:300] + [SOURCE[50]] + SOURCE[300:], {"reordered": 1}),
        ([*SOURCE[:50], 7, *SOURCE[50:]], {"aborted_visible": 1, "reordered": 1}),
        ([*SOURCE, 6000], {"foreign": 1}),
        ([], {"behind": len(SOURCE)}),
    ],
)
def test_each_anomaly_is_found(target, found):
    verdict = compare(log_of(SOURCE), log_of(target, flagged=[7]), "t-0")
    assert anomalies(verdict) == found
    assert verdict.exact == (not found)
    assert verdict.checked == len(SOURCE)


def test_examples_name_the_records():
    source = log_of(range(100))
    lost = compare(source, log_of([*range(40), *range(43, 100)]), "orders-2")
    assert lost.examples == ["orders-2 lost: 40-42"]
    swapped = compare(source, log_of([0, 2, 1, *range(3, 100)]), "orders-2")
    assert swapped.examples == ["orders-2 out of order: 1"]


def test_what_is_named_is_counted_apart():
    source = log_of(range(100))
    target = log_of([*range(40), *range(30, 100), *range(50, 55)])
    verdict = compare(source, target, "orders-2", [(35, 50), (200, 300)])
    assert (verdict.named, anomalies(verdict)) == (10, {"repeated": 5})
    assert "orders-2 repeated, at target offsets: 110-114" in verdict.examples
    assert compare(source, target, "orders-2", [(40, 50), (110, 115)]).exact
    # An event may name the other copy.
    assert compare(source, target, "orders-2", [(30, 40), (60, 65)]).exact
    holed = log_of([*range(10), *range(15, 20), *range(10, 100)])
    assert anomalies(compare(source, holed)) == {"repeated": 5, "reordered": 5}
    verdict = compare(source, holed, "orders-2", [(15, 25)])
    assert verdict.exact
    assert verdict.named == 10


def test_what_the_source_has_twice_the_target_may_have_twice():
    assert compare(log_of([1, 2, 2, 3]), log_of([1, 2, 2, 3])).exact
    assert anomalies(compare(log_of([1, 2, 2, 3]), log_of([1, 2, 2, 2, 3]))) == {"repeated": 1}
    assert anomalies(compare(log_of([1, 2, 2, 3]), log_of([1, 2, 3]))) == {"lost": 1}


def test_translations_must_lead_to_the_same_record():
    count = 20 * SAMPLE_EVERY
    here, there = log_of(range(count)), log_of(range(count))
    samples = [(n, here.offsets[n], there.offsets[n]) for n in sorted(here.offsets)]
    assert len(samples) == 20
    assert translations(samples, lambda offset: offset) == (20, 0, [])
    checked, wrong, examples = translations(samples, lambda offset: offset + (offset > 8000))
    assert (checked, wrong) == (20, 16)
    assert examples[0] == "record 8192 is at 8192 and 8192, translated to 8193"


def test_a_loss_of_the_source_is_its_own():
    assert unacknowledged(log_of(range(100)), [(0, 50), (60, 100)]) == 0
    assert unacknowledged(log_of([*range(40), *range(45, 100)]), [(0, 50), (60, 100)]) == 5


def test_millions_are_taken_in_a_second_or_so():
    log = Log()
    for first in range(0, 4_000_000, 5000):
        log.take(np.arange(first, first + 5000), lambda i: i)
    assert (log.records, log.distinct, log.highest) == (4_000_000, 4_000_000, 3_999_999)


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 5), st.randoms())
def test_it_counts_as_one_who_looks_at_every_record(target, pieces, dice):
    source = sorted(dice.sample(range(60), 40))
    verdict = compare(log_of(source), log_of(target, pieces=pieces))
    seen, highest, reordered = set(), -1, 0
    for number in target:
        reordered += number not in seen and number < highest
        seen.add(number)
        highest = max(highest, number)
    missing = set(source) - seen
    assert verdict.lost == sum(n < highest for n in missing)
    assert verdict.behind == sum(n > highest for n in missing)
    assert verdict.repeated == len(target) - len(seen) - sum(
        target.count(n) - 1 for n in seen - set(source)
    )
    assert verdict.foreign == len(seen - set(source))
    assert verdict.reordered == reordered


def test_a_shuffled_log_is_mostly_out_of_order():
    shuffled = SOURCE[:]
    random.Random(1).shuffle(shuffled)
    verdict = compare(log_of(SOURCE), log_of(shuffled))
    assert verdict.lost == verdict.repeated == 0
    assert verdict.reordered > len(SOURCE) * 0.9
