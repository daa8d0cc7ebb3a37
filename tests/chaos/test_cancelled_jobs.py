"""Jobs of a real Spark are cancelled by other threads than those that run them."""

import threading
import time
from pathlib import Path

import pytest
from mirror_process import wait_for

from heliograph.spark import session
from heliograph.spark.rounds import tagged
from heliograph.spark.session import first_line

TAGS = ("one", "other")


def holder(begun):
    """What a task does; made here, because executors do not know this module."""

    def hold(rows):
        list(rows)
        Path(begun).touch()
        time.sleep(600)  # as a lease that nobody ends; nothing waits for it
        yield from ()

    return hold


@pytest.mark.full
def test_a_job_is_cancelled_by_its_tag_and_no_other(tmp_path):
    engine = session.start(None, tmp_path)
    ends = {}

    def run(tag):
        try:
            with tagged(engine.session, tag):
                begun = str(tmp_path / tag)
                rows = engine.session.range(1, numPartitions=1)
                rows.mapInArrow(holder(begun), "id long").collect()
        except Exception as error:
            ends[tag] = first_line(error)

    try:
        jobs = [threading.Thread(target=run, args=(tag,), daemon=True) for tag in TAGS]
        for job in jobs:
            job.start()
        wait_for(lambda: ends or all((tmp_path / job).exists() for job in TAGS), 240, "begun")
        assert not ends
        engine.cancel("one")
        wait_for(lambda: "one" in ends, 240, "it ends")
        # Rounds that were cancelled are told from those that failed by this word.
        assert "cancelled" in ends["one"]
        assert "other" not in ends
        engine.cancel("other")
        wait_for(lambda: "other" in ends, 240, "the other ends, too")
    finally:
        engine.stop()
