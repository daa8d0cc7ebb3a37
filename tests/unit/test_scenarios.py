"""Every scenario of sections A, C, D, E and G has a test of its name, or a reason why it has none.

A test is named after the scenarios it shows: ``test_s65_s66_...``.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SECTIONS = {
    "A": range(1, 14),
    "C": range(26, 45),
    "D": range(45, 59),
    "E": range(59, 80),
    "G": range(92, 98),
}
#: What does not apply to Heliograph, or cannot be tested here.
WITHOUT_A_TEST = {
    40: "A ForwardingAdmin is a Java class; classes named in a file are never loaded, and any other"
    " value than the default is refused (test_config_mirror_maker.py).",
    46: "Translation needs no store that is read beforehand: FlowOffsets and the checkpoints job"
    " read the ledger to its end for every answer.",
    47: "A reset of either side is another generation of a topic: runs belong to a pair of topic"
    " ids (test_a_source_topic_that_was_created_again_is_told_apart).",
    48: "A source that is rewound is another generation, as in S47; there are no slots to clear.",
    49: "MM2's sync store; the ledger keeps every run, so a restart forgets nothing.",
    50: "As S49.",
    51: "MM2's 64 slots; the ledger keeps every run.",
    56: "A null RecordMetadata is a matter of Java's producer; our acknowledgement has an offset.",
    97: "Metrics have no endpoint yet.",
}


def named() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for name in re.findall(r"def (test(?:_s\d+)+_\w+)", path.read_text("utf-8")):
            for number in re.findall(r"_s(\d+)", name.split("__")[0]):
                found.setdefault(int(number), []).append(name)
    return found


def test_every_scenario_is_tested_or_explained():
    tested = named()
    missing = {
        section: [n for n in numbers if n not in tested and n not in WITHOUT_A_TEST]
        for section, numbers in SECTIONS.items()
    }
    assert not any(missing.values()), missing


def test_nothing_that_is_tested_is_excused():
    assert not WITHOUT_A_TEST.keys() & named().keys()
