"""What a canary's reading says while probes come, wait and are lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.canary import LOST_SECONDS, CanaryReading

TIMES = st.floats(1.0, 1e9)
SPANS = st.floats(0.0, 1e5)


def test_before_the_first_probe_nothing_is_known():
    assert CanaryReading().latency(100.0) is None


@given(TIMES, SPANS, SPANS)
def test_a_probe_that_arrived_has_its_own_latency_however_long_ago_that_was(since, took, later):
    seen = CanaryReading().waits(since, 0.25).arrived(since + took)
    assert seen.latency(since + took + later) == seen.latency_seconds
    assert abs(seen.latency_seconds - took) < 1e-3
    assert seen.seen_at == since + took
    assert seen.skew_seconds == 0.25


@given(TIMES, SPANS, SPANS, SPANS)
def test_while_a_probe_waits_the_latency_only_grows(since, took, waits, more):
    reading = CanaryReading().waits(since, None).arrived(since + took)
    waiting = reading.waits(since + took, None)
    now = since + took + waits
    assert waiting.latency(now) >= reading.latency_seconds
    assert waiting.latency(now + more) >= waiting.latency(now)
    # And it comes back with the probe.
    back = waiting.arrived(now).waits(now, None).arrived(now + 0.001)
    assert back.latency(now + more) <= 0.01


def test_a_clock_that_was_set_back_makes_no_negative_latency():
    reading = CanaryReading().waits(100.0, None).arrived(90.0)
    assert reading.latency_seconds == 0.0


def test_an_unknown_stamp_keeps_the_skew_that_is_known():
    reading = replace(CanaryReading(), skew_seconds=1.5)
    assert reading.waits(1.0, None).skew_seconds == 1.5
    assert reading.waits(1.0, -2.0).skew_seconds == -2.0


def test_a_probe_is_overdue_until_it_arrives():
    waiting = replace(CanaryReading(), lost=1).waits(100.0, None)
    assert not waiting.overdue(100.0 + LOST_SECONDS)
    assert waiting.overdue(100.1 + LOST_SECONDS)
    # That one was lost stays in the count, and is over.
    assert not waiting.arrived(150.0).overdue(200.0)
