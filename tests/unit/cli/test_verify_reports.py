"""The forms of a verification's report."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser

from heliograph.cli.verify_html import as_html
from heliograph.cli.verify_text import as_json, print_text
from heliograph.model import TopicPartition
from heliograph.verify.model import Difference, Gone, Kind, RangeResult, Side
from heliograph.verify.report import PartitionReport, Report


def report(*results: RangeResult, planned: int | None = None, **changes) -> Report:
    partition = PartitionReport(TopicPartition("o<b>", 0), TopicPartition("A.o<b>", 0), 0, 100)
    partition.planned = len(results) if planned is None else planned
    for result in results:
        partition.add(result)
    found = [d for r in results for d in r.differences]
    return Report("A->B", "now", [partition], 20, 2.0, differences=found, **changes)


CHANGED = Difference(
    Kind.CHANGED, "o<b>", "A.o<b>", 0, 7, 8, 8, field="value (from byte 3)",
    source_record='key "<script>"', target_record='key "[bold]"',
)  # fmt: skip
DIFFERENT = RangeResult(
    0, records=50, bytes=10**6, counts=Counter({Kind.CHANGED: 3}), differences=[CHANGED]
)
EQUAL = RangeResult(1, records=50, bytes=10**6, gone=[Gone(Side.SOURCE, 0, 5)])


def text_of(found, tmp_path):
    print_text([found], tmp_path / "report.txt")
    return (tmp_path / "report.txt").read_text()


def test_the_answer_and_its_exit_code():
    assert (report(EQUAL).exit_code, report(DIFFERENT, EQUAL).exit_code) == (0, 1)
    failed = report(EQUAL, RangeResult(2, error="no leader"))
    assert failed.exit_code == 2
    assert failed.unverified == ["o<b>-0: no leader"]
    assert report(DIFFERENT, RangeResult(2, error="no leader")).exit_code == 1
    cut_short = report(EQUAL, planned=4, interrupted=True)
    assert cut_short.exit_code == 2
    assert cut_short.unverified == ["interrupted: 3 of 4 ranges were not compared"]


def test_text_names_offsets_on_both_sides_and_leaves_markup_alone(tmp_path):
    text = text_of(report(DIFFERENT, EQUAL), tmp_path)
    assert (
        "changed: value (from byte 3) o<b>-0 / A.o<b>-0: source offset 7, target offset 8" in text
    )
    assert 'target: key "[bold]"' in text
    assert "... and 2 more" in text
    assert "note: o<b>-0: cannot be compared any more: source offsets [0, 5)" in text
    assert text.rstrip().endswith("A->B: DIFFERENT: 3 changed, of 100 records compared")


def test_a_sample_says_its_seed(tmp_path):
    text = text_of(report(EQUAL, sample=10.0, seed=42, offered=10), tmp_path)
    assert "a sample of 10 %: 1 of 10 ranges, --seed 42" in text


def test_json_has_what_the_documentation_says():
    [flow] = json.loads(as_json([report(DIFFERENT, EQUAL)]))["flows"]
    assert flow["totals"]["differences"] == {
        "missing": 0, "extra": 0, "changed": 3, "moved": 0, "wrong offset": 0,
    }  # fmt: skip
    assert flow["differences"][0]["source_offset"] == 7
    [partition] = flow["topics"][0]["partitions"]
    assert partition["gone"] == [{"side": "source", "begin": 0, "end": 5}]
    assert (flow["identical"], flow["exit_code"]) == (False, 1)


def test_the_page_is_whole_and_needs_nothing_else():
    page = as_html([report(DIFFERENT, EQUAL), report(EQUAL)])
    balance: Counter[str] = Counter()

    class Check(HTMLParser):
        def handle_starttag(self, tag, attrs):
            balance[tag] += tag != "meta"
            assert not {"src", "href"} & dict(attrs).keys()

        def handle_endtag(self, tag):
            balance[tag] -= 1

    Check().feed(page)
    assert not +balance
    assert not -balance
    assert "<script>" not in page
    assert "source offset 7, target offset 8" in page
    assert page.count('class="verdict') == 2
