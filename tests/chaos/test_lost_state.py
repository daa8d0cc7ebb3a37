"""What Spark keeps on disk is lost: there is no position in it, so nothing else is."""

import shutil
import time

import pytest
from mirror_process import LiveProducer, MirrorProcess, client, create_topic, ends, wait_for

from heliograph.lab.proof import compare

PARTITIONS = 2


@pytest.mark.full
@pytest.mark.timeout(600)
def test_f08_spark_loses_its_files_under_a_running_mirror_and_before_a_restart(
    lab, topic_name, tmp_path, monkeypatch
):
    files = tmp_path / "spark"
    files.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(files))
    monkeypatch.setenv("TMPDIR", str(files))
    config = tmp_path / "mm2.properties"
    config.write_text(f"""
        clusters = A, B
        A.bootstrap.servers = {lab["A"].bootstrap}
        B.bootstrap.servers = {lab["B"].bootstrap}
        A->B.enabled = true
        A->B.topics = {topic_name}
        replication.factor = 1
        offset-syncs.topic.replication.factor = 1
        heartbeats.topic.replication.factor = 1
        checkpoints.topic.replication.factor = 1
        heliograph.lease.seconds = 3
    """)
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, PARTITIONS)

    def copied():
        return sum(ends(b, f"A.{topic_name}").values())

    producer = LiveProducer(lab["A"].bootstrap, topic_name, PARTITIONS, batches_per_second=10)
    producer.start()
    mirror = MirrorProcess(config, tmp_path / "mirror.log")
    try:
        wait_for(lambda: copied() > 0, 180, "the mirror copies")
        assert list(files.iterdir()), "this is where they are"
        shutil.rmtree(files)
        # Leases of 3 s: several rounds are planned without those files.
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            before = copied()
            wait_for(lambda before=before: copied() > before, 90, "copying goes on")
        mirror.kill("driver", None)
        files.mkdir(exist_ok=True)
        mirror = MirrorProcess(config, tmp_path / "mirror.log")
        before = copied()
        wait_for(lambda: copied() > before, 180, "a new one goes on")
        producer.stop()
        wait_for(lambda: ends(a, topic_name) == ends(b, f"A.{topic_name}"), 90, "it catches up")
        proof = compare(a, b, topic_name, f"A.{topic_name}")
        assert proof.identical, proof
        assert proof.compared == producer.written * PARTITIONS
        assert mirror.stop()[0] == 0
        assert "data loss" not in mirror.log_path.read_text()
    finally:
        producer.stop()
        mirror.destroy()
        a.close()
        b.close()
