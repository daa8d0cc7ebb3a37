"""Failback: what each side has is told exactly, and settled; killed anywhere, it ends the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from damage import cut
from failing_back import Standby
from mirroring import wait_for

from heliograph.batch.records import Record, build
from heliograph.cli import cli
from heliograph.config.key import compile_pattern
from heliograph.failover import exporting
from heliograph.failover.divergence import Tail
from heliograph.failover.failback_plan import Totals
from heliograph.failover.refusals import HandoverFailed, HandoverRefused
from heliograph.failover.unmirrored import Choice
from heliograph.ledger.holds import Subject
from heliograph.model import TopicPartition
from heliograph.wire import log

KEEP, EXPORT, REBUILD = Choice.KEEP, Choice.EXPORT, Choice.REBUILD
CHOICES = {"ord": KEEP, "pay": EXPORT, "click": REBUILD, "new": KEEP, "odd": EXPORT}
#: Where the command is killed: behind the nth call of what.
KILLS = [
    ("heliograph.failover.exporting:log.append", 2),
    *(("heliograph.failover.steps:Steps.note", n) for n in range(1, 10)),
    ("heliograph.failover.failback:make_targets", 1),
    ("heliograph.failover.failback:bring_tails", 1),
    ("heliograph.failover.exporting:log.append", 1),
    ("heliograph.failover.exporting:log.append", 3),
    ("heliograph.failover.failback:export_tails", 1),
    ("heliograph.failover.failback:make_targets", 2),
    ("heliograph.failover.failback:delete_topics", 1),
    ("heliograph.failover.failback:set_positions", 1),
    ("heliograph.ledger.holds:Holds.hold", 1),
    ("heliograph.ledger.holds:Holds.lift", 1),
    ("heliograph.ledger.holds:Holds.lift", 2),
    ("heliograph.ledger.holds:Holds.start", 1),
    ("heliograph.failover.failback:Failback._behind", 1),
    ("heliograph.ledger.handovers:Handovers.end", 1),
]


@pytest.fixture
def both(lab, tmp_path, monkeypatch):
    # Exports of a few records are several batches, as large ones are.
    monkeypatch.setattr(exporting, "_BATCH_RECORDS", 3)
    made = Standby(lab, tmp_path, ["ord", "pay", "click"], ["new", "odd"])
    yield made
    made.close()


def numbered(word, count):
    return [f"{word}{n}" for n in range(count)]


def parted(both):
    """Mirrored, failed over, and both sides were written to."""
    for topic in ("ord", "pay", "click"):
        both.write(both.here, topic, *numbered("old", 5))
    both.copy(both.flow, "ord", "pay", "click")
    # Nothing of these is ever mirrored.
    for topic in ("new", "odd"):
        both.create(both.here, topic)
        both.write(both.here, topic, *numbered("fresh", 4))
    both.write(both.here, "ord", "unmirrored")
    both.fail_over()
    for topic in ("ord", "pay", "click"):
        both.write(both.here, topic, *numbered("stray", 7))
        both.write(both.there, topic, *numbered("own", 3))


def wish(both, choices=CHOICES):
    return {both.name(topic): choice for topic, choice in choices.items()}


def assert_the_end(both):
    """What a failback of `parted` comes to, however often it was killed."""
    both.copy(both.back, *CHOICES)
    both.copy(both.flow, *CHOICES)
    both.copy(both.back, *CHOICES)
    old, own, stray = numbered("old", 5), numbered("own", 3), numbered("stray", 7)
    assert both.rows(both.there, "ord") == [*old, *own, "unmirrored", *stray]
    assert both.rows(both.here, "ord") == [*old, "unmirrored", *stray, *own]
    for topic in ("pay", "click"):
        assert both.rows(both.here, topic) == both.rows(both.there, topic) == [*old, *own]
    assert both.rows(both.there, "new") == both.rows(both.here, "new") == numbered("fresh", 4)
    assert both.rows(both.here, "odd") == both.rows(both.there, "odd") == []
    assert both.exported() == [
        *(("odd", n, f"fresh{n}") for n in range(4)),
        *(("pay", 5 + n, f"stray{n}") for n in range(7)),
    ]


def test_what_each_side_has_is_told_exactly_even_what_retention_took(both):
    parted(both)
    both.trim(both.here, "pay", 8)
    both.trim(both.here, "ord", 7)
    both.trim(both.there, "ord", 7)
    said = CliRunner().invoke(cli, ["failback", str(both.path), "--to", both.a, "--dry-run"])
    assert said.exit_code == 1, said.output
    text = re.sub(r"\s+", " ", said.stdout.replace(f"-{both.unique}", ""))
    a, b = both.a, both.b
    for line in (
        f"only on {a} 25 records",
        f"only on {b} 7 records, to be mirrored back",
        f"5 records that only {a} had: its retention has deleted them",
        f"2 records that only {b} had: its retention has deleted them",
        f"ord-0 6 records only on {a}; 1 record only on {b}; the logs part at offset 5 on {a},"
        f" 5 on {b}; 2 records before 7 are deleted: to be decided",
        f"pay-0 4 records only on {a}; 3 records only on {b}; the logs part at offset 5 on {a},"
        f" 5 on {b}; 3 records before 8 are deleted: to be decided",
        f"new-0 4 records only on {a}; {b} has nothing of it: to be decided",
        f"What {b} has deleted before it was mirrored back: ord-0 2 records from offset 5 on",
    ):
        assert line in text, text
    report = both.fail_back(wish(both))
    parts = {p.source: (p.here, p.there, p.begun) for p in report.plan.parted}
    assert parts == {
        both.p("ord"): (Tail(5, 7, 13, 6, 2), Tail(5, 7, 8, 1, 2), True),
        both.p("pay"): (Tail(5, 8, 12, 4, 3), Tail(5, 0, 8, 3), True),
        both.p("click"): (Tail(5, 0, 12, 7), Tail(5, 0, 8, 3), True),
        both.p("new"): (Tail(0, 0, 4, 4), Tail(0, 0, 0, 0), False),
        both.p("odd"): (Tail(0, 0, 4, 4), Tail(0, 0, 0, 0), False),
    }
    assert report.plan.totals == Totals(25, 7, 5, 2)
    # What is left is settled, and mirrored back.
    assert (report.kept, report.exported) == (6 + 4, 4 + 4)
    both.copy(both.back, *CHOICES)
    stray = numbered("stray", 7)[1:]
    assert both.rows(both.here, "ord") == [*stray, "own2"]
    assert both.rows(both.there, "ord") == ["own2", *stray]
    assert [offset for topic, offset, _ in both.exported() if topic == "pay"] == [8, 9, 10, 11]


def test_killed_in_the_middle_of_an_export_it_ends_the_same(both):
    killed_and_repeated(both, *KILLS[0])
    # A request of the one that was killed comes late: its second batch, of three records.
    before = both.exported()
    with both.side() as side:
        producer_id = side.handovers.last.facts["producer_id"]
    late = build([Record(0, 1, None, b"late")] * 3, producer_id=producer_id, sequence=3)
    log.append(both.there, TopicPartition(f"mm2-unmirrored.{both.a}.internal", 0), late)
    assert both.exported() == before


@pytest.mark.full
@pytest.mark.parametrize(("where", "calls"), KILLS[1:])
def test_killed_anywhere_it_ends_the_same(both, where, calls):
    killed_and_repeated(both, where, calls)


def killed_and_repeated(both, where, calls):
    parted(both)
    said = ",".join(f"{topic}={choice}" for topic, choice in wish(both).items())
    wait = "30" if where.endswith("_behind") else "0"
    both.killed(where, calls, "--unmirrored", said, "--wait", wait)
    report = both.fail_back(wish(both))
    assert (report.kept, report.exported) == (8 + 4, 7 + 4)
    assert report.rebuilt == tuple(sorted(map(both.name, ("click", "odd", "pay"))))
    assert_the_end(both)


def test_there_and_back_and_there_again_nothing_is_taken_for_what_it_is_not(both):
    """Each side holds what came from the other: that is not its own, and never doubled."""
    both.write(both.here, "ord", *numbered("old", 5))
    both.copy(both.flow, "ord")
    both.fail_over()
    both.write(both.here, "ord", "lost0")
    both.write(both.there, "ord", *numbered("b", 3))
    both.fail_back({"*": KEEP})
    both.copy(both.back, "ord")
    both.write(both.there, "ord", "b3", "b4")
    # B fails, with two records that A does not have; clients go on at A.
    both.fail_over(both.back)
    both.write(both.here, "ord", *numbered("a", 4))
    # As if B had failed before the failback to A was through.
    with both.side() as side:
        last = side.handovers.last
        side.handovers.note(replace(last, ended_ms=0))
    again = both.plan(flow=both.back, reverse=both.flow)
    [p] = again.parted
    assert (p.here.records, p.there.records) == (2, 4)
    both.fail_back({"*": KEEP}, flow=both.back, reverse=both.flow)
    with both.side() as side:
        assert side.handovers.last.aborted
    # And A once more, before anything was copied. Its log ends with what B has brought.
    assert both.rows(both.here, "ord")[-2:] == ["b3", "b4"]
    both.fail_over()
    both.write(both.here, "ord", "stray")
    both.write(both.there, "ord", "own")
    [p] = both.plan().parted
    assert (p.here.records, p.there.records) == (4 + 1, 1)
    both.fail_back({"*": KEEP})
    both.copy(both.back, "ord")
    both.assert_same_on_both_sides("ord")
    assert len(both.rows(both.here, "ord")) == 5 + 1 + 5 + 4 + 2


def test_topics_that_the_old_source_has_lost_are_made_anew(both, lab):
    for topic in ("ord", "pay"):
        both.write(both.here, topic, *numbered("old", 3))
    both.copy(both.flow, "ord", "pay")
    both.fail_over()
    for topic in ("ord", "pay"):
        both.write(both.there, topic, "own")
        both.delete(both.here, topic)
    both.create(both.here, "ord")
    both.write(both.here, "ord", "another")
    # Whoever went on there, and has not ended a transaction.
    producer = Producer(
        {"bootstrap.servers": lab["A"].bootstrap, "transactional.id": both.name("click")}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(both.name("click"), b"open", partition=0)
    assert producer.flush(60) == 0
    with pytest.raises(HandoverRefused) as caught:
        both.plan({"*": KEEP})
    assert caught.value.code == "failback.open-transaction"
    assert f"{both.p('click')} on {both.a} has an open transaction at offset 0" in str(caught.value)
    producer.abort_transaction()

    refusals = wait_for(lambda: settled(both)).refusals
    assert [r.code for r in refusals] == ["failback.must-rebuild"] * 2
    assert f"{both.p('ord')} on {both.a} cannot be kept: it was created anew" in str(refusals[0])
    assert f"{both.p('pay')} on {both.a} cannot be kept: it is gone" in str(refusals[1])
    assert f"--unmirrored '{both.name('pay')}=rebuild'" in refusals[1].hint
    choices = {both.name("ord"): EXPORT, "*": REBUILD}
    with both.failback(choices, wait_seconds=0.1) as failback, pytest.raises(HandoverFailed) as no:
        failback.run()
    assert no.value.code == "failback.no-mirror"
    assert f"no mirror runs {both.back.flow}" in str(no.value)
    report = both.fail_back(choices)
    # What was aborted, and its marker, are offsets, too.
    assert (report.exported, report.plan.totals) == (1, Totals(1 + 2, 2))
    both.copy(both.back, "ord", "pay")
    for topic in ("ord", "pay"):
        assert both.rows(both.here, topic) == [*numbered("old", 3), "own"]
    assert both.exported() == [("ord", 0, "another")]


@pytest.mark.full
def test_an_old_source_that_has_lost_what_was_mirrored_is_made_anew(module_lab_factory, tmp_path):
    """A's disk has lost the end of its logs; to one of them somebody has written since."""
    lab = module_lab_factory()
    both = Standby(lab, tmp_path, ["ord", "pay", "click"])
    try:
        for topic in ("ord", "pay", "click"):
            both.write(both.here, topic, *numbered("old", 10))
        both.copy(both.flow, "ord", "pay", "click")
        both.fail_over()
        for topic in ("ord", "pay", "click"):
            both.write(both.there, topic, "own")
        broker = lab["A"].broker(1)
        broker.kill()
        for topic in ("ord", "pay"):
            cut(lab["A"].folder / f"data-1/{both.name(topic)}-0", 6)
        broker.start()
        lab["A"].wait_ready()
        both.write(both.here, "pay", *numbered("stray", 9))
        plan = wait_for(lambda: settled(both))
        assert {p.source: (p.here, p.there, p.lost) for p in plan.parted} == {
            both.p("click"): (Tail(10, 0, 10, 0), Tail(10, 0, 11, 1), 0),
            both.p("ord"): (Tail(6, 0, 6, 0), Tail(6, 0, 11, 1), 4),
            both.p("pay"): (Tail(6, 0, 15, 9), Tail(6, 0, 11, 1), 4),
        }
        assert [r.code for r in plan.refusals] == ["failback.must-rebuild"] * 2
        assert "it has lost 4 records that were mirrored" in str(plan.refusals[0])
        report = both.fail_back({both.name("pay"): EXPORT, "*": REBUILD})
        assert report.rebuilt == tuple(sorted(map(both.name, ("ord", "pay"))))
        both.copy(both.back, "ord", "pay", "click")
        both.assert_same_on_both_sides("ord", "pay", "click")
        assert len(both.rows(both.here, "pay")) == 11
        assert [(at, value) for _, at, value in both.exported()] == [
            (6 + n, f"stray{n}") for n in range(9)
        ]
    finally:
        both.close()


