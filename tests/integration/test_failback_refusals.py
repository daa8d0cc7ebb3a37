"""What a failback refuses, and in which words; saved plans. Of one pair that was failed over."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from failing_back import Standby

from heliograph.cli import cli
from heliograph.failover import failback as failback_steps
from heliograph.failover.exporting import export_tails
from heliograph.failover.failback import Failback
from heliograph.failover.failback_plan import FailbackWish, SavedPlan
from heliograph.failover.lock import one_at_a_time
from heliograph.failover.pair import both_at_a_time, nobody_the_other_way
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.steps import Phase
from heliograph.failover.unmirrored import Choice
from heliograph.ledger.handovers import Handover, Kind
from heliograph.ledger.holds import Subject

KEEP, EXPORT, REBUILD = Choice.KEEP, Choice.EXPORT, Choice.REBUILD


@pytest.fixture(scope="module")
def made(lab, tmp_path_factory):
    """Failed over; both sides have records of their own of three topics."""
    made = Standby(lab, tmp_path_factory.mktemp("failback"), ["ord", "pay", "click"])
    topics = ("ord", "pay", "click")
    for topic in topics:
        made.write(made.here, topic, *(f"old{n}" for n in range(3)))
    made.copy(made.flow, *topics)
    # The ledger of the other direction is there as soon as a mirror has looked after it.
    made.copy(made.back)
    made.fail_over()
    for topic in topics:
        made.write(made.here, topic, "stray0", "stray1")
        made.write(made.there, topic, "own")
    yield made
    made.close()


def codes(plan):
    return [r.code for r in plan.refusals]


def refused(made, *wish, **flows):
    with made.failback(*wish, **flows) as failback, pytest.raises(HandoverRefused) as caught:
        failback.run()
    return caught.value


@contextmanager
def last_handover(side):
    """An open failover is the last handover of a flow, for a while."""
    with side:
        before, began_ms = side.handovers.last, int(time.time() * 1000)
        begun = side.handovers.note(Handover("1", Kind.FAILOVER, "bob@ops", began_ms))
        try:
            yield
        finally:
            if before is not None:
                side.handovers.note(before)
            else:
                side.handovers.end(begun, aborted=True)


def test_nobody_has_said_what_becomes_of_what_only_one_side_has(made):
    refusal = refused(made, {made.name("pay"): EXPORT})
    assert refusal.code == "failback.unmirrored"
    assert f"only {made.a} has records of 2 topics: {made.name('click')} 2 records" in str(refusal)
    assert "--unmirrored 'orders=export,*=keep'" in refusal.hint


def test_an_open_failover_comes_first(made):
    with last_handover(made.side()):
        refusal = refused(made, {"*": KEEP})
    assert refusal.code == "failback.open-failover"
    assert "that bob@ops began" in str(refusal) and "goes on with it" in refusal.hint


def test_a_flow_that_was_resumed_since_is_failed_over_again_first(made):
    copying = Subject.part("copying")
    with made.side() as side:
        side.holds.lift([copying])
        refusal = refused(made, {"*": KEEP})
        side.refresh()
        side.holds.hold([copying], "me", "as before")
    assert refusal.code == "failback.resumed"
    assert f"{made.flow.flow} was resumed since it was failed over" in str(refusal)
    assert f"failover FILE --to {made.b} --force' stops it" in refusal.hint


def test_topics_of_the_target_that_are_others_now(made):
    with made.failback() as failback, pytest.raises(HandoverRefused) as caught:
        plan, look = failback.plan(), failback._look
        look.cuts(look.side.mirrored().of([]), plan.failover)
    assert caught.value.code == "failback.no-cut"
    assert "its topics on the target are others now" in str(caught.value)


def test_a_source_that_is_not_there_or_is_another_one(made):
    gone = made.but(made.flow, f"{made.a}.bootstrap.servers = localhost:1")
    refusal = refused(made, {"*": KEEP}, flow=gone)
    assert refusal.code == "failback.source-gone"
    assert f"{made.a} does not answer" in str(refusal)
    assert f"bring {made.a} back first" in refusal.hint
    other = made.but(made.flow, f"{made.a}.bootstrap.servers = {made.lab['B'].bootstrap}")
    refusal = refused(made, {"*": KEEP}, flow=other)
    assert refusal.code == "failback.other-cluster"
    assert f"{made.a} is another cluster now" in str(refusal)


def test_a_way_back_that_is_not_there(made):
    with Failback(made.flow, None, FailbackWish({"*": KEEP}), made.told.append) as failback:
        [refusal] = failback.plan().refusals
    assert refusal.code == "failback.no-reverse"
    assert f"{made.b}->{made.a}.enabled = true" in refusal.hint
    some = made.but(made.back, f"{made.b}->{made.a}.topics = {made.name('ord')}")
    [refusal] = made.plan({"*": KEEP}, reverse=some).refusals
    assert refusal.code == "failback.one-way"
    assert f"does not mirror {made.name('click')}, {made.name('pay')}" in str(refusal)


def test_the_other_direction_is_handed_over_meanwhile(made):
    """Whoever is first, and whichever way."""
    with one_at_a_time(made.back):
        assert refused(made, {"*": KEEP}).code == "handover.running"
    with both_at_a_time(made.flow, made.back):
        for config in (made.flow, made.back):
            with pytest.raises(HandoverRefused) as caught:
                made.fail_over(config)
            assert caught.value.code == "handover.running"
    with one_at_a_time(made.back), pytest.raises(HandoverRefused) as caught:
        made.fail_over()
    assert caught.value.code == "handover.running"
    with last_handover(made.side(made.back)):
        for refusal in (refused(made, {"*": KEEP}), failover_refused(made)):
            assert refusal.code == "handover.open"
            assert f"a failover of flow {made.back.flow}, begun by bob@ops" in str(refusal)

    # Whoever cannot look there goes on without it.
    gone = made.but(made.back, f"{made.a}.bootstrap.servers = localhost:1")
    for reverse in (None, gone):
        with nobody_the_other_way(reverse, 0):
            pass


def failover_refused(made):
    with pytest.raises(HandoverRefused) as caught:
        made.fail_over()
    return caught.value


def command(made, *arguments):
    return CliRunner().invoke(cli, ["failback", str(made.path), "--to", made.a, *arguments])


def test_a_saved_plan_is_refused_when_the_old_source_has_changed(made, tmp_path):
    file = tmp_path / "plan.json"
    saved = command(made, "--save-plan", str(file))
    assert saved.exit_code == 0, saved.output
    assert f"the plan is in {file}" in saved.stdout
    told = json.loads(file.read_text())
    assert (told["only_source"], told["only_target"]) == (6, 3)
    topics = {t["topic"]: t for t in told["topics"]}
    assert topics.keys() == {made.name(t) for t in ("ord", "pay", "click")}
    assert all(t["choice"] is None for t in topics.values())
    [ends] = topics[made.name("pay")]["partitions"]
    assert (ends["source_parts_at"], ends["source_end"], ends["only_source"]) == (3, 5, 2)
    assert (ends["target_parts_at"], ends["target_end"], ends["only_target"]) == (3, 4, 1)
    # As it is, it says nothing of what becomes of these records.
    plain = command(made, "--plan", str(file), "--dry-run")
    assert plain.exit_code == 1
    assert isinstance(plain.exception, HandoverRefused)
    assert plain.exception.code == "failback.unmirrored"
    for topic, choice in (("ord", "keep"), ("pay", "export"), ("click", "rebuild")):
        topics[made.name(topic)]["choice"] = choice
    file.write_text(json.dumps(told))
    looked = command(made, "--plan", str(file), "--dry-run", "-o", "json")
    assert looked.exit_code == 0, looked.output
    chosen = {t["topic"]: t["choice"] for t in json.loads(looked.stdout)["topics"]}
    assert chosen == {made.name("ord"): "keep", made.name("pay"): "export",
                      made.name("click"): "rebuild"}  # fmt: skip

    made.write(made.here, "ord", "stray2")
    old = command(made, "--plan", str(file), "--yes")
    assert old.exit_code == 1
    assert isinstance(old.exception, HandoverRefused)
    assert old.exception.code == "failback.plan-old"
    assert f"{made.p('ord')} on {made.a} ends at 6 now, by the plan it ends at 5" in str(
        old.exception
    )
    told["failover"]["id"] = "another"
    file.write_text(json.dumps(told))
    assert codes(made.plan({"*": KEEP}, SavedPlan.of(file))) == ["failback.plan-old"]
    with made.side() as side:
        assert side.handovers.last.kind is Kind.FAILOVER


def test_who_still_writes_to_the_old_source_is_named_and_then_all_is_settled(
    made, tmp_path, monkeypatch
):
    """While somebody looks, before it begins, before it is settled, before a topic is deleted."""
    choices = {made.name("ord"): KEEP, made.name("pay"): EXPORT, made.name("click"): REBUILD}
    export = export_tails

    def writing(step):
        def tell(told):
            if (told.step, told.phase) == (step, Phase.BEGUN):
                made.write(made.here, "pay", f"late at {step}")

        wish = FailbackWish(choices, None, 0.0)
        with (
            Failback(made.flow, made.back, wish, tell) as failback,
            pytest.raises(HandoverRefused) as caught,
        ):
            if step == "plan":
                # Somebody has looked at it, and thinks.
                failback.plan()
                made.write(made.here, "pay", "late at plan")
            failback.run()
        return caught.value

    def exporting(*arguments):
        answer = export(*arguments)
        made.write(made.here, "pay", "late at export")
        return answer

    for step in ("plan", "announce", "settle", "delete"):
        if step == "delete":
            monkeypatch.setattr(failback_steps, "export_tails", exporting)
        refusal = writing(step)
        assert refusal.code == "failback.writers", step
        assert f"somebody writes to {made.p('pay')} on {made.a}: 1 record" in str(refusal)
        assert "stop it" in refusal.hint
    monkeypatch.undo()
    assert made.rows(made.here, "pay")[-1] == "late at export"
    assert len(made.exported()) == 2 + 3

    # What was begun to be settled is not settled another way.
    refusal = refused(made, {"*": REBUILD})
    assert refusal.code == "failback.decided"
    assert f"{made.name('ord')} by 'keep', not by 'rebuild'" in str(refusal)

    # Nobody writes any more: the same plan goes on, with what came meanwhile.
    file = tmp_path / "plan.json"
    assert command(made, "--save-plan", str(file)).exit_code == 0
    done = command(made, "--plan", str(file), "--yes", "--wait", "0")
    assert done.exit_code == 0, done.output
    assert f"{made.a} is the standby of {made.b}" in done.stdout
    assert f"exported 6 records, in mm2-unmirrored.{made.a}.internal on {made.b}" in " ".join(
        done.stdout.split()
    )
    assert [value for _, _, value in made.exported()] == [
        "stray0", "stray1", "late at plan", "late at announce", "late at settle", "late at export",
    ]  # fmt: skip
    made.copy(made.back, "ord", "pay", "click")
    made.assert_same_on_both_sides("ord", "pay", "click")

    # Again: there is nothing to do, and nothing is done.
    with made.side() as side, made.side(made.back) as back:
        before = side.handovers.last, side.holds.held, back.holds.held, made.rows(made.there, "ord")
        again = command(made, "--yes")
        assert again.exit_code == 0, again.output
        assert f"Nothing to do: {made.a} is the standby of {made.b}" in again.stdout
        document = json.loads(command(made, "--yes", "-o", "json").stdout)
        assert document["repeated"] is True
        assert (document["kept"], document["exported"]) == (3, 6)
        side.refresh()
        back.refresh()
        after = side.handovers.last, side.holds.held, back.holds.held, made.rows(made.there, "ord")
        assert after == before
