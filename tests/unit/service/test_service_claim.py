"""The claim of a running mirror: what it says, and when it lets leases be handed out."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.claims import flow_claim as claim_module
from heliograph.claims import ownership
from heliograph.claims.flow_claim import FlowClaim
from heliograph.claims.log import ClaimLog
from heliograph.claims.ownership import nobody
from heliograph.claims.process_identity import this_process
from heliograph.errors import StartError

# Where nobody falls silent, a machine may let a thread wait for as long as it likes.
PATIENT = {"LOOK_SECONDS": 0.05, "CONFIDENT_SECONDS": 450.0, "SILENT_SECONDS": 600.0}
# Where somebody does, it is long enough for a machine that lets a thread wait for a second.
QUICK = {"CONFIDENT_SECONDS": 1.5, "SILENT_SECONDS": 2.0}


class Topic:
    """A ledger topic in memory."""

    def __init__(self) -> None:
        self.records: list[tuple] = []


class TopicRegistry:
    """What `Registry` does, with that topic; ``away`` as when the target cannot be reached."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._position = 0
        self.claims = ClaimLog()
        self.away = threading.Event()

    def new_id(self) -> str:
        return uuid.uuid4().hex

    def refresh(self) -> None:
        if self.away.is_set():
            raise ConnectionRefusedError("no broker of cluster B answers")
        while self._position < len(self._topic.records):
            self.claims.apply(self._position, *self._topic.records[self._position])
            self._position += 1

    def lose(self) -> None:
        """What `Registry.forget` does when the topic was created anew."""
        self.claims = ClaimLog()
        self._position = 0

    def tell(self, claims, ended=()) -> None:
        if self.away.is_set():
            raise ConnectionRefusedError("no broker of cluster B answers")
        self._topic.records += [(c.id, c) for c in claims] + [(name, None) for name in ended]

    def close(self) -> None:
        pass


def _set(monkeypatch, times):
    for name, seconds in times.items():
        monkeypatch.setattr(ownership, name, seconds)
        monkeypatch.setattr(claim_module, name, seconds)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    _set(monkeypatch, PATIENT)


@pytest.fixture
def quick(patient, monkeypatch):
    _set(monkeypatch, QUICK)


@pytest.fixture
def said() -> Iterator[list[str]]:
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("heliograph.claims.flow_claim")
    handler, level = Handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def mirror():
    """Makes mirrors of one flow; each ends with the test."""
    topic, made = Topic(), []

    def make(silent=nobody) -> FlowClaim:
        registry: Any = TopicRegistry(topic)
        claim = FlowClaim("A->B", registry, registry, 30.0, lambda: made.append(None), silent)
        claim.begin()
        made.append(claim)
        return claim

    yield make
    for claim in made:
        if claim is not None:
            claim.end()


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_alone_it_begins_at_once_and_in_silence(mirror, said):
    one = mirror()
    assert one.holds
    assert not one.stands_by
    assert one.clear_from == 0.0
    assert said == []


def test_the_second_says_once_whom_it_stands_behind(mirror, said):
    mirror()
    two = mirror()
    time.sleep(0.3)
    assert two.stands_by
    assert not two.holds
    [line] = said
    here = this_process()
    assert line.startswith(
        f"A->B is being mirrored by another Heliograph: host {here.host}, pid {here.pid}, since "
    )
    assert "standing by, it takes over" in line


def test_it_takes_over_from_one_that_stops(mirror, said):
    one, two = mirror(), mirror()
    one.end()
    wait_for(lambda: two.holds)
    # It is said by the thread of its claim, after it holds.
    wait_for(lambda: said[-1].startswith("A->B: taking over from host "))
    assert said[-1].endswith(": it has ended")


def test_one_that_is_cut_off_hands_out_nothing_and_then_stands_by(quick, mirror, said):
    one, two = mirror(), mirror()
    began = time.time()
    one._registry.away.set()
    wait_for(lambda: not one.holds)
    wait_for(lambda: two.holds)
    assert not one.holds
    assert any("cannot see whether it is still this mirror's: no broker" in x for x in said)
    assert any(x.endswith(": it has fallen silent") for x in said)
    assert two.clear_from > began + QUICK["SILENT_SECONDS"] + 30
    one._registry.away.clear()
    wait_for(lambda: one.stands_by)
    wait_for(lambda: any("was taken over by another Heliograph" in x for x in said))
    assert not one.holds
    wait_for(lambda: two.holds)


def test_one_that_others_have_waited_for_is_not_waited_for_again(mirror, said, monkeypatch):
    """Its silence would be waited for for ten minutes here; and nobody looks in between."""
    one = mirror()
    one._registry.away.set()
    _set(monkeypatch, {"CONFIDENT_SECONDS": 0.5, "LOOK_SECONDS": 300.0})
    two = mirror(silent=lambda process: process == this_process())
    assert not two.holds
    wait_for(lambda: not two.stands_by)
    assert one._part.me.id in two._registry.claims.removed


def test_one_that_was_cut_off_alone_goes_on(quick, mirror, said):
    one = mirror()
    one._registry.away.set()
    wait_for(lambda: said)
    assert not one.holds
    one._registry.away.clear()
    wait_for(lambda: one.holds)
    wait_for(lambda: said[-1:] == ["A->B: still this mirror's; going on"])


def test_who_cannot_wait_is_told_whose_flow_it_is(mirror):
    mirror()
    two = mirror()
    with pytest.raises(StartError) as info:
        two.require(threading.Event())
    assert info.value.code == "flow.owned"
    assert info.value.exit_code == 3
    assert "flow A->B is being mirrored by another Heliograph: host " in str(info.value)
    assert info.value.hint


def test_who_cannot_wait_still_waits_for_one_that_may_be_dead(quick, mirror):
    one = mirror()
    one._registry.away.set()
    two = mirror()
    two.require(threading.Event())
    assert two.holds


def test_a_stop_ends_the_waiting(mirror):
    mirror()._registry.away.set()
    stopped = threading.Event()
    stopped.set()
    mirror().require(stopped)


def test_after_the_topic_lost_its_claims_the_log_that_is_there_decides(mirror, said):
    """The mirror that comes then sees nobody; the other one must see it."""
    one = mirror()
    one._registry._topic.records.clear()
    two = mirror()
    wait_for(lambda: two.holds)
    one._registry.lose()
    wait_for(lambda: one.stands_by)
    assert two.holds
    assert not one.holds


def test_a_mirror_that_is_alone_goes_on_after_the_topic_lost_its_claims(mirror, said):
    one = mirror()
    one._registry._topic.records.clear()
    one._registry.lose()
    wait_for(lambda: one._registry.claims.standing and one.holds)
    assert said == []
