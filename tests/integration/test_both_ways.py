"""Two flows in opposite directions under the same topic names: nothing comes back."""

from __future__ import annotations

import time
import uuid
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from driving import Driving
from mirroring import settings, wait_for
from verifying import InProcess

from heliograph.client.offsets import FlowOffsets
from heliograph.config import load
from heliograph.control.groups.checkpoints import CheckpointEmitter
from heliograph.control.groups.starts import GroupStarts
from heliograph.control.groups.translated import GroupTranslation
from heliograph.control.moves import set_positions
from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.lab.proof import read_all
from heliograph.mm2.checkpoints import CheckpointLog
from heliograph.model import Lease, PartitionState, TopicPartition
from heliograph.policy import policy_from
from heliograph.service.events import EventBus
from heliograph.service.flow import FlowRuntime
from heliograph.service.monitor import FlowMonitor
from heliograph.service.snapshot import FlowState, Life
from heliograph.service.verification import Verification
from heliograph.verify.views import Choice
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.groups import Committed, GroupClient


class Way:
    """One direction, as a driver opens it; leases are held here."""

    def __init__(self, both, source, target):
        self.both = both
        self.config = both.config(source, target)
        self.source, self.target = both.logs[source], both.logs[target]
        self.runtime = None

    def open(self):
        links.close()
        self.runtime = FlowRuntime(self.config)
        self.runtime.open_target()
        self.runtime.open()
        wait_for(lambda: self.runtime.refresh_topics() or self.runtime.plan.topics)
        return self

    def close(self):
        if self.runtime is not None:
            self.runtime.close()
        self.runtime = None

    def copy(self):
        """A lease on all that is there, until it is copied; returns how many records that were."""
        runtime, p = self.runtime, self.both.partition
        runtime.refresh_topics()
        until = self.source.end()
        leased = runtime.leased(p, until)
        object.__setattr__(leased, "move", runtime.moves().get(p))
        now = time.time()
        [receipt] = CopyLoop(Lease(runtime.prepared, (leased,), now, now + 60)).run()
        assert not receipt.error
        assert receipt.source_position == until
        return receipt.records

    def lag(self):
        monitor = FlowMonitor(self.runtime, EventBus())
        monitor.measure()
        return monitor.snapshot(Life(FlowState.RUNNING), {}).lag_records

    def verify(self):
        engine: Any = InProcess()
        verification = Verification(self.config, Choice(complete=True), engine)
        return verification.run(lambda _: None, lambda *_: None)


class Log:
    """The topic on one cluster."""

    def __init__(self, both, alias, cluster):
        self.both, self.alias = both, alias
        self.client = ClusterClient(settings(both.lab, cluster), "test")
        self._bootstrap = both.lab[cluster].bootstrap

    def create(self):
        new = admin.NewTopic(self.both.topic, 1, 1, {"retention.ms": "-1"})
        assert admin.create_topics(self.client, [new], 30_000) == {}
        wait_for(lambda: self.client.metadata([self.both.topic]).leader(self.both.topic, 0) >= 0)

    def end(self, *, committed=True):
        metadata, p = self.client.metadata([self.both.topic]), self.both.partition
        ends = admin.list_offsets(
            self.client, metadata, [p], admin.LATEST, read_committed=committed
        )
        return ends[p]

    def write(self, number, *, transaction=False):
        config = {"bootstrap.servers": self._bootstrap, "linger.ms": 5}
        if transaction:
            config["transactional.id"] = uuid.uuid4().hex
        producer = Producer(config)
        if transaction:
            producer.init_transactions()
            producer.begin_transaction()
        for _ in range(number):
            value = f"{self.alias[0]}-{next(self.both.numbers)}"
            producer.produce(self.both.topic, value, b"key", 0)
            self.both.written.append(value)
        if transaction:
            producer.commit_transaction()
        assert producer.flush(60) == 0
        # Markers are written a moment later.
        wait_for(lambda: self.end() == self.end(committed=False))

    def rows(self):
        return [(r.offset, r.value.decode()) for r in read_all(self.client, self.both.partition)]


