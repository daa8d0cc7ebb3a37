"""A mirror that looks alive, without Kafka: 10,000 partitions, groups, jobs, events, history.

For tests of the dashboard and for screenshots. What it shows is a function of the clock, so two
looks at one moment agree, and so do charts, tiles and tables. Pause, resume and restart do what
they say.

    with synthetic_server() as served:                # http://127.0.0.1:<port>, nobody logs in
        served.url, served.mirror

    with synthetic_server(logins=True) as served:     # served.users, served.tokens: by role

To look at it: ``python tests/browser/synthetic.py --port 8090``; it ends by itself.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from synthetic_failover import FailoverStage

from heliograph.config import MirrorMakerConfig
from heliograph.connect.mirror_herder import MirrorHerder
from heliograph.copy.counts import Counts, SpanValues
from heliograph.model import PartitionEvent, PartitionState, TopicPartition
from heliograph.rest.app import RestApp
from heliograph.rest.credentials import hash_password, new_token
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.server import RestServer
from heliograph.rest.settings import Limits, Listener, MetricsSettings, RestSettings, Role
from heliograph.service.events import EngineEvent, EventBus, FlowEvent, JobEvent
from heliograph.service.history import STEP_SECONDS, History
from heliograph.service.snapshot import (
    CHECKPOINTS,
    COPYING,
    HEARTBEATS,
    CanarySnapshot,
    CertificateSnapshot,
    EngineSnapshot,
    EngineState,
    FlowSnapshot,
    FlowState,
    GroupDetails,
    GroupPartition,
    GroupSnapshot,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionCopies,
    PartitionSnapshot,
    RiskSnapshot,
    TopicSnapshot,
)

#: Group ids may hold any character.
HOSTILE = "<img src=x onerror=alert(1)>"
#: The partition to be found among all others, and why it stands.
STALLED = TopicPartition("payments.settled", 7)
STALLED_REASON = (
    "no progress for 4.2 min although 18,204 records wait; the target's leader of"
    " us-east.payments.settled-7 (broker 3) does not answer: check that it is up"
)
FAILED = TopicPartition("audit.raw", 3)
FAILED_REASON = (
    "[target.refused] us-east.audit.raw-3 cannot be written on eu-west: the record at offset"
    " 55,120 is larger than max.message.bytes=1048588 of the topic; raise it there, or set"
    " heliograph.on.refused=quarantine"
)
MAIN, BACK, FAR = "us-east->eu-west", "eu-west->us-east", "us-east->ap-south"
PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)
#: Names that a shop would have, with partitions of each; the rest are numbered streams.
_TOPICS = {"orders.placed": 48, "payments.settled": 24, "clicks": 96, "audit.raw": 12}
_TOPIC_SIZE = 50
#: Seconds of a swing, and its share of the whole.
_SWINGS = ((1_500, 0.45), (340, 0.25), (70, 0.17), (11, 0.13))
_PASSWORD = "open sesame"


@cache
def _die(name, number):
    """Between 0 and 1, by chance, and the same every time."""
    return random.Random(f"{name} {number}").random()


def _wander(name, now, low, high):
    """Between low and high, without a pattern: slow changes carry quick ones."""
    found = 0.0
    for period, weight in _SWINGS:
        number, part = divmod(now / period, 1)
        step = part * part * (3 - 2 * part)
        before, behind = (_die(name, (period, int(number) + n)) for n in (0, 1))
        found += weight * (before + (behind - before) * step)
    return low + (high - low) * found


def _rate(name, now):
    """Records a second."""
    return _wander(name, now, 2_000, 16_000) * (1.0 if name == MAIN else 0.05)


@lru_cache(maxsize=8)
def _clicks_late(now):
    """How many records of the busy topic wait: more while more is written."""
    return _rate(MAIN, now) * (0.3 + _wander("late", now, 0, 0.9) ** 2)


def _clicks_behind(partition, now):
    """How many records wait in a partition of the busy topic."""
    return int(_clicks_late(now) / _TOPICS["clicks"] * (0.4 + 2.2 * _die("clicks", partition)))


def _canary(name, now):
    """A probe takes longer while more is copied."""
    latency = 0.18 + _rate(name, now) / 70_000 + _wander(f"probe of {name}", now, 0.0, 0.12)
    return CanarySnapshot(latency, -0.012, 0, now - now % 1)


class SyntheticSupervisor:
    """Commands of one flow; ``config`` is that of a real file."""

    def __init__(self, mirror, name, config):
        self._mirror = mirror
        self._name = name
        self.config = config
        #: Since when, and why.
        self.paused: dict[str, tuple[float, str]] = {}
        self.paused_topics: dict[str, tuple[float, str]] = {}
        self.restarts = 0

    def pause(self, *parts, why=""):
        for part in parts or PARTS:
            self.paused.setdefault(part, (self._mirror.clock(), why))
            self._say("flow.paused", f"{part} is {why or 'paused'}", part)

    def resume(self, *parts):
        for part in parts or PARTS:
            if self.paused.pop(part, None) is not None:
                self._say("flow.resumed", f"{part} goes on", part)

    def restart(self, *parts):
        self.restarts += 1
        self._say("flow.restarted", "connects anew", ",".join(parts))

    def pause_topics(self, *topics, why=""):
        self.paused_topics |= dict.fromkeys(topics, (self._mirror.clock(), why or "paused"))

    def resume_topics(self, *topics):
        for topic in topics:
            self.paused_topics.pop(topic, None)

    def group(self, group):
        return self._mirror.group(self._name, group)

    def _say(self, code, text, part):
        at = self._mirror.clock()
        self._mirror.events.publish(FlowEvent(self._name, code, text, part, at=at))


class SyntheticMirror:
    """As `heliograph.service.mirror.Mirror`, for whoever only reads and commands.

    ``partitions`` are those of the flow MAIN. ``clock`` tells the time: one that stands still gives
    the same picture every time.
    """

    def __init__(self, partitions=10_000, groups=200, history_seconds=3600, clock=time.time):
        self.clock = clock
        self._made = now = clock()
        self._began = now - 86_400
        self._stalled_at, self._failed_at = now - 252, now - 1_300
        self._groups = groups
        #: Of a Java process that stands for Spark's, if somebody has one.
        self.jvm_pid: int | None = None
        self.events = EventBus()
        self.history = History(self.snapshot)
        self._plan = _plan(partitions)
        self._idle: dict[tuple[str, int], PartitionSnapshot] = {}
        self._configs = _configs()
        self._supervisors = {
            name: SyntheticSupervisor(self, name, self._configs[name])
            for name in (MAIN, BACK, FAR)
        }  # fmt: skip
        #: What a failover finds.
        self.stage = FailoverStage(clock)
        self.stage.rehearsed(MAIN)
        self.handovers = self.stage.handovers(self._configs.__getitem__, self.events)
        self._tell()
        self._remember(history_seconds)

    def supervisor(self, flow):
        return self._supervisors[flow]

    @property
    def mirrored(self) -> Mirrored:
        return Mirrored(self.snapshot, self.events, self.supervisor, self.history, self.handovers)

    def snapshot(self) -> MirrorSnapshot:
        now = self.clock()
        flows = (self._main(now), self._back(now), self._far(now))
        engine = EngineSnapshot(EngineState.READY, "", self._began + 6, 8, self.jvm_pid)
        certificate = CertificateSnapshot("us-east", "keystore", "CN=mirror", now + 40 * 86_400)
        return MirrorSnapshot(
            now, flows, engine, self._began, self.events.sequence, (certificate,)
        )  # fmt: skip

    def group(self, flow, group):
        found = next(
            (g for g in self.snapshot().flow(flow).groups if g.group == group), None
        )  # fmt: skip
        if found is None:
            raise KeyError(group)
        number = sum(map(ord, group))
        rows = []
        for n in range(found.partitions):
            end = 40_000 + 977 * n + number
            committed = end - (found.lag or 0) // max(1, found.partitions)
            known = found.ready is not False or n
            rows.append(
                GroupPartition(
                    "orders.placed", n, "us-east.orders.placed", committed, end,
                    committed if known else None,
                    committed if found.ready else None, end if known else None,
                )
            )  # fmt: skip
        return GroupDetails(flow, found, tuple(rows))

    # -- flows --------------------------------------------------------------------------------

    def _life(self, name, now):
        paused = self._supervisors[name].paused
        parts = {
            part: Life(FlowState.PAUSED, paused[part][1], since=paused[part][0])
            if part in paused
            else Life(FlowState.RUNNING, since=self._began + 9)
            for part in PARTS
        }
        return parts[COPYING], parts

    def _main(self, now):
        life, parts = self._life(MAIN, now)
        rows, topics = [], []
        for topic, count in self._plan.items():
            made = [self._partition(topic, n, now) for n in range(count)]
            rows += made
            topics.append(
                TopicSnapshot(
                    topic, f"us-east.{topic}", count, sum(p.lag_records or 0 for p in made),
                    max(p.lag_seconds or 0.0 for p in made), sum(p.troubled for p in made),
                )
            )  # fmt: skip
        topics.sort(key=lambda t: (-(t.lag_records or 0), t.topic))
        states: dict[str, int] = {}
        for state in reversed(PartitionState):
            if count := sum(p.state is state for p in rows):
                states[state.value] = count
        base = self._light(MAIN, now, life, parts)
        return replace(
            base, measured_at=now - now % 2, topics=tuple(topics), partitions=tuple(rows),
            states=states, unmeasured=0, lag_records=sum(t.lag_records for t in topics),
            lag_seconds=max(t.lag_seconds for t in topics), identical=len(rows) - 12,
            translated=12, jobs=self._jobs(MAIN, now), groups=self._group_rows(now),
            at_risk=RiskSnapshot(
                sum(t.lag_records for t in topics), sum(map(bool, (t.lag_records for t in topics))),
                max(t.lag_seconds for t in topics), 0, now - now % 2,
            ),
            rto_seconds=7.25, rto_measured_at=now - 3 * 86_400,
            diverged_records=self.stage.diverged,
            events=self.events.counts(MAIN), told_offsets=self.events.told_offsets(MAIN),
            **_counted(rows, now, self._began),
        )  # fmt: skip

    def _partition(self, topic, n, now):
        """One of MAIN; if its topic rests, it waits."""
        found = self._moving(topic, n, now)
        paused = self._supervisors[MAIN].paused_topics.get(topic)
        if paused is None or found.troubled:
            return found
        since, why = paused
        return found._replace(
            state=PartitionState.WAITING, reason=f"its topic is {why}", since=since
        )  # fmt: skip

    def _moving(self, topic, n, now):
        target = f"us-east.{topic}"
        if TopicPartition(topic, n) == STALLED:
            waits = now - self._stalled_at
            return PartitionSnapshot(
                topic, n, target, PartitionState.STALLED, STALLED_REASON, "partition.stalled",
                self._stalled_at, 0.0, 918_204, 900_000, 900_000, 18_204, waits, 0,
            )  # fmt: skip
        if TopicPartition(topic, n) == FAILED:
            waits = now - self._failed_at
            return PartitionSnapshot(
                topic, n, target, PartitionState.FAILED, FAILED_REASON, "target.refused",
                self._failed_at, now + 30 - now % 30, 55_900, 55_120, 55_120, 780, waits, 0,
            )  # fmt: skip
        if topic == "clicks" and not self._supervisors[MAIN].paused:
            behind = _clicks_behind(n, now)
            each = 9_000 / _TOPICS[topic]
            end = 1_000_000 + int((now - self._began) * each) + n
            return PartitionSnapshot(
                topic, n, target, PartitionState.COPYING, "", "", self._began + 12, 0.0, end,
                end - behind, end - behind, behind, behind / each, 0,
            )  # fmt: skip
        key = (topic, n)
        if key not in self._idle:
            end = 10_000 + n * 31 + len(topic)
            self._idle[key] = PartitionSnapshot(
                topic, n, target, PartitionState.IDLE, "", "", self._began + 12, 0.0, end, end,
                end, 0, 0.0, 0 if n % 800 else 3,
            )  # fmt: skip
        return self._idle[key]

    def _back(self, now):
        life, parts = self._life(BACK, now)
        base = self._light(BACK, now, life, parts)
        rows = tuple(
            PartitionSnapshot(
                "returns", n, "eu-west.returns", PartitionState.IDLE, "", "", self._began + 12, 0.0,
                500 + n, 500 + n, 500 + n, 0, 0.0, 0,
            )
            for n in range(6)
        )  # fmt: skip
        topics = (TopicSnapshot("returns", "eu-west.returns", 6, 0, 0.0, 0),)
        return replace(
            base, measured_at=now - now % 2, topics=topics, partitions=rows, states={"idle": 6},
            lag_records=0, lag_seconds=0.0, identical=6, jobs=self._jobs(BACK, now),
            at_risk=RiskSnapshot(0, 0, 0.0, 0, now - now % 2),
            events=self.events.counts(BACK), **_counted(rows, now, self._began),
        )  # fmt: skip

    def _far(self, now):
        why = (
            "[cluster.unreachable] cluster ap-south: no broker of kafka-1.ap-south:9092 answers:"
            " Connection refused"
        )
        life = Life(FlowState.FAILED, why, "cluster.unreachable", now - 95, now + 30 - now % 30)
        return FlowSnapshot(FAR, "us-east", "ap-south", life, dict.fromkeys(PARTS, life),
                            events=self.events.counts(FAR))  # fmt: skip

    def _light(self, name, now, life, parts):
        """A flow without its partitions, as history needs it."""
        source, target = name.split("->")
        running = life.state is FlowState.RUNNING
        scale = 1.0 if name == MAIN else 0.05
        rate = _rate(name, now) * running
        records, seconds = 0, 0.0
        if name == MAIN:
            records = sum(_clicks_behind(n, now) for n in range(_TOPICS["clicks"]))
            stuck = {self._stalled_at: 18_204, self._failed_at: 780}
            for at, count in stuck.items():
                records += int(count * min(1, max(0, (now - at) / (self._made - at))))
            seconds = max(0.2, now - self._failed_at)
        return FlowSnapshot(
            name, source, target, life, parts, measured_at=now, lag_records=records,
            lag_seconds=seconds, records_per_second=rate,
            bytes_per_second=rate * 870, records_total=int((now - self._began) * 9_000 * scale),
            copied_records=int((now - self._began) * 9_000 * scale),
            copied_bytes=int((now - self._began) * 9_000 * 870 * scale), canary=_canary(name, now),
            paused_topics={t: why for t, (_, why) in self._supervisors[name].paused_topics.items()},
        )  # fmt: skip

    def _jobs(self, name, now):
        def job(text, interval, part=COPYING, error=""):
            ran = now - now % interval
            runs = int((now - self._began) / interval)
            return JobSnapshot(
                f"{text} {name}", interval, part, ran, ran + interval, 0.04, error, {}, runs,
                runs if error else 0, 0.04 * runs, 0.01, 0.3,
            )  # fmt: skip

        denied = (
            "Describe on ACLs is missing on us-east: kafka-acls --add --allow-principal"
            " User:mirror --operation Describe --cluster"
        )
        return (
            job("measuring the lag of", 2.0), job("watching the partitions of", 1.0),
            job("following the log starts of", 10.0), job("syncing topic configs of", 60.0),
            job("syncing ACLs of", 60.0, error=denied if name == MAIN else ""),
            job("tidying the ledger of", 300.0), job("watching for deleted topics of", 10.0),
            job("emitting checkpoints for", 2.0, CHECKPOINTS),
            job("syncing group offsets of", 2.0, CHECKPOINTS),
            job("emitting heartbeats for", 1.0, HEARTBEATS),
        )  # fmt: skip

    def _group_rows(self, now):
        sync = f"syncing group offsets of {MAIN}"
        rows = [
            GroupSnapshot(HOSTILE, {sync: "3 partitions in step"}, True, "", 3, 12),
            GroupSnapshot("billing", {sync: "48 partitions in step"}, True, "", 48,
                          int(_wander("billing", now, 0, 400))),
            GroupSnapshot("fraud-detection", {sync: "is in use on eu-west (Stable)"}, False,
                          "is in use on eu-west (Stable)", 48, 9),
            GroupSnapshot("warehouse-loader", {sync: "47 of 48 partitions"}, False,
                          "orders.placed-0: its topic was created anew, and is not mirrored yet",
                          48, None),
            GroupSnapshot("search-indexer", {sync: "has committed nothing on mirrored topics"},
                          None, "has committed nothing on mirrored topics", 0, None),
        ]  # fmt: skip
        rows += [
            GroupSnapshot(f"service-{n:04}", {sync: "6 partitions in step"}, True, "", 6, n % 37)
            for n in range(self._groups)
        ]
        return tuple(sorted(rows, key=lambda g: g.group))

    # -- before anybody looked ----------------------------------------------------------------

    def _tell(self):
        began = self._began
        self.events.publish(
            EngineEvent("engine.ready", "Spark has started: 8 slots", at=began + 6),
            FlowEvent(MAIN, "flow.running", "copying has started", COPYING, at=began + 9),
            FlowEvent(BACK, "flow.running", "copying has started", COPYING, at=began + 9),
            JobEvent(MAIN, f"syncing ACLs of {MAIN}", "job.failed", "Describe on ACLs is missing",
                     at=began + 17),
            PartitionEvent(MAIN, FAILED, "partition.failed", FAILED_REASON, 55_120, 55_121,
                           self._failed_at),
            PartitionEvent(MAIN, STALLED, "partition.stalled", STALLED_REASON,
                           at=self._stalled_at),
            FlowEvent(FAR, "flow.failed", "cannot start: cluster ap-south does not answer",
                      level=30, at=self.clock() - 95),
        )  # fmt: skip

    def _remember(self, seconds):
        now = self.clock()
        for at in range(int(now - seconds), int(now), STEP_SECONDS):
            flows = []
            for name in (MAIN, BACK):
                life, parts = self._life(name, at)
                flows.append(self._light(name, at, life, parts))
            self.history.sample(MirrorSnapshot(float(at), tuple(flows)))


def _counted(rows, now, began):
    """What tasks have done with each of the partitions, and in all."""
    seconds = now - began
    age, latency = SpanValues(40, 2, 900, 4_000, 100), SpanValues(55, 8, 950, 5_200, 100)
    copies = {
        TopicPartition(p.topic, p.partition): PartitionCopies(
            Counts(p.position, 870 * p.position, p.position // 50), 1.5, 1_305.0, age, latency
        )
        for p in rows
    }
    counts = Counts(
        int(seconds * 9_000), int(seconds * 9_000 * 870), int(seconds * 60), int(seconds * 30),
        int(seconds), int(seconds / 60), 2, 1_500, age, latency,
    )  # fmt: skip
    return {
        "owns": True, "counts": counts, "copies": copies, "pending": 1_200,
        "free_bytes": 64 << 20, "rounds": int(seconds / 30), "failed_rounds": 1,
        "ledger_runs": 2 * len(rows), "ledger_end": 5 * len(rows),
        "progressed_at": now - 1.0,
    }  # fmt: skip


def _plan(partitions):
    """Topics and how many partitions each has."""
    plan = dict(_TOPICS) if partitions >= sum(_TOPICS.values()) else {STALLED.topic: partitions}
    left, number = partitions - sum(plan.values()), 0
    while left > 0:
        plan[f"stream-{number:04}"] = min(_TOPIC_SIZE, left)
        left, number = left - _TOPIC_SIZE, number + 1
    return plan


def _configs():
    values = {
        "clusters": "us-east, eu-west, ap-south",
        **{f"{c}.bootstrap.servers": "127.0.0.1:1" for c in ("us-east", "eu-west", "ap-south")},
        "us-east.security.protocol": "SASL_PLAINTEXT",
        "us-east.sasl.mechanism": "PLAIN",
        "us-east.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
                                    ' required username="mirror" password="s3cret";',
        f"{MAIN}.enabled": "true",
        f"{MAIN}.topics": "orders.*, payments.*, clicks, audit.*, stream-.*",
        f"{MAIN}.sync.group.offsets.enabled": "true",
        f"{BACK}.enabled": "true",
        f"{BACK}.topics": "returns",
        f"{FAR}.enabled": "true",
        f"{FAR}.topics": "orders.*",
        "replication.factor": "3",
    }  # fmt: skip
    return {str(f.flow): f for f in MirrorMakerConfig.from_mapping(values).flows}


# -- serving it -----------------------------------------------------------------------------------


@dataclass
class Served:
    """``users`` are (name, password) and ``tokens`` texts, by role; empty if nobody logs in."""

    url: str
    mirror: SyntheticMirror
    users: dict[str, tuple[str, str]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)


@contextmanager
def synthetic_server(mirror=None, *, logins=False, changes=True, port=0, sample=True, **settings):
    """Serves a synthetic mirror on 127.0.0.1; ``settings`` as of `RestSettings`.

    ``sample``: the history goes on while it is served. ``changes``: as heliograph.rest.changes.
    """
    mirror = mirror or SyntheticMirror()
    with tempfile.TemporaryDirectory() as folder:
        users: dict[str, tuple[str, str]] = {}
        tokens: dict[str, str] = {}
        if logins:
            settings |= _credentials(Path(folder), users, tokens)
        made = RestSettings(
            listeners=(Listener("http", "127.0.0.1", port),),
            limits=Limits(requests_per_second=0), **settings,
        )  # fmt: skip
        double: Any = mirror
        herder = MirrorHerder(double, lambda: "synthetic:8083", changeable=changes)
        server = RestServer(RestApp(herder, made, mirror.mirrored), made)
        server.start()
        if sample:
            mirror.history.start()
        try:
            yield Served(f"http://127.0.0.1:{server.addresses[0].port}", mirror, users, tokens)
        finally:
            mirror.history.close()
            server.close()


def _credentials(folder, users, tokens):
    """Files with a user and a token for each role: victor, olga and ada."""
    lines, token_lines = [], []
    for role, name in ((Role.VIEWER, "victor"), (Role.OPERATOR, "olga"), (Role.ADMIN, "ada")):
        word = role.name.lower()
        users[word] = (name, _PASSWORD)
        lines.append(f"{name}:{word}:{hash_password(_PASSWORD)}")
        tokens[word], line = new_token(f"{name}'s token", role)
        token_lines.append(line)
    (folder / "users").write_text("\n".join(lines), encoding="utf-8")
    (folder / "tokens").write_text("\n".join(token_lines), encoding="utf-8")
    return {"users_file": folder / "users", "tokens_file": folder / "tokens"}


def main():
    parser = argparse.ArgumentParser(description="Serves a synthetic mirror for a while.")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--logins", action="store_true")
    parser.add_argument("--metrics-partitions", action="store_true",
                        help="as heliograph.metrics.partitions=true")  # fmt: skip
    asked = parser.parse_args()
    mirror = SyntheticMirror(asked.partitions)
    mirror.stage.pace = 1.5
    metrics = MetricsSettings(partitions=asked.metrics_partitions)
    with synthetic_server(mirror, logins=asked.logins, port=asked.port, metrics=metrics) as served:
        print(f"{served.url}/dashboard/ {served.users} {served.tokens}", flush=True)
        time.sleep(asked.seconds)


if __name__ == "__main__":
    main()
