"""Every case of a bad day has a test that exists, or a reason why it has none."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "failover.md"
CASES = range(1, 26)


def rows() -> dict[int, list[str]]:
    """The cells of each case's row."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdecimal():
            found[int(cells[0])] = cells
    return found


def test_all_cases_have_a_row():
    assert list(rows()) == list(CASES)


def test_each_is_shown_by_a_test_or_has_a_reason():
    known = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    for number, (_, _, outcome, shown) in rows().items():
        if shown == "-":
            assert outcome.startswith("Reason: "), number
        else:
            assert shown.strip("`") in known, (number, shown)