class Both:
    """A topic on both clusters of the lab, under aliases that no other test has."""

    def __init__(self, lab, folder, topic, *keys):
        self.lab, self.topic, self._folder, self._keys = lab, topic, folder, keys
        self.partition = TopicPartition(topic, 0)
        self.numbers, self.written = count(), []
        unique = uuid.uuid4().hex[:6]
        self._a, self._b = f"A{unique}", f"B{unique}"
        self.logs = {self._a: Log(self, self._a, "A"), self._b: Log(self, self._b, "B")}
        self.a, self.b = self.logs.values()
        for log in self.logs.values():
            log.create()
        self.ab, self.ba = Way(self, self._a, self._b), Way(self, self._b, self._a)

    def config(self, source, target):
        a, b = self._a, self._b
        path = self._folder / "mm2.properties"
        path.write_text("\n".join([
            f"clusters = {a}, {b}",
            f"{a}.bootstrap.servers = {self.lab['A'].bootstrap}",
            f"{b}.bootstrap.servers = {self.lab['B'].bootstrap}",
            f"{a}->{b}.enabled = true", f"{b}->{a}.enabled = true",
            f"topics = {self.topic}", "replication.factor = 1",
            "replication.policy.class ="
            " org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            "emit.heartbeats.enabled = false", "heartbeats.replication.enabled = false",
            "offset-syncs.topic.replication.factor = 1",
            "checkpoints.topic.replication.factor = 1",
            "heliograph.ledger.topic.replication.factor = 1", *self._keys,
        ]))  # fmt: skip
        return next(
            f for f in load(path).flows if (f.flow.source, f.flow.target) == (source, target)
        )

    def close(self):
        for way in (self.ab, self.ba):
            way.close()
        for log in self.logs.values():
            log.client.close()

    # -- what must hold -----------------------------------------------------------------------

    def assert_every_record_is_once_on_both_sides(self):
        for log in self.logs.values():
            assert sorted(v for _, v in log.rows()) == sorted(self.written)

    def assert_the_same_offsets(self):
        assert self.a.rows() == self.b.rows()

    def assert_groups_go_on(self, *, exactly):
        """Every offset of either side, translated to the other by each of the two flows."""
        with FlowOffsets(self.ab.config) as ab, FlowOffsets(self.ba.config) as ba:
            for here, there, translators in (
                (self.a, self.b, (ab.to_target, ba.to_source)),
                (self.b, self.a, (ba.to_target, ab.to_source)),
            ):
                mine, theirs = here.rows(), there.rows()
                for offset in range(here.end() + 1):
                    read = {v for o, v in mine if o < offset}
                    unread = next((o for o, v in theirs if v not in read), None)
                    for translate in translators:
                        answer = translate(self.topic, 0, offset).offset
                        after = next((o for o, _ in theirs if o >= answer), None)
                        assert unread is None or answer <= unread, (offset, answer, unread)
                        assert not exactly or after == unread, (offset, answer, unread)