def settled(both):
    """The plan, as soon as no transaction is open any more."""
    try:
        return both.plan({"*": KEEP})
    except HandoverRefused:
        return None


def test_topics_that_were_promoted_alone_are_failed_back_alone(both):
    for topic in ("ord", "pay"):
        both.write(both.here, topic, *numbered("old", 3))
    both.copy(both.flow, "ord", "pay")
    both.fail_over(topics=compile_pattern(both.name("ord")))
    both.write(both.there, "ord", "own")
    both.write(both.here, "ord", "stray")
    # That one, and what was never mirrored, go on as before.
    both.create(both.here, "new")
    for topic in ("pay", "new"):
        both.write(both.here, topic, "more")
    both.copy(both.flow, "pay")
    report = both.fail_back({"*": KEEP})
    assert report.plan.totals == Totals(1, 1)
    both.copy(both.back, "ord")
    both.copy(both.flow, "pay", "new")
    both.assert_same_on_both_sides("ord", "pay", "new")
    with both.side() as side, both.side(both.back) as back:
        assert side.holds.held.keys() == {Subject.topic(both.name("ord"))}
        assert Subject.topic(both.name("pay")) in back.holds.held
        assert Subject.topic(both.name("ord")) not in back.holds.held
    assert both.fail_back().repeated
