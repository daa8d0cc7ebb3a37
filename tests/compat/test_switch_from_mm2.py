"""The real MM2 mirrors, is killed or stopped, and Heliograph goes on; and the other way round."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
from confluent_kafka import Producer
from mirror_process import LiveProducer, MirrorProcess, client, create_topic, ends, wait_for

from heliograph.lab import MirrorMaker2
from heliograph.lab.cluster import SHORT_LIVED
from heliograph.lab.proof import read_all
from heliograph.ledger.codec import Place
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.connect_offsets import LatestRecords, decode_position
from heliograph.model import TopicPartition
from heliograph.wire import admin

PARTITIONS = 3
PER_BATCH = 50
FACTORS = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.",
           "config.storage.", "offset.storage.", "status.storage.")  # fmt: skip


@pytest.fixture(scope="module")
def clusters(module_lab_factory):
    lab = module_lab_factory()
    with client(lab["A"]) as source, client(lab["B"]) as target:
        yield lab, source, target


def properties(lab, topic):
    """One file, for both."""
    path = lab.folder / f"{topic}.properties"
    path.write_text(
        f"""clusters = A, B
A.bootstrap.servers = {lab["A"].bootstrap}
B.bootstrap.servers = {lab["B"].bootstrap}
A->B.enabled = true
A->B.topics = {topic}
B->A.emit.heartbeats.enabled = false
# A kill is to find a stored position that is behind.
B.offset.flush.interval.ms = 3000
"""
        + "".join(f"{name}replication.factor = 1\n" for name in FACTORS)
    )
    return path


@pytest.fixture
def mm2(clusters):
    """Starts MM2 on a topic."""
    started = []

    def start(topic):
        lab = clusters[0]
        name = f"mm2-{len(started)}"
        made = MirrorMaker2(
            properties(lab, topic), lab.folder, heap="512m", name=name, jvm_flags=SHORT_LIVED
        )
        started.append(made)
        made.start()
        return made

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def producing(clusters):
    """Writes to a topic until the test ends, or until it is stopped."""
    producers = []

    def start(topic):
        producer = LiveProducer(clusters[0]["A"].bootstrap, topic, PARTITIONS, 20, PER_BATCH)
        producers.append(producer)
        producer.start()
        return producer

    yield start
    for producer in producers:
        with suppress(RuntimeError):
            producer.stop()


def write_on(producer):
    """Something to mirror after the switch: a batch that was begun since, and is written."""
    written = producer.written
    wait_for(lambda: producer.written >= written + 2 * PER_BATCH, 120, "the producer goes on")


def gaps(lab, topic):
    """Transactions, every third aborted: markers, and records that only MM2 mirrors."""
    for index in range(PARTITIONS):
        producer = Producer(
            {"bootstrap.servers": lab["A"].bootstrap, "transactional.id": f"{topic}-{index}"}
        )
        producer.init_transactions(30)
        for n in range(12):
            producer.begin_transaction()
            for i in range(25):
                producer.produce(topic, b"t%d-%d-%d" % (index, n, i), None, index)
            producer.flush(30)
            producer.abort_transaction(30) if n % 3 == 2 else producer.commit_transaction(30)


def records(source, target, topic):
    """(source offset by value, target offsets by value, target values in order), per partition."""
    for index in range(PARTITIONS):
        here = list(read_all(source, TopicPartition(topic, index)))
        there = list(read_all(target, TopicPartition(f"A.{topic}", index)))
        yield {r.value: r.offset for r in here}, there


def require_switched(source, target, topic, before):
    """All that MM2 left is there as it was; then every source record once, in order.

    And every source offset is translated to its record on the target.
    """
    store = LedgerStore(target, "mm2-ledger.A.internal")
    store.refresh()
    here_id = source.metadata([topic]).topics[topic].topic_id
    there_id = target.metadata([f"A.{topic}"]).topics[f"A.{topic}"].topic_id
    for index, (offsets, there) in enumerate(records(source, target, topic)):
        left = before[index]
        assert there[: len(left)] == left
        mirrored = {r.value for r in left}
        last = max(offsets[value] for value in mirrored)
        # MM2 mirrors aborted records too; we do not.
        missing = [value for value, offset in offsets.items()
                   if offset <= last and value not in mirrored]  # fmt: skip
        assert missing == []
        ours = [r.value for r in there[len(left) :]]
        assert ours == [value for value, offset in offsets.items() if offset > last]
        assert ours, "nothing was mirrored after the switch"
        ledger = store.at(Place(topic, index, here_id, there_id))
        # If MM2 was killed before it had caught up with itself, its last records are only repeated.
        foremost = max(i for i, r in enumerate(left) if offsets[r.value] == last)
        copies = {r.value: r.offset for r in (*left[: foremost + 1], *there[len(left) :])}
        assert {o: ledger.to_target(o) for o in offsets.values()} == {
            o: copies[value] for value, o in offsets.items()
        }
        assert all(ledger.to_source(copies[value]) == o for value, o in offsets.items())


def grown(target, topic, by):
    """Becomes true when every partition of the remote topic is so much longer than now."""
    before = ends(target, f"A.{topic}")

    def check():
        now = ends(target, f"A.{topic}")
        return len(now) == PARTITIONS and all(now[i] >= before.get(i, 0) + by for i in now)

    return check


def caught_up(source, target, topic):
    wanted = sum(ends(source, topic).values())
    store = LedgerStore(target, "mm2-ledger.A.internal")
    store.refresh()
    here_id = source.metadata([topic]).topics[topic].topic_id
    there_id = target.metadata([f"A.{topic}"]).topics[f"A.{topic}"].topic_id
    positions = [
        store.at(Place(topic, index, here_id, there_id)).position(end)
        for index, end in ends(target, f"A.{topic}").items()
    ]
    return sum(positions) == wanted


@pytest.mark.full
def test_killed_in_mid_stream_twice_while_the_producer_goes_on(clusters, mm2, producing, tmp_path):
    lab, source, target = clusters
    topic = "killed"
    create_topic(source, topic, PARTITIONS)
    gaps(lab, topic)
    producer = producing(topic)
    # Killed once, so that MM2 itself repeats records; then again, behind its stored positions.
    for _ in range(2):
        more = grown(target, topic, 1500)
        process = mm2(topic)
        wait_for(more, 120, "MM2 mirrors")
        process.kill()
    before = [there for _, there in records(source, target, topic)]
    assert any(len({r.value for r in left}) < len(left) for left in before), "MM2 repeated nothing"
    mirror = MirrorProcess(properties(lab, topic), tmp_path / "heliograph.log")
    try:
        wait_for(grown(target, topic, 1000), 120, "Heliograph mirrors")
        producer.stop()
        wait_for(lambda: caught_up(source, target, topic), 120, "all is mirrored")
        code = mirror.stop()
        said = (tmp_path / "heliograph.log").read_text()
        assert code == 0, said
    finally:
        mirror.destroy()
    require_switched(source, target, topic, before)
    assert (
        "A->B: taking over 3 partition(s) of 1 topic(s) from MM2; nothing is copied again" in said
    )


def run(lab, topic, *args):
    return subprocess.run(
        [sys.executable, "-m", "heliograph", "run", str(properties(lab, topic)), "-o", "plain",
         *args],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.full
def test_stopped_in_order(clusters, mm2, producing):
    lab, source, target = clusters
    topic = "stopped"
    create_topic(source, topic, PARTITIONS)
    gaps(lab, topic)
    producer = producing(topic)
    more = grown(target, topic, 1000)
    process = mm2(topic)
    wait_for(more, 300, "MM2 mirrors")

    while (refused := run(lab, topic, "--once")).returncode == 2:
        # The machine stood still, and MM2 was not in its group for a moment: its writes are seen.
        assert "is MM2 still running?" in refused.stderr, refused.stdout + refused.stderr
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "MM2 still mirrors A->B: its group A-mm2 on B has members" in refused.stderr
    assert "stop MM2 with SIGTERM" in refused.stderr

    process.terminate()
    assert process.join(120)
    before = [there for _, there in records(source, target, topic)]
    write_on(producer)
    producer.stop()
    done = run(lab, topic, "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    require_switched(source, target, topic, before)


def stored_positions(target, topic):
    """By partition: the source offset behind which MM2 goes on."""
    records = LatestRecords(target, "mm2-offsets.A.internal")
    found = {}
    if records.refresh():
        for key, (value, _) in records.all.items():
            decoded = decode_position(key, value)
            if decoded is not None and decoded[1].topic == topic:
                found[decoded[1].partition] = decoded[2].offset
    return found


def delete_ledger(target):
    name = "mm2-ledger.A.internal"
    topic_id = target.metadata([name]).topics[name].topic_id
    assert admin.delete_topics(target, {topic_id: name}, 30_000) == {}
    wait_for(lambda: name not in target.metadata([name]).topics, 60, "the ledger is gone")


def heliograph_mirrors(clusters, topic, log_path, *, kill):
    """Until 1,000 more records of each partition are on the target and its positions are stored."""
    lab, _, target = clusters
    before = stored_positions(target, topic)
    mirror = MirrorProcess(properties(lab, topic), log_path)
    try:
        wait_for(grown(target, topic, 1000), 120, "Heliograph mirrors")

        def noted():
            now = stored_positions(target, topic)
            return len(now) == PARTITIONS and all(now[i] > before.get(i, -1) for i in now)

        wait_for(noted, 120, "Heliograph stores its positions")
        if not kill:
            assert mirror.stop() == 0, log_path.read_text()
    finally:
        mirror.destroy()


def offsets_of(source, topic):
    """The source offset of each value, by partition; values are unique."""
    return [
        {r.value: r.offset for r in read_all(source, TopicPartition(topic, index))}
        for index in range(PARTITIONS)
    ]


def written_since(target, topic, before):
    """The values behind what was there ``before``, by partition; and what is there now."""
    now = [list(read_all(target, TopicPartition(f"A.{topic}", i))) for i in range(PARTITIONS)]
    for left, there in zip(before, now, strict=True):
        assert there[: len(left)] == left, "what was there stays"
    return [[r.value for r in there[len(left) :]]
            for left, there in zip(before, now, strict=True)], now  # fmt: skip


def require_found(source, target, topic):
    """The ledger leads from every source record to a copy of it, and back."""
    store = LedgerStore(target, "mm2-ledger.A.internal")
    store.refresh()
    here_id = source.metadata([topic]).topics[topic].topic_id
    there_id = target.metadata([f"A.{topic}"]).topics[f"A.{topic}"].topic_id
    for index, (offsets, there) in enumerate(records(source, target, topic)):
        values = {r.offset: r.value for r in there}
        copied = set(values.values())
        mirrored = {value: offset for value, offset in offsets.items() if value in copied}
        ledger = store.at(Place(topic, index, here_id, there_id))
        places = {value: ledger.to_target(offset) for value, offset in mirrored.items()}
        assert {value: values.get(place) for value, place in places.items()} == {
            value: value for value in mirrored
        }
        assert {v: ledger.to_source(place) for v, place in places.items()} == mirrored


@pytest.mark.full
@pytest.mark.parametrize(
    ("kill", "keep"), [(False, True), (True, True), (True, False)],
    ids=["stopped", "killed", "killed-and-the-ledger-deleted"],
)  # fmt: skip
def test_mm2_goes_on_where_heliograph_stopped_and_heliograph_again(
    clusters, mm2, producing, tmp_path, kill, keep
):
    lab, source, target = clusters
    topic = f"back-{'killed' if kill else 'stopped'}-{'kept' if keep else 'deleted'}"
    create_topic(source, topic, PARTITIONS)
    gaps(lab, topic)
    producer = producing(topic)
    heliograph_mirrors(clusters, topic, tmp_path / "heliograph.log", kill=kill)
    ours = written_since(target, topic, [[]] * PARTITIONS)[1]
    stored = stored_positions(target, topic)

    more = grown(target, topic, 1000)
    process = mm2(topic)
    wait_for(more, 120, "MM2 mirrors")
    if kill:
        # Behind a position of its own: without one nobody can tell that it was there.
        def noted():
            now = stored_positions(target, topic)
            return all(now[i] > stored[i] for i in stored)

        wait_for(noted, 120, "MM2 stores its positions")
        process.kill()
    else:
        process.terminate()
        assert process.join(120)
    theirs, before = written_since(target, topic, ours)
    for index, offsets in enumerate(offsets_of(source, topic)):
        copied = [offsets[r.value] for r in ours[index]]
        assert copied == sorted(set(copied)), "each once, in order"
        assert stored[index] in copied, "the position is one of a record that is on the target"
        # MM2 goes on right behind the position: nothing is lost, and repeated only what is behind.
        found = [offsets[value] for value in theirs[index]]
        assert found == [o for o in offsets.values() if stored[index] < o <= found[-1]]
        print(f"{topic}-{index}: MM2 repeated {copied[-1] - stored[index]} record(s)")

    write_on(producer)
    producer.stop()
    if not keep:
        delete_ledger(target)
    done = run(lab, topic, "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "taking over 3 partition(s) of 1 topic(s) from MM2" in done.stdout + done.stderr
    last, _ = written_since(target, topic, before)
    for index, offsets in enumerate(offsets_of(source, topic)):
        reached = max(offsets[r.value] for r in before[index])
        assert last[index] == [value for value, o in offsets.items() if o > reached]
        assert stored_positions(target, topic)[index] == max(offsets.values())
    if keep:
        # Without the ledger, records far from the end are only found by bisection.
        require_found(source, target, topic)
