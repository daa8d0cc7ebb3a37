"""Calls beside the copy loop: in order, their outcomes in the loop's thread, none after its end."""

from __future__ import annotations

import threading

import pytest

from heliograph.copy import background
from heliograph.copy.background import Background, Lane
from heliograph.wire.errors import ConnectionFailed


@pytest.fixture
def calls():
    made = Background()
    yield made
    made.close()


def ignore(_):
    pass


def test_calls_of_a_lane_are_made_in_order_and_end_in_the_loops_thread(calls):
    lane, seen = Lane("test"), []
    for n in range(20):
        calls.run(
            lane,
            lambda n=n: (n, threading.current_thread()),
            lambda found: seen.append((*found, threading.current_thread())),
            ignore,
        )
    calls.wait(60)
    assert [n for n, _, _ in seen] == list(range(20))
    here = threading.current_thread()
    assert all(made is not here and ended is here for _, made, ended in seen)
    assert not calls.busy


def test_a_wire_error_is_an_outcome_and_anything_else_is_raised(calls):
    lane, failures = Lane("test"), []

    def refused():
        raise ConnectionFailed("away")

    def wrong():
        raise ZeroDivisionError

    calls.run(lane, refused, ignore, failures.append)
    calls.wait(60)
    assert [str(error) for error in failures] == ["away"]
    calls.run(lane, wrong, ignore, failures.append)
    with pytest.raises(ZeroDivisionError):
        calls.wait(60)


def test_a_call_that_hangs_holds_back_its_lane_only(calls):
    hanging, other, done, seen = Lane("test"), Lane("test"), threading.Event(), []
    calls.run(hanging, lambda: done.wait(60), ignore, ignore)
    calls.run(hanging, lambda: 1, seen.append, ignore)
    calls.run(other, lambda: 2, seen.append, ignore)
    calls.wait(60, until=lambda: bool(seen))
    assert seen == [2]
    done.set()
    calls.wait(60)
    assert seen == [2, 1]


def test_what_has_not_begun_when_the_lease_ends_is_never_made():
    ended = Background()
    lane, done, seen = Lane("test"), threading.Event(), []
    ended.run(lane, lambda: done.wait(60), seen.append, ignore)
    ended.run(lane, lambda: seen.append("late"), ignore, ignore)
    ended.close()
    done.set()
    following = Background()
    following.run(lane, lambda: "next lease", seen.append, ignore)
    following.wait(60)
    following.close()
    assert seen == ["next lease"]


def test_an_idle_thread_ends_and_the_next_call_has_another(calls, monkeypatch):
    monkeypatch.setattr(background, "_IDLE_SECONDS", 0.01)
    lane, threads = Lane("test"), []
    for _ in range(2):
        calls.run(lane, threading.current_thread, threads.append, ignore)
        calls.wait(60)
        threads[-1].join(60)
        assert not threads[-1].is_alive()
    assert threads[0] is not threads[1]
