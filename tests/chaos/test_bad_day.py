"""The bad day from its first minute to its last: failover, both sides written to, failback."""

import pytest
from mirror_process import wait_for

from bad_day import BadDay, failovers_killed_after, heliograph, number
from heliograph.failover.failover import STEPS
from heliograph.model import TopicPartition

#: A thread of the load ends with the brokers that it writes to.
dying_load = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def failover(day, to, *args, check=True):
    return heliograph("failover", day.config, "--to", to, "--yes", "-o", "json", *args, check=check)


def lost(report):
    """The records of each partition that a report names."""
    return {p["partition"]: p["records"] for p in report["rpo"]["partitions"]}


@dying_load
@pytest.mark.parametrize(
    ("groups", "partitions"), [(12, 6), pytest.param(50, 20, marks=pytest.mark.full)]
)
def test_groups_go_on_exactly_and_failback_settles_what_each_side_has(
    module_lab_factory, tmp_path, groups, partitions
):
    topics = {"orders": partitions, "payments": 2, "clicks": 2}
    day = BadDay(module_lab_factory(), tmp_path, topics)
    others = [TopicPartition(t, i) for t in ("payments", "clicks") for i in range(2)]
    try:
        for p in others:
            day.write(day.a, p, [b"%d-%d" % (p.partition, n) for n in range(100)])
            day.await_mirrored(p.topic, 0)
        day.load.start()
        day.await_mirrored("orders", 500)
        before = day.some_groups(groups, "orders", 500)
        day.commit(day.a, before)
        day.await_checkpoints(day.b, "A", before)
        day.await_mirrored("payments", 100)
        day.await_mirrored("clicks", 100)

        # The source dies under load. The command is killed after each of its steps.
        day.kill_source_with_a_tail()
        failovers_killed_after(day.config, "B", STEPS)
        _, report = failover(day, "B")
        # The numbers of the records say where each group has to go on.
        assert report["source"]["answers"] is False
        assert [g["group"] for g in report["groups"] if not g["moved"]] == []
        assert len(report["groups"]) == groups
        there = day.committed(day.b, list(before))
        for p in day.of("orders"):
            records = day.records(day.b, p)
            for group, offsets in before.items():
                assert number(records[there[group][p]]) == offsets[p], (group, p)

        # Again: nothing is left to be done.
        code, again = failover(day, "B")
        assert again["repeated"] and again["rto_seconds"] == report["rto_seconds"]
        assert day.committed(day.b, list(before)) == there

        # The source is back: now it says exactly what was lost, and the mirror stays out.
        day.start(day.a)
        everything = [p for t in topics for p in day.of(t)]
        on_disk = {p: n for t in topics for p, n in day.lead(t).items()}
        assert on_disk.keys() == {str(p) for p in day.of("orders")}
        _, exact = failover(day, "B")
        assert exact["rpo"]["exact"] and lost(exact) == on_disk
        beyond = sum(on_disk.values())
        assert exact["rpo"]["records"] == beyond
        # The first report knew what the mirror had known, and said that there may be more.
        known = lost(report)
        assert not report["rpo"]["exact"]
        assert "what the source took after that is not known" in report["rpo"]["text"]
        assert all(records <= on_disk[p] for p, records in known.items()), (known, on_disk)
        assert exact["rpo"]["as_of"] > report["rpo"]["as_of"]
        # The mirror that rests looks on, and says so.
        wait_for(lambda: "[flow.diverged]" in day.log.read_text(), 120, "that A has more is told")

        # Both sides are written to; groups go on on B.
        for p in (TopicPartition("orders", 0), *others):
            day.write(day.a, p, [b"%d-stray%d" % (p.partition, n) for n in range(7)])
        for p in everything:
            day.write(day.b, p, [b"%d-new%d" % (p.partition, n) for n in range(5)])
        moved = {g: {p: offset + 3 for p, offset in o.items()} for g, o in there.items()}
        day.commit(day.b, moved)

        code, refused = heliograph("failback", day.config, "--to", "A", "--yes", check=False)
        assert code == 1 and "failback.unmirrored" in refused
        choices = "payments=export,clicks=rebuild,*=keep"
        _, back = heliograph("failback", day.config, "--to", "A", "--unmirrored", choices, "--yes",
                             "-o", "json")  # fmt: skip
        plan = {t["topic"]: t for t in back["plan"]["topics"]}
        assert back["plan"]["only_source"] == beyond + 5 * 7
        assert back["plan"]["only_target"] == 5 * len(everything)
        assert plan["payments"]["only_source"] == plan["clicks"]["only_source"] == 14
        assert back["kept"] == beyond + 7 and back["exported"] == 14
        assert sorted(back["rebuilt"]) == ["clicks", "payments"]
        exported = day.records(day.b, TopicPartition(back["exported_to"], 0))
        assert sorted(exported.values()) == sorted(
            b"%d-stray%d" % (p, n) for p in range(2) for n in range(7)
        )
        for p in everything:
            wait_for(lambda p=p: day.same_on_both(p), 120, f"{p} is the same on both sides")
        for p in others:
            assert not any(b"stray" in v for v in day.records(day.a, p).values())

        # A second failover right after, in the other direction.
        day.await_checkpoints(day.a, "B", moved)
        day.kill(day.b)
        _, second = failover(day, "A")
        assert [g["group"] for g in second["groups"] if not g["moved"]] == []
        here = day.committed(day.a, list(moved))
        for p in day.of("orders"):
            records = day.records(day.a, p)
            for group, offsets in before.items():
                assert number(records[here[group][p]]) == offsets[p] + 3, (group, p)
    finally:
        day.close()
