"""What Spark keeps on disk is lost: there is no position in it, so nothing else is."""

import shutil
import time

import pytest
from mirror_process import (
    LiveProducer,
    MirrorProcess,
    client,
    configure,
    create_topic,
    ends,
    wait_for,
)

from heliograph.lab.proof import compare

PARTITIONS = 2


def empty(folder):
    """As cleaners of temporary folders do; returns whether there was anything."""
    found = list(folder.iterdir())
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return bool(found)


@pytest.mark.full
def test_f08_spark_loses_its_files_under_a_running_mirror_and_before_a_restart(
    lab, topic_name, tmp_path, monkeypatch
):
    files = tmp_path / "spark"
    files.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(files))
    monkeypatch.setenv("TMPDIR", str(files))
    config = configure(lab, tmp_path, topic_name, keys=["heliograph.lease.seconds = 10"])
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, PARTITIONS)

    def copied():
        return sum(ends(b, f"A.{topic_name}").values())

    producer = LiveProducer(lab["A"].bootstrap, topic_name, PARTITIONS, batches_per_second=10)
    producer.start()
    mirror = MirrorProcess(config, tmp_path / "mirror.log")
    try:
        wait_for(lambda: copied() > 0, 180, "the mirror copies")
        assert empty(files), "this is where they are"
        # Leases of 10 s: rounds are planned without those files.
        deadline = time.monotonic() + 25
        while time.monotonic() < deadline:
            before = copied()
            wait_for(lambda before=before: copied() > before, 120, "copying goes on")
        said = mirror.log_path.read_text()
        assert "3 rounds in a row failed in Spark; starting another" in said
        assert "NoSuchFileException" in said, "why"
        mirror.kill("driver", None)
        empty(files)
        mirror = MirrorProcess(config, tmp_path / "mirror.log")
        # Workers of the first may go on for a moment.
        wait_for(mirror.lease_holders, 180, "a new one has workers")
        before = copied()
        wait_for(lambda: copied() > before, 120, "it goes on")
        producer.stop()
        wait_for(lambda: ends(a, topic_name) == ends(b, f"A.{topic_name}"), 120, "it catches up")
        proof = compare(a, b, topic_name, f"A.{topic_name}")
        assert proof.identical, proof
        assert proof.compared == producer.written * PARTITIONS
        assert mirror.stop() == 0
        assert "data-loss" not in mirror.log_path.read_text()
    finally:
        producer.stop()
        mirror.destroy()
        a.close()
        b.close()
