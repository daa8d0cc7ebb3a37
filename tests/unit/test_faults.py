"""Every fault of the catalogue has tests of its number, or a reason why it has none.

A test is named after the faults it shows: ``test_f07_...``, ``test_s29_f14_...``. docs/faults.md is
the catalogue for users and names, for each fault, tests that are there.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
FAULTS = range(1, 46)
#: What cannot happen to Heliograph: it uses no transactions on the target, and Spark keeps nothing.
WITHOUT_A_TEST = {
    3: "No transaction is ever open on the target: records are written idempotently, by"
    " compare-and-append, so there is no outcome between PREPARE and COMPLETE to be found out."
    " What takes its place is a produce request of unknown outcome (F2).",
    4: "Positions are not committed to a group: they follow from the target's log and the ledger,"
    " so no group coordinator takes part in copying (test_copying_again_copies_nothing). The jobs"
    " that read and write groups look for a coordinator that moved again"
    " (test_a_coordinator_that_moved_is_looked_for_again).",
    24: "There is no transaction that could time out: every batch counts as soon as it is"
    " acknowledged. A slow target costs time only (F31).",
    34: "EndTxn is never sent. The request that ends a gap is WriteTxnMarkers; its lost answer is"
    " settled by looking at the target's log end (test_f05_killed_while_filling_gaps).",
}


def named() -> dict[int, list[str]]:
    """The names of all tests, by the number of the fault that they show."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"def (test(?:_[sf]\d+)+_\w+)", path.read_text("utf-8")):
            numbers = re.match(r"test((?:_[sf]\d+)+)_", name)
            for number in re.findall(r"_f(\d+)", numbers[1]) if numbers else []:
                found.setdefault(int(number), []).append(name)
    return found


def rows() -> dict[int, str]:
    """The line of each fault in docs/faults.md."""
    lines = PAGE.read_text("utf-8").splitlines()
    return {int(found[1]): line for line in lines if (found := re.match(r"\| F(\d+) \|", line))}


def test_every_fault_is_tested_or_explained():
    tested = named()
    assert [n for n in FAULTS if n not in tested and n not in WITHOUT_A_TEST] == []


def test_nothing_that_is_tested_is_excused():
    assert not WITHOUT_A_TEST.keys() & named().keys()


def test_tests_are_named_after_faults_of_the_catalogue():
    assert named().keys() <= set(FAULTS)


def test_the_page_for_users_has_every_fault_and_names_tests_that_are_there():
    tested, told = named(), rows()
    assert sorted(told) == list(FAULTS)
    for number, line in told.items():
        shown = re.findall(r"`(test_\w+)`", line)
        known = set(tested.get(number, []))
        if number in WITHOUT_A_TEST:
            assert "cannot happen" in line, number
        else:
            assert shown, f"F{number} names no test"
            assert set(shown) <= known, f"F{number}: no such test: {set(shown) - known}"
