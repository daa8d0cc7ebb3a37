"""Drills on a schedule: when, by whom, and what is told of them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.errors import HeliographError
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind
from heliograph.service.drills import Drills
from heliograph.service.snapshot import CHECKPOINTS
from heliograph.wire.errors import ConnectionFailed

WEEK = 7 * 86_400


def config_of(**config) -> Any:
    return SimpleNamespace(drill_interval_seconds=WEEK, drill_report="", **config)


class World:
    """A ledger, an event bus, and a drill that is never really carried out."""

    def __init__(self, **config):
        self.all: list[Rehearsal] = []
        self.later: list[Rehearsal] = []
        self.events: list[Any] = []
        self.outcome: Any = True
        self.config = config_of(**config)
        ledger: Any = self
        self.drills = Drills(self.config, ledger, self.publish, drill=self.drill)

    def refresh(self):
        self.all = [*reversed(self.later), *self.all]
        self.later = []

    def publish(self, code, text, *, part, level):
        self.events.append((code, text, part, level))

    def add(self, seconds_ago, *, ok=True, kind=RehearsalKind.DRILL):
        at_ms = int((time.time() - seconds_ago) * 1000)
        text = "ready" if ok else "not ready: g is in use"
        self.later.append(Rehearsal(at_ms, kind, 9.0, 0, 0.0, ok, 3, "x", text))

    def drill(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        self.add(0, ok=self.outcome)
        return SimpleNamespace(ok=self.outcome, sentence=self.later[-1].text)


@pytest.fixture
def world():
    return World()


def test_it_is_due_by_the_drills_in_the_ledger_and_not_by_the_start_of_a_process(world):
    world.add(WEEK - 3600)
    world.drills.run()
    assert world.events == []
    world.later, world.all = [], []
    world.add(WEEK + 1)
    world.add(5, kind=RehearsalKind.FAILOVER)
    world.drills.run()
    assert world.events == [("flow.drill", "ready", CHECKPOINTS, 20)]
    again = World()
    again.later = [world.all[0]]
    again.drills.run()
    assert again.events == [], "another mirror has done it"


def test_the_first_one_is_due_at_once(world):
    world.drills.run()
    [(code, text, _, _)] = world.events
    assert (code, text) == ("flow.drill", "ready")
    assert list(world.drills.details()) == ["last drill"]


def test_the_job_fails_until_a_drill_is_well_whoever_does_it(world):
    world.outcome = False
    for _ in range(2):
        with pytest.raises(HeliographError, match=r"not ready: g is in use") as caught:
            world.drills.run()
    assert caught.value.code == "drill.not-ready"
    assert world.events == [("flow.drill", "not ready: g is in use", CHECKPOINTS, 30)], "once"
    world.add(-1)
    world.drills.run()


def test_a_drill_that_cannot_be_carried_out_is_told_and_tried_again(world):
    world.outcome = ConnectionFailed("B does not answer")
    with pytest.raises(ConnectionFailed):
        world.drills.run()
    assert world.events == [("flow.drill", "not carried out: B does not answer", CHECKPOINTS, 30)]
    world.outcome = True
    world.drills.run()
    assert len(world.events) == 2


def test_while_a_failover_holds_there_is_no_event_at_every_look(world):
    world.outcome = HandoverRefused("drill.handed-over", "it was failed over")
    with pytest.raises(HandoverRefused):
        world.drills.run()
    assert world.events == []


def test_the_report_is_left_in_a_folder(world, tmp_path, monkeypatch):
    monkeypatch.setattr("heliograph.service.drills.drill_page", lambda _: "<html>")
    world.config.drill_report = str(tmp_path)
    made: Any = SimpleNamespace(ok=True, sentence="ready", source="A", target="B",
                           began_ms=1_790_000_000_000)  # fmt: skip
    drills = Drills(world.config, world, world.publish, drill=lambda: made)
    drills.run()
    [left] = tmp_path.iterdir()
    assert left.name == "drill-A-B-20260921T141320Z.html"
    assert left.read_text() == "<html>\n"
    assert left.stat().st_mode & 0o777 == 0o600
    world.config.drill_report = str(tmp_path / "none")
    with pytest.raises(HeliographError, match="No such file"):
        drills.run()
