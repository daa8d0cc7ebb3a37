"""What executors count, and how it comes to the driver."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.copy.broker_link import throttle
from heliograph.copy.counts import Counts, Span, SpanValues


def span(*milliseconds):
    made = Span()
    for n in milliseconds:
        made.add(n)
    return made.values


def test_a_span_knows_least_greatest_last_and_mean():
    assert span(5, 2, 9, 4) == SpanValues(4, 2, 9, 20, 4)
    assert span(5, 2, 9, 4).mean == 5
    assert span(-3) == SpanValues(0, 0, 0, 0, 1), "clocks differ"
    assert span().mean == 0
    assert span(5).plus(span(2, 3)) == span(5, 2, 3)
    assert span(5).plus(span()) == span().plus(span(5)) == span(5)


def test_counts_are_added_up():
    one = Counts(1, 2, 3, 4, 5, 6, 7, 8, span(1), span(2))
    assert one.plus(Counts(records=10, throttled_ms=1, age=span(9))) == Counts(
        11, 2, 3, 4, 5, 6, 7, 9, span(1, 9), span(2)
    )
    assert Counts.sum([one, one]).passed == 6
    assert Counts.sum([]) == Counts()


def test_counts_travel_as_text_also_between_versions():
    made = Counts(1, 2, 3, 4, 5, 6, 7, 8, span(9, 10), span(11))
    assert Counts.decode(made.encode()) == made
    assert Counts().encode() == ""
    assert Counts.decode("") == Counts()
    assert Counts.decode("[1,2]") == Counts(1, 2), "from one that counts less"
    more = made.encode().removesuffix("]") + ",99]"
    assert Counts.decode(more) == made, "from one that counts more"
    for damaged in ("{}", "7", '["x"]', "[", "[null]"):
        with pytest.raises((ValueError, TypeError)):
            Counts.decode(damaged)


def test_a_pause_that_is_told_twice_is_counted_once(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    p: Any = SimpleNamespace(throttled_ms=0, throttled_until=0.0, throttled_by="")
    throttle(1, [p], 2.0, "producer_byte_rate")
    assert p.throttled_ms == 2000
    now += 0.5
    throttle(1, [p], 1.5, "producer_byte_rate")
    assert p.throttled_ms == 2000, "the rest of the same pause"
    throttle(1, [p], 2.5, "producer_byte_rate")
    assert p.throttled_ms == 3000
    now += 60
    throttle(1, [p], 1.0, "producer_byte_rate")
    assert p.throttled_ms == 4000
