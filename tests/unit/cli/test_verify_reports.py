"""The forms of a verification's report."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from html import escape
from html.parser import HTMLParser

import pytest

from heliograph.cli.verify import _exit_code
from heliograph.cli.verify_html import as_html
from heliograph.cli.verify_text import as_json, print_text
from heliograph.model import TopicPartition
from heliograph.verify.model import Difference, Gone, Kind, RangeResult, Side
from heliograph.verify.report import PartitionReport, Report, result_of


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
    unproven = RangeResult(3, deleted=7, gone=[Gone(Side.TARGET, 3, 10)])
    assert report(EQUAL, unproven).exit_code == 3
    assert report(EQUAL, unproven, RangeResult(2, error="no leader")).exit_code == 2
    assert report(DIFFERENT, unproven).exit_code == 1


def test_the_exit_code_of_several_flows_is_the_worst():
    unproven, failed = RangeResult(3, deleted=7), RangeResult(2, error="no leader")
    flows = [report(EQUAL), report(unproven), report(failed), report(DIFFERENT)]
    assert [_exit_code(flows[:n]) for n in (1, 2, 3, 4)] == [0, 3, 2, 1]


def pending(found: Report, count: int, never: int = 0) -> Report:
    found.partitions[0].totals.pending, found.partitions[0].totals.never = count, never
    return found


PLAIN = RangeResult(0, records=50)


@pytest.mark.parametrize(
    ("found", "code", "verdict"),
    [
        (report(PLAIN), 0, "IDENTICAL: 50 records, byte for byte"),
        (report(PLAIN, complete=True), 0, "IDENTICAL AND COMPLETE: 50 records, byte for byte"),
        (pending(report(PLAIN), 1), 0, "IDENTICAL: 50 records, byte for byte; not compared:"
         " 1 source offset that is not mirrored yet"),
        (pending(report(PLAIN, complete=True), 0, 9), 0, "IDENTICAL: 50 records, byte for byte; not"
         " compared: 9 source offsets that were never to be mirrored (auto.offset.reset=latest)"),
        (report(PLAIN, complete=True, begin=5), 0,
         "IDENTICAL: 50 records of source offsets 5:, byte for byte"),
        (report(PLAIN, begin=5, end=60, sample=5.0), 0,
         "IDENTICAL: 50 records of source offsets 5:60 in a sample of 5 %, byte for byte"),
        (report(RangeResult(0, records=50, untimed=3)), 0, "IDENTICAL: 50 records, byte for byte"
         " but for 3 timestamps, which the target has replaced"
         " (message.timestamp.type=LogAppendTime)"),
        (report(RangeResult(
            0, records=5, compacted=4, quarantined=1, others=Counter({"C->B": 2}))), 0,
         "IDENTICAL: 5 records, byte for byte; not compared: 1 record that was quarantined, not"
         " mirrored, 4 records that only one side has, which compaction explains, 2 records on the"
         " target that flow C->B has mirrored"),
        (report(PLAIN, RangeResult(1, deleted=7)), 3, "NOT PROVEN: no difference in 50 records,"
         " byte for byte; not compared: 7 records that the source has and the target has deleted"),
        (pending(report(RangeResult(1, deleted=7)), 2), 3, "NOT PROVEN: not compared: 7 records"
         " that the source has and the target has deleted, 2 source offsets that are not mirrored"
         " yet"),
        (report(RangeResult(0, records=9, counts=Counter({Kind.EXTRA: 1, Kind.MISSING: 3}),
                            behind=2)), 1,
         "DIFFERENT: 1 extra, 3 missing (2 of them not mirrored yet), of 9 records compared"),
        (report(), 0, "NOTHING TO COMPARE: the source has no records"),
        (report(RangeResult(0)), 0, "NOTHING TO COMPARE: the source has no records"),
        (report(RangeResult(0, gone=[Gone(Side.SOURCE, 0, 5)])), 0,
         "NOTHING TO COMPARE: there are 5 source offsets that the source has deleted"),
        (pending(report(), 300), 2,
         "NOTHING COMPARED: there are 300 source offsets that are not mirrored yet"),
        (report(RangeResult(0, error="a"), RangeResult(1, error="b")), 2, "NOT VERIFIED: not"
         " all could be compared: o<b>-0: a (and 1 more)"),
        (report(PLAIN, RangeResult(1, error="a")), 2, "NOT VERIFIED: no difference in 50 records,"
         " byte for byte; not all could be compared: o<b>-0: a"),
    ],
)  # fmt: skip
def test_the_headline_says_what_was_compared_what_was_not_and_why(found, code, verdict, tmp_path):
    assert (found.verdict, found.exit_code) == (verdict, code)
    assert found.identical == verdict.startswith("IDENTICAL")
    assert text_of(found, tmp_path).endswith(f"A->B: {verdict}\n")
    assert escape(verdict) in as_html([found])
    [flow] = json.loads(as_json([found]))["flows"]
    assert (flow["verdict"], flow["identical"]) == (verdict, found.identical)
    assert all(text in verdict for text in flow["not_compared"])


def test_results_of_topics():
    words = {
        "identical": report(PLAIN),
        "different": report(PLAIN, DIFFERENT),
        "not verified": report(PLAIN, planned=2),
        "not proven": report(PLAIN, RangeResult(1, deleted=7)),
        "not mirrored yet": pending(report(RangeResult(0)), 300),
        "nothing to compare": report(),
    }
    assert {word: result_of(found.partitions)[1] for word, found in words.items()} == {
        word: word for word in words
    }


def test_what_was_deleted_in_neighbouring_ranges_is_one():
    parts = [RangeResult(n, deleted=5, gone=[Gone(Side.TARGET, 5 * n, 5 * n + 5)])
             for n in (2, 0, 1)]  # fmt: skip
    assert report(*parts).partitions[0].gone == [Gone(Side.TARGET, 0, 15)]


def test_text_names_offsets_on_both_sides_and_leaves_markup_alone(tmp_path):
    text = text_of(report(DIFFERENT, EQUAL), tmp_path)
    assert (
        "changed: value (from byte 3) o<b>-0 / A.o<b>-0: source offset 7, target offset 8" in text
    )
    assert 'target: key "[bold]"' in text
    assert "... and 2 more" in text
    assert "note: o<b>-0: cannot be compared any more: source offsets [0, 5)" in text
    assert text.rstrip().endswith(
        "A->B: DIFFERENT: 3 changed, of 100 records compared; not compared: 5 source offsets that"
        " the source has deleted"
    )


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


@pytest.mark.parametrize("there_before", [False, True])
def test_a_report_is_readable_by_its_owner_only(tmp_path, there_before):
    """It shows keys and values of records."""
    path = tmp_path / "report.txt"
    if there_before:
        path.touch(mode=0o644)
    before = os.umask(0)
    try:
        print_text([report(EQUAL)], path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