@pytest.fixture
def both(request, lab, tmp_path, topic_name):
    made = Both(lab, tmp_path, topic_name, *getattr(request, "param", ()))
    yield made
    made.close()


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(True, id="moved"),
        # `test_both_directions_at_once` begins from 0, too.
        pytest.param(False, id="from 0", marks=pytest.mark.full),
    ],
)
def test_there_and_back_and_there_again(both, moved):
    ab, ba = both.ab.open(), both.ba
    both.a.write(20)
    both.a.write(5, transaction=True)
    both.a.write(15)
    assert ab.copy() == 40
    ab.close()
    both.assert_the_same_offsets()

    # Producers have moved to B. What B has now came from A.
    cut = both.b.end()
    both.b.write(10)
    both.b.write(5, transaction=True)
    both.b.write(15)
    if moved:
        positions = {both.partition: cut}
        assert set_positions(ba.config, both.b.client, both.a.client, positions) == positions
    ba.open()
    assert ba.lag() == (30 + 1 if moved else both.b.end())
    assert ba.copy() == 30
    assert ba.lag() == 0
    both.assert_every_record_is_once_on_both_sides()
    both.assert_the_same_offsets()
    both.assert_groups_go_on(exactly=True)
    ba.close()

    # And back: the records that B has brought are not A's to mirror.
    both.a.write(7)
    both.a.write(3, transaction=True)
    both.a.write(2)
    ab.open()
    assert ab.copy() == 12
    assert ab.lag() == 0
    both.assert_every_record_is_once_on_both_sides()
    both.assert_the_same_offsets()
    both.assert_groups_go_on(exactly=True)
    ba.open()
    assert ba.copy() == 0
    assert (ab.lag(), ba.lag()) == (0, 0)

    groups = GroupClient(both.a.client)
    name = f"group-{both.topic}"
    inside = cut + 4

    def commit():
        answers = groups.commit({name: {both.partition: Committed(inside)}})
        return not answers.errors and not any(answers.found[name].values())

    wait_for(commit)
    runtime = ab.runtime
    translation = GroupTranslation.of(
        ab.config, both.a.client, both.b.client, runtime.ledger.store,
        lambda: runtime.plan, lambda: runtime.reverse, runtime.ledger.cuts.at,
    )  # fmt: skip
    found = translation.latest(0.0).groups[name]
    assert found.offsets[both.partition].downstream == inside
    assert found.behind == 0
    # The same when A is gone, by what was known while it was there.
    policy = policy_from(ab.config)
    checkpoints = CheckpointLog(both.b.client, policy.checkpoints_topic(ab.config.flow.source))
    CheckpointEmitter(
        ab.config.flow, translation, checkpoints, lambda: runtime.plan, policy,
        young_seconds=0.0, prune_seconds=0.0,
    ).emit()  # fmt: skip
    [start] = GroupStarts(ab.config, both.b.client, named=[name]).look()[name].starts.values()
    assert (start.offset, start.repeats, start.skips) == (inside, 0, 0)
    assert "which was not asked" in start.note

    for way, own, other in ((ab, 52, 30), (ba, 30, 52)):
        totals = (report := way.verify()).totals
        assert report.exit_code == 0, (report.verdict, report.differences)
        assert (totals.records, totals.returned, totals.own) == (own, other, other)


@pytest.mark.parametrize("both", [["heliograph.on.unknown.target = append"]], indirect=True)
def test_both_directions_at_once(both):
    ab, ba = both.ab.open(), both.ba.open()
    # Mirrors of A->B get to know B->A before it copies anything.
    assert not ba.runtime.leasable
    assert "gets to know this one" in ba.runtime.waiting[both.partition]
    for number in (3, 8, 1, 5):
        both.a.write(number)
        both.b.write(number + 1, transaction=number == 8)
        ab.copy()
        both.a.write(2, transaction=number == 1)
        ba.copy()
    ab.copy()
    ba.copy()
    both.assert_every_record_is_once_on_both_sides()
    both.assert_groups_go_on(exactly=False)
    assert (ab.lag(), ba.lag()) == (0, 0)
    assert [way.verify().exit_code for way in (ab, ba)] == [0, 0]
    assert ab.copy() == ba.copy() == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "both",
    [["heliograph.on.unknown.target = append", "heliograph.lease.seconds = 5"]],
    indirect=True,
)
def test_two_mirrors_that_run_and_both_sides_write(both):
    """The second mirror begins while the first copies: what it writes must not go back."""
    both.a.write(50)
    both.b.write(50)
    ab = Driving(both.ab.config)
    try:
        ab.await_state(both.topic, PartitionState.IDLE)
        ba = Driving(both.ba.config)
        try:
            for _ in range(20):
                both.a.write(20)
                both.b.write(30)
            total = len(both.written)
            wait_for(lambda: min(len(log.rows()) for log in both.logs.values()) >= total)
            for way in (ab, ba):
                way.await_state(both.topic, PartitionState.IDLE)
                wait_for(lambda way=way: way.snapshot().lag_records == 0)
        finally:
            ba.close()
    finally:
        ab.close()
    both.assert_every_record_is_once_on_both_sides()
    both.assert_groups_go_on(exactly=False)
    assert [way.verify().exit_code for way in (both.ab, both.ba)] == [0, 0]
