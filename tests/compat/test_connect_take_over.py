"""A real Connect cluster is stopped, ours goes on with its worker file, and the way back."""

from __future__ import annotations

import subprocess
from contextlib import suppress

import pytest
from confluent_kafka import Consumer
from connect_process import ConnectProcess, Rest, connector
from mirror_process import LiveProducer, client, create_topic, ends, wait_for

from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.jvm.java import find_java
from heliograph.lab import DEFAULT_KAFKA_VERSION
from heliograph.lab.connect_worker import ConnectWorker
from heliograph.lab.proof import read_all
from heliograph.mm2.connect_offsets import LatestRecords, decode_position
from heliograph.model import TopicPartition

#: Source connectors, each with a topic of its name and so many partitions.
PARTITIONS = {"runs": 3, "rests": 2, "stopped": 2}
PER_BATCH = 50
SECONDS = 300
#: A source connector as others write them: a number a tenth of a second.
ALIEN_SOURCE = """
package alien;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class AlienConnector extends SourceConnector {
    private Map<String, String> config;
    public String version() { return "1.0"; }
    public void start(Map<String, String> config) { this.config = config; }
    public Class<? extends Task> taskClass() { return AlienTask.class; }
    public List<Map<String, String>> taskConfigs(int most) { return List.of(config); }
    public void stop() { }
    public ConfigDef config() { return new ConfigDef(); }

    public static class AlienTask extends SourceTask {
        private long number;
        public String version() { return "1.0"; }
        public void start(Map<String, String> config) { }
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(100);
            byte[] value = Long.toString(number++).getBytes();
            return List.of(new SourceRecord(Map.of("a", "b"), Map.of("n", number), "alien",
                                            Schema.BYTES_SCHEMA, value));
        }
        public void stop() { }
    }
}
"""
ALIEN = {"connector.class": "alien.AlienConnector", "tasks.max": "1", "its.own": "kept"}


@pytest.fixture
def plugins(tmp_path):
    """A folder for ``plugin.path`` with a connector that is not MM2's."""
    folder = tmp_path / "plugins"
    (folder / "alien").mkdir(parents=True)
    text = tmp_path / "AlienConnector.java"
    text.write_text(ALIEN_SOURCE)
    jars = classpath(DEFAULT_KAFKA_VERSION, Artifact.CONNECT_MIRROR)
    subprocess.run(
        [find_java(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", jars,
         "-d", folder / "alien", text],
        check=True, timeout=SECONDS,
    )  # fmt: skip
    services = folder / "alien" / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.source.SourceConnector").write_text(
        ALIEN["connector.class"]
    )
    return folder


@pytest.fixture
def clusters(lab_factory):
    lab = lab_factory()
    with client(lab["A"]) as source, client(lab["B"]) as target:
        yield lab, source, target


@pytest.fixture
def producers(clusters):
    """One for each topic; they write until the test ends, or until they are stopped."""
    lab, source, _ = clusters
    made = {}
    for topic, partitions in PARTITIONS.items():
        create_topic(source, topic, partitions)
        made[topic] = LiveProducer(lab["A"].bootstrap, topic, partitions, 5, PER_BATCH)
        made[topic].start()
    yield made
    for producer in made.values():
        with suppress(RuntimeError):
            producer.stop()


def values(cluster, topic, partitions):
    """What is in a topic, by partition."""
    return [
        [r.value for r in read_all(cluster, TopicPartition(topic, index))]
        for index in range(partitions)
    ]


def here(clusters, topic):
    return values(clusters[1], topic, PARTITIONS[topic])


def there(clusters, topic):
    return values(clusters[2], f"A.{topic}", PARTITIONS[topic])


def await_more(clusters, topic, by=500):
    """Every partition of a remote topic grows by so many records."""
    target, count = clusters[2], PARTITIONS[topic]
    before = ends(target, f"A.{topic}")

    def grown():
        now = ends(target, f"A.{topic}")
        return len(now) == count and all(now[i] >= before.get(i, 0) + by for i in now)

    wait_for(grown, SECONDS, f"{topic} is copied")


def await_all(clusters, topic):
    """The last record of each partition of the source is on the target; nobody writes any more."""
    last = [each[-1] for each in here(clusters, topic)]

    def complete():
        return all(v in each for v, each in zip(last, there(clusters, topic), strict=True))

    wait_for(complete, SECONDS, f"all of {topic} is copied")


def positions(target, offsets_topic, name):
    """{(topic, partition): the last source offset that is copied}, as Connect's topic has it."""
    records = LatestRecords(target, offsets_topic)
    assert records.refresh()
    found = {}
    for key, (value, _) in records.all.items():
        decoded = decode_position(key, value)
        if decoded is not None and key.startswith(f'["{name}",'.encode()):
            found[decoded[1]] = decoded[2].offset
    return found


