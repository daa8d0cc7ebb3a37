"""Nothing stands still in silence: whatever hangs, it is said what stands still since when."""

import json
import signal
from datetime import datetime

import pytest
from confluent_kafka import Producer
from mirror_process import MirrorProcess, client, configure, create_topic, ends, wait_for

STALLED_AFTER = 8
PATIENCE = 240


class Watched:
    """A mirror of topic t, and all that it has said."""

    def __init__(self, lab, folder):
        self.lab = lab
        config = configure(
            lab,
            folder,
            "t",
            keys=[
                "heartbeats.replication.enabled = false",
                f"heliograph.stalled.after.seconds = {STALLED_AFTER}",
                "heliograph.lease.seconds = 5",
            ],
        )
        self.here, self.there = client(lab["A"]), client(lab["B"])
        create_topic(self.here, "t", 3)
        self.mirror = MirrorProcess(
            config, folder / "mirror.log", "-o", "json", "--status-interval", "1"
        )
        self._seen = 0

    def said(self, kind):
        """Lines of a kind, oldest first."""
        # The last one may be half written.
        lines = self.mirror.log_path.read_text().rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if line["event"] == kind]

    def statuses(self):
        """Of the flow that copies, oldest first: B->A has lines too, it emits heartbeats."""
        return [line for line in self.said("status") if line["flow"] == "A->B"]

    def write(self, count=100):
        producer = Producer({"bootstrap.servers": self.lab["A"].bootstrap, "log_level": 0})
        for n in range(count):
            producer.produce("t", b"%d" % n, partition=n % 3)
        assert producer.flush(60) == 0

    def await_step(self):
        wait_for(lambda: ends(self.there, "A.t") == ends(self.here, "t"), PATIENCE, "in step")
        self.await_states({"idle": 3})

    def await_states(self, states):
        wait_for(
            lambda: (said := self.statuses()) and said[-1]["states"] == states,
            PATIENCE, f"states {states}",
        )  # fmt: skip

    def await_events(self, code):
        """New events of a code, for each of the partitions; texts."""

        def new():
            return [e for e in self.said("partition")[self._seen :] if e["code"] == code]

        wait_for(lambda: {e["partition"] for e in new()} == {0, 1, 2}, PATIENCE, code)
        texts = [e["text"] for e in new()]
        self._seen = len(self.said("partition"))
        return texts

    def close(self):
        self.mirror.destroy()
        self.here.close()
        self.there.close()


@pytest.fixture(scope="module")
def watched(module_lab_factory, tmp_path_factory):
    made = Watched(module_lab_factory(), tmp_path_factory.mktemp("stalled"))
    yield made
    made.close()


@pytest.mark.full
def test_f31_a_source_that_hangs_is_told_and_so_is_its_return(watched):
    watched.write()
    watched.await_step()
    watched._seen = len(watched.said("partition"))
    broker = watched.lab["A"].brokers[0]
    broker.suspend()
    try:
        for text in watched.await_events("partition.stalled"):
            assert "not measured since then: cluster A does not answer" in text
        watched.await_states({"stalled": 3})
        status = watched.statuses()[-1]
        assert {t["state"] for t in status["troubled"]} == {"stalled"}
        told = datetime.fromisoformat(status["time"])
        for t in status["troubled"]:
            assert (told - datetime.fromisoformat(t["since"])).total_seconds() >= STALLED_AFTER
    finally:
        broker.resume()
    for text in watched.await_events("partition.recovered"):
        assert text.startswith("is mirrored again, after ")
    watched.write()
    watched.await_step()


@pytest.mark.full
def test_spark_that_hangs_is_told_and_so_is_its_return(watched):
    watched.write()
    watched.await_step()
    _, jvm, _ = watched.mirror.tree()
    watched._seen = len(watched.said("partition"))
    jvm.send_signal(signal.SIGSTOP)
    try:
        # Tasks go on until their leases end; what comes after that is copied by nobody.
        def told():
            watched.write(30)
            return any(e["code"] == "partition.stalled" for e in watched.said("partition")[seen:])

        seen = watched._seen
        wait_for(told, PATIENCE, "told")
        for text in watched.await_events("partition.stalled"):
            assert "record(s) can be read on A, from source offset " in text
            assert "no task was heard of since " in text
            assert "check that Spark is alive" in text
    finally:
        jvm.send_signal(signal.SIGCONT)
    watched.await_events("partition.recovered")
    watched.await_step()
    assert watched.mirror.running
