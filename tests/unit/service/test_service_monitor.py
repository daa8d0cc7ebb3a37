"""Lag in seconds: how long ago the source's end first passed what is mirrored."""

from heliograph.service.figures import PartitionLag


def lag(position: int, *ends: tuple[float, int]) -> PartitionLag:
    made = PartitionLag(source_end=ends[-1][1], position=position)
    made.ends.extend(ends)
    return made


def test_in_step_is_zero():
    assert lag(10, (100.0, 10)).seconds(160.0) == 0.0
    assert lag(10, (100.0, 10)).records == 0


def test_the_age_is_that_of_the_first_end_beyond_the_position():
    behind = lag(15, (100.0, 10), (102.0, 20), (104.0, 30))
    assert behind.records == 15
    assert behind.seconds(105.0) == 3.0


def test_the_age_of_a_backlog_from_before_we_watched_is_that_of_its_next_record():
    backlog = lag(0, (100.0, 1000))
    assert backlog.seconds(107.0) is None, "not since the mirror started"
    backlog.oldest = (0, 81.0)
    assert backlog.seconds(107.0) == 26.0
    backlog.position = 400
    assert backlog.seconds(107.0) == 26.0, "at most, until the timestamp of 400 is known"
    backlog.position = 1000
    assert backlog.seconds(107.0) == 0.0
    backlog.oldest, backlog.position = (500, 90.0), 300
    assert backlog.seconds(107.0) is None


def test_a_target_ahead_of_the_measured_source_is_not_behind():
    assert lag(12, (100.0, 10)).records == 0


def test_the_source_rate_is_its_growth():
    assert lag(0, (100.0, 0), (110.0, 5000)).source_rate == 500.0
    assert lag(0, (100.0, 0)).source_rate == 0.0
