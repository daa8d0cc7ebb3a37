"""Leases whose moments do not fit the clock of the machine that holds them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.clocks import out_of_time, set_back
from heliograph.model import DriverAddress
from heliograph.service.figures import PartitionLag

NOON = 1_790_000_000.0


def lease(starts_at, seconds=30.0, report_to=None):
    return SimpleNamespace(starts_at=starts_at, deadline=starts_at + seconds, report_to=report_to)


@given(waits=st.floats(-4.0, 34.0), seconds=st.floats(5.0, 600.0), noon=st.floats(1.7e9, 2e9))
def test_f30_a_lease_that_can_be_held_is_held(waits, seconds, noon):
    """From a second before it begins, for as long as it lasts, however late Spark is."""
    assert out_of_time(lease(noon, seconds), noon + min(waits, seconds)) is None


@given(seconds=st.floats(10.0, 1e8))
def test_f30_a_clock_that_is_behind_is_told(seconds):
    error = out_of_time(lease(NOON + seconds), NOON)
    assert error.code == "executor.clock"
    assert f"is {seconds:.0f} s or more behind the driver's" in str(error)
    assert "NTP" in str(error)


@given(seconds=st.floats(10.0, 1e8))
def test_f30_a_task_that_begins_after_its_lease_says_that_spark_was_late(seconds):
    """On another machine its clock may be the reason, too."""
    error = out_of_time(lease(NOON - 30 - seconds), NOON)
    assert error.code == "executor.late"
    assert f"started the task {seconds:.0f} s after its lease had ended" in str(error)
    assert "is ahead: synchronise the clocks" in str(error)


def test_f30_on_the_drivers_own_machine_no_clock_is_blamed():
    here = DriverAddress("token", path="/run/heliograph.sock")
    error = out_of_time(lease(NOON - 90, report_to=here), NOON)
    assert error.code == "executor.late"
    assert "overloaded" in str(error)
    assert "clock" not in str(error)


@pytest.mark.parametrize(
    ("retry_in", "expected"),
    [(-5, False), (0, False), (30, False), (89, False), (91, True), (3600, True)],
)
def test_f30_who_was_told_to_wait_before_the_clock_was_set_back_does_not(retry_in, expected):
    assert set_back(lease(NOON - 10), NOON, NOON + retry_in) is expected


def test_f30_what_waits_for_ever_goes_on_waiting():
    assert not set_back(lease(NOON), NOON, float("inf"))


@given(step=st.floats(-1e6, 1e6))
def test_f30_ages_are_never_negative(step):
    lag = PartitionLag(source_end=20, position=10)
    lag.ends.extend([(NOON, 10), (NOON + 1, 20)])
    assert lag.seconds(NOON + step) >= 0
