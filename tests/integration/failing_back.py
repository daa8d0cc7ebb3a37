"""An active/standby pair on the shared lab, failed over and back without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

from mirroring import settings, wait_for

from heliograph.batch.records import Record, build
from heliograph.config import load
from heliograph.config.key import compile_pattern
from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.failover.failback import Failback
from heliograph.failover.failback_plan import FailbackWish
from heliograph.failover.failover import Failover, FailoverWish
from heliograph.failover.target_side import TargetSide
from heliograph.lab.proof import read_all
from heliograph.model import Lease, TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

#: Ends itself behind the nth call of a function, given as ``module:name``.
_KILLED = """
import importlib, itertools, os, sys
from pathlib import Path
from heliograph.cli import cli
from heliograph.failover import exporting

where, calls, *arguments = sys.argv[1:]
module, _, name = where.partition(":")
*path, last = name.split(".")
owner = importlib.import_module(module)
for part in path:
    owner = getattr(owner, part)
real, count = getattr(owner, last), itertools.count(1)

def killed(*args, **named):
    answer = real(*args, **named)
    if next(count) == int(calls):
        os.kill(os.getpid(), 9)
    return answer

setattr(owner, last, killed)
exporting._BATCH_RECORDS = 3
cli(arguments)
"""


class Standby:
    """Clusters under aliases that no other test has; A->B is the flow, B->A stands by.

    ``topics`` are made on A, under names that no other test has, and mirrored; those in ``later``
    belong to the flow, and tests make them.
    """

    def __init__(self, lab, folder: Path, topics, later=(), *, keys=()):
        unique = uuid.uuid4().hex[:6]
        self.lab, self.unique = lab, unique
        self.a, self.b = f"A{unique}", f"B{unique}"
        self.here = ClusterClient(settings(lab, "A"), "test")
        self.there = ClusterClient(settings(lab, "B"), "test")
        names = ",".join(self.name(t) for t in (*topics, *later))
        self.path = folder / "mm2.properties"
        self.path.write_text("\n".join([
            f"clusters = {self.a}, {self.b}",
            f"{self.a}.bootstrap.servers = {lab['A'].bootstrap}",
            f"{self.b}.bootstrap.servers = {lab['B'].bootstrap}",
            f"{self.a}->{self.b}.enabled = true", f"{self.b}->{self.a}.enabled = true",
            f"{self.b}->{self.a}.heliograph.standby = true",
            f"topics = {names}", "replication.factor = 1",
            "replication.policy.class = IdentityReplicationPolicy",
            "emit.heartbeats.enabled = false", "heartbeats.replication.enabled = false",
            "offset-syncs.topic.replication.factor = 1",
            "checkpoints.topic.replication.factor = 1",
            "heliograph.ledger.topic.replication.factor = 1", *keys,
        ]))  # fmt: skip
        self.flow = self._config(self.a, self.b)
        self.back = self._config(self.b, self.a)
        self.told = []
        for topic in topics:
            self.create(self.here, topic)

    def close(self):
        self.here.close()
        self.there.close()

    def _config(self, source, target):
        return next(
            f for f in load(self.path).flows if (f.flow.source, f.flow.target) == (source, target)
        )

    def but(self, flow, *lines):
        """One of both configurations with other keys."""
        path = self.path.with_name(f"{uuid.uuid4().hex}.properties")
        path.write_text("\n".join([self.path.read_text(), *lines]))
        return next(f for f in load(path).flows if f.flow == flow.flow)

    # -- topics and records -------------------------------------------------------------------

    def name(self, topic):
        return f"{topic}-{self.unique}"

    def p(self, topic, partition=0):
        return TopicPartition(self.name(topic), partition)

    def create(self, client, topic, partitions=1):
        new = admin.NewTopic(self.name(topic), partitions, 1, {"retention.ms": "-1"})
        assert admin.create_topics(client, [new], 30_000) == {}

        def served():
            found = client.metadata([new.name]).topics.get(new.name)
            wanted = [TopicPartition(new.name, i) for i in range(partitions)]
            return (
                found
                and len(
                    admin.list_offsets(client, client.metadata([new.name]), wanted, admin.LATEST)
                )
                == partitions
            )

        wait_for(served)

    def delete(self, client, topic):
        name = self.name(topic)
        topic_id = client.metadata([name]).topics[name].topic_id
        assert admin.delete_topics(client, {topic_id: name}, 30_000) == {}
        wait_for(lambda: name not in client.metadata([name]).topics)

    def write(self, client, topic, *values):
        """In batches of one record."""
        for value in values:
            record = Record(0, int(time.time() * 1000), None, value.encode())
            log.append(client, self.p(topic), build([record]))

    def trim(self, client, topic, before):
        """As retention does."""
        p = self.p(topic)
        admin.delete_records(client, client.metadata([p.topic]), {p: before})
        wait_for(lambda: self._start(client, p) == before)

    @staticmethod
    def _start(client, p):
        return admin.list_offsets(client, client.metadata([p.topic]), [p], admin.EARLIEST).get(p)

    def rows(self, client, topic):
        p = self.p(topic)
        if p.topic not in client.metadata([p.topic]).topics:
            return []
        return [r.value.decode() for r in read_all(client, p)]

    def exported(self):
        """(topic without its suffix, offset, value) of each exported record, in order."""
        p = TopicPartition(f"mm2-unmirrored.{self.a}.internal", 0)
        if p.topic not in self.there.metadata([p.topic]).topics:
            return []
        found = []
        for record in read_all(self.there, p):
            told = {name: value.decode() for name, value in record.headers}
            assert told["heliograph.source.cluster"] == self.a
            topic = told["heliograph.source.topic"].removesuffix(f"-{self.unique}")
            found.append((topic, int(told["heliograph.source.offset"]), record.value.decode()))
        return found

    def assert_same_on_both_sides(self, *topics):
        """Each record once, whatever the order."""
        for topic in topics:
            here, there = (Counter(self.rows(c, topic)) for c in (self.here, self.there))
            assert here == there, topic
            assert max(here.values(), default=1) == 1, topic

    # -- flows --------------------------------------------------------------------------------

    def copy(self, config, *topics):
        """What a mirror of a flow does: these topics, until all that is there is copied."""
        links.close()
        runtime = FlowRuntime(config)
        try:
            runtime.open_target()
            runtime.open()
            names = {self.name(t) for t in topics}
            wait_for(lambda: runtime.refresh_topics() or (
                names <= runtime.plan.remote.keys() and not runtime.unsettled
                and names <= {p.topic for p in runtime.leasable}
            ))  # fmt: skip
            source = self.here if config is self.flow else self.there
            partitions = [p for p in runtime.plan.partitions if p.topic in names]
            ends = admin.list_offsets(
                source, source.metadata(sorted(names)), partitions, admin.LATEST
            )
            moves, leased = runtime.moves(), []
            for p in partitions:
                one = runtime.leased(p, ends[p])
                object.__setattr__(one, "move", moves.get(p))
                leased.append(one)
            now = time.time()
            for receipt in CopyLoop(Lease(runtime.prepared, tuple(leased), now, now + 60)).run():
                assert not receipt.error
                p = TopicPartition(receipt.topic, receipt.partition)
                assert receipt.source_position == ends[p], p
        finally:
            runtime.close()
            links.close()

    def fail_over(self, config=None, *, topics=None):
        wish = FailoverWish(topics, compile_pattern("nobody"), force=True, drain_seconds=0.0)
        reverse = self.flow if config is self.back else self.back
        with Failover(
            config or self.flow, wish, self.told.append, reverse=reverse
        ) as failover:  # fmt: skip
            return failover.run()

    def failback(self, choices=None, expected=None, *, flow=None, reverse=None, wait_seconds=0.0):
        """Not entered; as a rule without waiting for a mirror."""
        wish = FailbackWish(choices or {}, expected, wait_seconds, "me")
        return Failback(flow or self.flow, reverse or self.back, wish, self.told.append)

    def plan(self, *wish, **flows):
        with self.failback(*wish, **flows) as failback:
            return failback.plan()

    def fail_back(self, *wish, **flows):
        with self.failback(*wish, **flows) as failback:
            return failback.run()

    def killed(self, where, calls, *arguments):
        """``heliograph failback``, killed behind the nth call of a function."""
        command = ["failback", str(self.path), "--to", self.a, "--yes", *arguments]
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, where, str(calls), *command],
            capture_output=True, text=True, check=False, timeout=300, env=os.environ,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, (where, done.stdout + done.stderr)

    def side(self, config=None):
        """What a target knows of a flow, opened; close it."""
        side = TargetSide(config or self.flow)
        side.open()
        return side
