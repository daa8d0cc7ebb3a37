"""The event bus: numbered, kept for a while, handed to everybody, waiting for nobody."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from dataclasses import replace
from typing import Any

import pytest

from heliograph.control.scheduler import Scheduler
from heliograph.model import PartitionEvent, TopicPartition
from heliograph.service.events import EventBus, FlowEvent, FlowEvents, Notice, StartStep
from heliograph.service.notices import take_logs


def event(n=0, flow="A->B", at=1.0):
    return PartitionEvent(flow, TopicPartition("t", n), "source.data-loss", "gone", 0, 5, at)


def numbers(published):
    return [p.sequence for p in published]


def test_events_are_numbered_kept_and_counted_by_flow():
    bus = EventBus(history=3)
    bus.publish(event(0), event(1, "A->C"))
    bus.publish(FlowEvent("A->B", "flow.paused", "by hand"))
    bus.publish(Notice(logging.INFO, "not an event"))
    assert bus.sequence == 4
    assert numbers(bus.history()) == [2, 3, 4]
    assert numbers(bus.history(after=3)) == [4]
    assert bus.counts("A->B") == {"source.data-loss": 1, "flow.paused": 1}
    assert bus.counts("A->C") == {"source.data-loss": 1}
    assert bus.counts("") == {}


def test_what_is_told_live_and_in_a_receipt_is_one_event():
    bus = EventBus()
    events = FlowEvents(bus, "A->B")
    events.add([event(), event(at=2.5)])
    events.add([event()])
    bus.publish(event(flow="A->C"))
    assert events.counts == {"source.data-loss": 2}
    assert events.told_offsets == {"source.data-loss": 10}
    assert events.latest == [event(), event(at=2.5)]


def test_offsets_that_a_setting_lets_the_flow_go_on_past_are_counted_apart():
    bus = EventBus()
    events, policy = FlowEvents(bus, "A->B"), "heliograph.on.data.loss=continue"
    events.add([event(), replace(event(1), until=12, policy=policy), replace(event(), policy="x")])
    events.add([replace(event(1), until=12, policy=policy)])
    # Without offsets there is nothing to count.
    events.add([replace(event(2), first=-1, until=-1, policy=policy)])
    assert events.skipped == {policy: 12, "x": 5}
    assert events.told_offsets == {"source.data-loss": 22}
    assert bus.skipped("A->C") == {}


def test_subscribers_get_what_is_new_or_what_they_missed():
    bus = EventBus()
    bus.publish(event(0), event(1))
    with bus.subscribe() as late, bus.subscribe(after=1) as early, bus.subscribe(after=0) as first:
        bus.publish(event(2))
        assert numbers(late.get(0)) == [3]
        assert numbers(early.get(0)) == [2, 3]
        assert numbers(first.get(0)) == [1, 2, 3]
        assert late.get(0) == []
    bus.publish(event(3))
    assert list(late) == [], "closed"


def test_a_slow_subscriber_misses_the_oldest_and_can_tell():
    bus = EventBus()
    slow, quick = bus.subscribe(backlog=3), bus.subscribe(backlog=100)
    bus.publish(*(event(n) for n in range(10)))
    assert numbers(slow.get(0)) == [8, 9, 10]
    assert (slow.missed, quick.missed) == (7, 0)
    assert len(quick.get(0)) == 10


def test_a_callback_that_hangs_or_fails_holds_back_nobody():
    bus = EventBus()
    free, got = threading.Event(), []
    done = threading.Event()

    def call(published):
        assert free.wait(60)
        got.append(published.sequence)
        if published.sequence == 1:
            raise ValueError("its own fault")
        done.set()

    subscription = bus.call(call)
    bus.publish(event(0))
    bus.publish(event(1))
    assert got == []
    free.set()
    assert done.wait(60)
    subscription.close()
    assert got == [1, 2]


def test_iterating_ends_with_the_subscription():
    bus = EventBus()
    subscription = bus.subscribe()
    got = []
    thread = threading.Thread(target=lambda: got.extend(numbers(subscription)))
    thread.start()
    bus.publish(event())
    subscription.close()
    thread.join(60)
    assert not thread.is_alive()
    assert got == [1]


def test_a_step_of_the_start_says_what_is_awaited_and_what_came_of_it():
    bus = EventBus()
    with bus.step("cluster A", "A->B"):
        pass

    def refuse():
        raise OSError("refused\nand more")

    with pytest.raises(OSError, match="refused"), bus.step("Spark"):
        refuse()
    steps: list[Any] = [p.event for p in bus.history()]
    assert all(isinstance(s, StartStep) and s.at for s in steps)
    assert [(s.what, s.code, s.took_seconds is None, s.text) for s in steps] == [
        ("cluster A", "start.awaiting", True, ""),
        ("cluster A", "start.done", False, ""),
        ("Spark", "start.awaiting", True, ""),
        ("Spark", "start.failed", False, "refused"),
    ]


def test_a_job_that_fails_is_an_event_and_so_is_its_recovery():
    bus = EventBus()
    scheduler = Scheduler(tell=bus.job_ran)
    errors = deque(["away", "away", "still away", ""])
    done = threading.Event()

    def job():
        error = errors.popleft() if len(errors) > 1 else done.set()
        if error:
            raise OSError(error)

    scheduler.repeat(job, 0.01, "asking B", flow="A->B", longest_pause_seconds=0.01)
    with bus.subscribe(after=0) as events:
        got: list[Any] = []
        while len(got) < 3:
            got += [p.event for p in events.get(60)]
    scheduler.stop()
    assert [(e.flow, e.job, e.code, e.text) for e in got] == [
        ("A->B", "asking B", "job.failed", "away"),
        ("A->B", "asking B", "job.failed", "still away"),
        ("A->B", "asking B", "job.recovered", ""),
    ]


def test_events_are_logged_for_programs_that_only_have_logs(caplog):
    bus = EventBus()
    with caplog.at_level(logging.INFO, "heliograph"):
        bus.publish(*(event(n) for n in range(5)))
        FlowEvents(bus, "A->B").publish("flow.failed", "no way", level=logging.ERROR)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "A->B t-0 [source.data-loss]: gone\n"
                    "  the same (source.data-loss): t-1, t-2 and 2 more"),
        ("ERROR", "A->B [flow.failed]: no way"),
    ]  # fmt: skip


def test_logs_can_be_taken_as_notices_and_events_are_not_taken_twice():
    bus = EventBus()
    logger = logging.getLogger("heliograph.control.scheduler")
    with take_logs(bus):
        logger.warning("a broker is %s", "away")
        bus.publish(event())
        try:
            socket.inet_aton("no address")
        except OSError:
            logger.exception("asking B")
    logger.info("nobody takes this")
    assert [type(p.event) for p in bus.history()] == [Notice, PartitionEvent, Notice]
    found: list[Any] = [p.event for p in bus.history()]
    first, _, last = found
    assert (first.level, first.text) == (logging.WARNING, "a broker is away")
    assert (last.level, last.text) == (
        logging.ERROR,
        "asking B: OSError: illegal IP address string passed to inet_aton",
    )