def consume_some(lab):
    """A group that checkpoints are about."""
    consumer = Consumer({
        "bootstrap.servers": lab["A"].bootstrap, "group.id": "readers",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe(["runs"])
    read = consumer.consume(100, SECONDS)
    assert read
    consumer.commit(asynchronous=False)
    consumer.close()


def make_connectors(clusters, rest):
    """Five of them: one is paused, one stopped, one not MM2's."""
    lab = clusters[0]
    for name in PARTITIONS:
        rest.create(name, connector(lab, "MirrorSource", topics=name, tasks_max="2"))
    checkpoints = connector(
        lab, "MirrorCheckpoint", topics="runs", groups="readers",
        **{"emit.checkpoints.interval.seconds": "1", "refresh.groups.interval.seconds": "5"},
    )  # fmt: skip
    rest.create("checkpoints", checkpoints)
    rest.create("alien", ALIEN)
    for name in PARTITIONS:
        await_more(clusters, name)
    rest.must("PUT", "/connectors/rests/pause")
    rest.must("PUT", "/connectors/stopped/stop")
    rest.await_state("runs", "RUNNING", 2)
    rest.await_state("rests", "PAUSED", 2)
    rest.await_state("stopped", "STOPPED", 0)
    rest.await_state("checkpoints", "RUNNING", 1)
    rest.await_state("alien", "RUNNING", 1)
    wait_for(lambda: ends(clusters[2], "alien")[0] > 0, SECONDS, "the alien writes")


def require_stopped(process):
    process.terminate()
    assert process.join(SECONDS), "the real worker stops"


@pytest.mark.full
def test_ours_goes_on_with_five_connectors_and_the_real_worker_again(
    clusters, producers, plugins, tmp_path
):
    lab, _, target = clusters
    settings = {"plugin.path": str(plugins)}
    worker = ConnectWorker(lab["B"].client_properties(), tmp_path, settings)
    rest = Rest(worker.url)
    worker.start()
    ours = None
    try:
        worker.wait_ready(SECONDS)
        create_topic(target, "alien", 1)
        consume_some(lab)
        make_connectors(clusters, rest)
        names = sorted(rest.must("GET", "/connectors"))
        configs = {name: rest.config(name) for name in names}
        before = rest.states()
        await_more(clusters, "runs")
        require_stopped(worker)
        left = {topic: there(clusters, topic) for topic in PARTITIONS}
        aliens = ends(target, "alien")

        ours = ConnectProcess(worker, tmp_path / "ours.log")
        ours.wait_ready()
        rest.await_state("runs", "RUNNING", 2)
        rest.await_state("rests", "PAUSED", 2)
        rest.await_state("stopped", "STOPPED", 0)
        rest.await_state("checkpoints", "RUNNING", 1)
        alien = rest.await_state("alien", "FAILED")
        assert "not a connector of MirrorMaker 2" in alien["connector"]["trace"]
        assert ALIEN["connector.class"] in alien["connector"]["trace"]
        assert sorted(rest.must("GET", "/connectors")) == names
        assert {name: rest.config(name) for name in names} == configs
        await_more(clusters, "runs")
        require_states(rest, before)
        for topic in ("rests", "stopped"):
            assert there(clusters, topic) == left[topic], "it does not copy"
        assert ends(target, "alien") == aliens

        # One that was paused goes on where the real worker left it, and rests again.
        rest.must("PUT", "/connectors/rests/resume")
        await_more(clusters, "rests")
        rest.await_state("rests", "RUNNING", 2)
        rest.must("PUT", "/connectors/rests/pause")
        rest.await_state("rests", "PAUSED", 2)
        rested = there(clusters, "rests")
        await_more(clusters, "runs")
        assert there(clusters, "rests") == rested, "it copies though it is paused"
        assert ours.stop() == 0, ours.log_path.read_text()
        for topic in ("runs", "rests"):
            require_prefix(clusters, topic, left[topic])
        assert there(clusters, "stopped") == left["stopped"]
        left = {topic: there(clusters, topic) for topic in PARTITIONS}
        stored = {topic: positions(target, "connect-offsets", topic) for topic in PARTITIONS}

        worker.start()
        worker.wait_ready(SECONDS)
        rest.await_state("runs", "RUNNING", 2)
        rest.await_state("rests", "PAUSED", 2)
        rest.await_state("stopped", "STOPPED", 0)
        rest.await_state("checkpoints", "RUNNING", 1)
        rest.await_state("alien", "RUNNING", 1)
        assert {name: rest.config(name) for name in names} == configs
        await_more(clusters, "runs")
        wait_for(lambda: ends(target, "alien") != aliens, SECONDS, "the alien goes on")
        for topic in ("rests", "stopped"):
            assert there(clusters, topic) == left[topic], "it does not copy"
        rest.must("PUT", "/connectors/rests/resume")
        rest.must("PUT", "/connectors/stopped/resume")
        for topic, producer in producers.items():
            producer.stop()
            await_all(clusters, topic)
        require_stopped(worker)
        for topic in PARTITIONS:
            require_went_on(clusters, topic, left[topic], stored[topic])
    finally:
        worker.kill()
        if ours is not None:
            ours.destroy()


def require_states(rest, before):
    """The same but for the connector that cannot run here."""
    now = rest.states()
    assert now.pop("alien")[0] == "FAILED"
    assert now == {name: state for name, state in before.items() if name != "alien"}


def require_prefix(clusters, topic, left):
    """What was there stays; all in all the target has the source's records, each once, in order."""
    pairs = zip(here(clusters, topic), there(clusters, topic), left, strict=True)
    for index, (source, target, before) in enumerate(pairs):
        assert target[: len(before)] == before
        assert target == source[: len(target)], f"{topic}-{index}: lost or twice"
        assert len(target) > len(before)
        print(f"{topic}-{index}: {len(before)} records by Connect, {len(target)} after ours")


def require_went_on(clusters, topic, left, stored):
    """MM2 went on right behind the stored positions: nothing lost, repeated only what is behind."""
    pairs = zip(here(clusters, topic), there(clusters, topic), left, strict=True)
    for index, (source, target, before) in enumerate(pairs):
        assert target[: len(before)] == before, "what was there stays"
        # Offsets of the source are the places of its records: nothing was deleted or aborted.
        position = stored[TopicPartition(topic, index)] + 1
        assert 0 < position <= len(before), "the position is one of a record on the target"
        assert target[len(before) :] == source[position:]
        print(f"{topic}-{index}: Connect repeated {len(before) - position} of {len(target)}")
