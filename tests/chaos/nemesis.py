"""Faults: each has a name, injects itself, says in one line what it did, and heals.

Brokers and links are shared, so their faults hit every mirror alike. Faults of processes hit each
mirror; those of a part that only Heliograph has (a Spark worker, Spark's JVM) hit Heliograph alone.
"""

import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from checker import FOREIGN, Checker, encode
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from damage import cut
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from kafka.protocol.metadata import MetadataRequest
from mirrors import SOURCE, TARGET
from proxy import FETCH, NO_FAULTS, PRODUCE, Faults, Proxies

from heliograph.batch.header import batches
from heliograph.lab import Lab
from heliograph.model import ClientSettings
from heliograph.model import TopicPartition as Partition
from heliograph.policy.replication import ledger_topic
from heliograph.wire.admin import describe_producers
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

#: Between a broker's fault and the next one, its replicas are to be in step again.
WHOLE_SECONDS = 90.0
#: A mirror that was started anew, on a busy machine, has workers by then.
WORKER_SECONDS = 60.0


def _await(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


@dataclass
class World:
    """What can be hit. ``fronts`` are the proxies' ports by (alias, node id)."""

    lab: Lab
    proxies: Proxies
    fronts: dict
    dice: random.Random
    mirrors: list = field(default_factory=list)
    small_disk: "SmallDisk | None" = None  # of one target broker, where one can be had
    checker: Checker | None = None
    streams: dict = field(default_factory=dict)  # by (topic, partition)
    dated_back: float = 0.0  # hours
    damage: bool = False  # whether the target's own logs may be hit
    forget_seconds: float = 0.0  # how long target brokers remember producers; 0: a day

    def ports(self, alias):
        return [port for (a, _), port in self.fronts.items() if a == alias]

    def is_whole(self, alias):
        """Whether every broker of the cluster is in the metadata and every replica in step."""
        admin = AdminClient({"bootstrap.servers": self.lab[alias].back_door, "log_level": 0})
        try:
            found = admin.list_topics(timeout=5)
        except KafkaException:
            return False
        partitions = [p for t in found.topics.values() for p in t.partitions.values()]
        return len(found.brokers) == len(self.lab[alias].brokers) and all(
            len(p.isrs) == len(p.replicas) and p.leader >= 0 for p in partitions
        )

    def wait_worker(self):
        """Wait until somebody holds a lease of Heliograph."""
        _await(self.mirrors[0].process.lease_holders, WORKER_SECONDS)

    def wait_whole(self, alias, seconds=WHOLE_SECONDS):
        deadline = time.monotonic() + seconds
        while not self.is_whole(alias):
            for broker in self.lab[alias].brokers:
                broker.start()  # a no-op while it runs
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True


class Fault:
    """``seconds`` is how long it lasts between `inject` and `heal`."""

    name = ""
    seconds = 4.0

    def __init__(self, world, alias=None):
        self.world, self.alias = world, alias
        if alias is not None:
            side = "source" if alias == SOURCE else "target"
            self.name = f"{side} {self.name}"

    def inject(self):
        """Returns what it did, in one line."""
        raise NotImplementedError

    def heal(self):
        """Undo it, and wait until the clusters (not the mirrors) are whole."""

    @property
    def dice(self):
        return self.world.dice

    def _broker(self):
        return self.dice.choice(self.world.lab[self.alias].brokers)


# -- brokers ---------------------------------------------------------------------------------------


class BrokerKilled(Fault):
    name = "broker killed"
    seconds = 3.0

    def inject(self):
        self._victim = self._broker()
        self._victim.kill()
        return f"kill -9 of broker {self._victim.node_id} of {self.alias}"

    def heal(self):
        self._victim.start()
        self.world.wait_whole(self.alias)


class BrokerStopped(Fault):
    name = "broker stopped"
    seconds = 6.0

    def inject(self):
        self._victim = self._broker()
        self._victim.suspend()
        return f"SIGSTOP to broker {self._victim.node_id} of {self.alias}"

    def heal(self):
        self._victim.resume()
        self.world.wait_whole(self.alias)


class RollingRestart(Fault):
    name = "rolling restart"
    seconds = 0.0

    def inject(self):
        brokers = self.world.lab[self.alias].brokers
        for broker in brokers:
            broker.stop(grace_s=15)
            broker.start()
            self.world.wait_whole(self.alias)
        return f"{len(brokers)} brokers of {self.alias} restarted one after the other"


class LeadersShuffled(Fault):
    name = "leaders shuffled"
    seconds = 2.0

    def inject(self):
        settings = ClientSettings("x", {"bootstrap.servers": self.world.lab[self.alias].back_door})
        with ClusterClient(settings, "nemesis") as client:
            for attempt in range(5):
                try:
                    moved = shuffle_leaders(client, self.dice)
                    break
                except WireError:
                    if attempt == 4:
                        raise
                    time.sleep(0.5)
        return f"{moved} partitions of {self.alias} have another leader"


def shuffle_leaders(client, dice):
    """Another replica of every partition becomes its preferred leader, and its leader.

    Internal topics too, so coordinators move as well. Returns how many partitions moved.
    """
    before = _leaders(client)
    orders, leaders = {}, {}
    for (topic, index), (leader, replicas) in before.items():
        if others := [r for r in replicas if r != leader]:
            first = dice.choice(others)
            rest = [r for r in replicas if r != first]
            orders.setdefault(topic, {})[index] = [first, *rest]
            leaders[topic, index] = first
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    moves = [
        kind(
            name=topic,
            partitions=[
                kind.ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in partitions.items()
            ],
        )
        for topic, partitions in orders.items()
    ]
    client.to_controller(AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=moves))
    deadline = time.monotonic() + 10
    elect = ElectLeadersRequest.TopicPartitions
    chosen = [elect(topic=topic, partitions=list(found)) for topic, found in orders.items()]
    while True:
        client.to_controller(
            ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=10_000)
        )
        after = _leaders(client)
        moved = sum(after[place][0] == leader for place, leader in leaders.items())
        if moved == len(leaders) or time.monotonic() > deadline:
            return moved
        time.sleep(0.3)


def _leaders(client):
    """{(topic, partition): (leader, replicas)} of all topics."""
    answer = client.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return {
        (topic.name, p.partition_index): (p.leader_id, list(p.replica_nodes))
        for topic in answer.topics
        for p in topic.partitions
    }


class SmallDisk:
    """A tmpfs in the place of a broker's data; needs root. Mount it before the lab starts."""

    def __init__(self, folder, megabytes):
        """Raises OSError where nothing may be mounted."""
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            raise OSError("mounting a tmpfs needs root")
        self.folder = folder
        self._ballast = folder / "ballast"  # Kafka only looks at folders

    def fill(self):
        """Leave no byte free."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))

    def empty(self):
        self._ballast.unlink(missing_ok=True)

    def unmount(self):
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)


class DiskFull(Fault):
    name = "disk full"
    seconds = 5.0

    def inject(self):
        broker = self.world.lab[TARGET].broker(3)
        self.world.small_disk.fill()
        # Kafka halts a broker whose only disk fails, once it has something to write.
        broker.join(10)
        what = "has halted" if not broker.running else "goes on"
        return f"no space is left on the disk of broker 3 of {TARGET}, which {what}"

    def heal(self):
        self.world.small_disk.empty()
        broker = self.world.lab[TARGET].broker(3)
        if broker.running:
            broker.kill()  # a log directory that failed is given another chance by a restart only
        broker.start()
        self.world.wait_whole(TARGET)


class Quota(Fault):
    """A byte rate per client and broker, far below what the mirrors need."""

    name = "quota"
    seconds = 6.0
    _key = "producer_byte_rate"
    _rate = 20_000.0

    def inject(self):
        self._alter(self._rate)
        return f"{self._key} of {self._rate / 1000:.0f} kB/s for all clients of {self.alias}"

    def heal(self):
        self._alter(None)

    def _alter(self, rate):
        kind = AlterClientQuotasRequest.EntryData
        entry = kind(
            entity=[kind.EntityData(entity_type="client-id", entity_name=None)],
            ops=[kind.OpData(key=self._key, value=rate or 0.0, remove=rate is None)],
        )
        settings = ClientSettings("x", {"bootstrap.servers": self.world.lab[self.alias].back_door})
        with ClusterClient(settings, "nemesis") as client:
            message = AlterClientQuotasRequest(entries=[entry], validate_only=False)
            answer = client.retry(lambda: client.to_controller(message), 30)
        assert all(e.error_code == 0 for e in answer.entries), answer


# -- links -----------------------------------------------------------------------------------------


class LinkFault(Fault):
    """Faults of all links of a cluster, or of one broker's."""

    one_broker = False

    def inject(self):
        ports = self.world.ports(self.alias)
        self._ports = [self.dice.choice(ports)] if self.one_broker else ports
        faults, what = self.faults()
        for port in self._ports:
            self.world.proxies.set(port, faults)
        where = "one broker" if self.one_broker else "all brokers"
        return f"{where} of {self.alias}: {what}" + self.more()

    def faults(self):
        raise NotImplementedError

    def more(self):
        """What else is done when the faults are set; returns text for it."""
        return ""

    def heal(self):
        for port in self._ports:
            self.world.proxies.set(port, NO_FAULTS)

    def _cut(self):
        return sum(self.world.proxies.cut(port) for port in self._ports)


class LinkCut(LinkFault):
    name = "connections cut"
    seconds = 0.5

    def faults(self):
        return NO_FAULTS, "connections reset"

    def more(self):
        return f" ({self._cut()})"


class LinkPartition(LinkFault):
    name = "link down"
    seconds = 5.0

    def faults(self):
        return Faults(refuse=True), "connections reset and refused"

    def more(self):
        return f" ({self._cut()})"


class LinkHeld(LinkFault):
    name = "half open"
    seconds = 6.0

    def faults(self):
        return Faults(hold=True), "connections stay, nothing moves"


class OneLinkHeld(LinkHeld):
    name = "half open, one broker"
    seconds = 8.0
    one_broker = True


class LinkSlow(LinkFault):
    name = "delay"
    seconds = 8.0

    def faults(self):
        delay = self.dice.choice((0.05, 0.15, 0.4))
        return Faults(delay=delay), f"{delay * 1000:.0f} ms more each way"


class LinkNarrow(LinkFault):
    name = "narrow link"
    seconds = 8.0

    def faults(self):
        rate = self.dice.choice((30_000, 100_000))
        return Faults(bandwidth=rate), f"{rate // 1000} kB/s per connection"


class RequestsUnread(LinkFault):
    """As with small socket buffers: most of what is sent does not leave its sender."""

    name = "requests unread"
    seconds = 6.0

    def faults(self):
        return Faults(stall=True), "connections stay, requests are not read"


class CutWithinAnswers(LinkFault):
    name = "cut within answers"
    seconds = 5.0

    def faults(self):
        size = self.dice.randrange(2_000, 200_000)
        return Faults(drop_after=size), f"connections cut after {size:,} bytes of answers"


class Flapping(LinkFault):
    name = "link flaps"
    seconds = 0.0

    def faults(self):
        return NO_FAULTS, "10 times reset within 3 s"

    def more(self):
        cut = 0
        for _ in range(10):
            cut += self._cut()
            time.sleep(0.3)
        return f" ({cut} connections)"


class AnswersDropped(LinkFault):
    name = "answers lost"
    seconds = 4.0

    def faults(self):
        api = PRODUCE if self.alias == TARGET else FETCH
        times = self.dice.randrange(1, 6)
        what = "Produce" if api == PRODUCE else "Fetch"
        return (
            Faults(answers="drop", api=api, times=times),
            f"the answers to {times} {what} requests are lost, with the connection",
        )


class AnswersMuted(LinkFault):
    name = "answers never come"
    seconds = 8.0

    def faults(self):
        return (
            Faults(answers="mute", times=3),
            "3 connections on which requests arrive, but no answer ever comes back",
        )

    def heal(self):
        super().heal()
        # A TCP connection cannot go on after bytes that were lost: the router resets it at last.
        self._cut()


class BitFlipped(LinkFault):
    name = "bit flipped"
    seconds = 5.0

    def faults(self):
        return (
            Faults(answers="flip", api=FETCH, times=2),
            "a bit is flipped in the records of 2 Fetch answers",
        )


class AnswersDuplicated(LinkFault):
    name = "answers duplicated"
    seconds = 4.0

    def faults(self):
        return Faults(answers="duplicate", times=4), "4 answers come twice"


class AnswersSwapped(LinkFault):
    name = "answers out of order"
    seconds = 4.0

    def faults(self):
        return Faults(answers="swap", times=4), "answers change places, up to 4 times"


# -- mirrors ---------------------------------------------------------------------------------------


class MirrorsKilled(Fault):
    name = "mirror killed"
    seconds = 2.0

    def inject(self):
        for mirror in self.world.mirrors:
            mirror.kill()
        return "kill -9 of every mirror's leading process; started again after 2 s"

    def heal(self):
        for mirror in self.world.mirrors:
            mirror.start()


class MirrorsRestarted(Fault):
    name = "mirror restarted"
    seconds = 1.0

    def inject(self):
        for mirror in self.world.mirrors:
            mirror.end()
        return "SIGTERM to every mirror, which ends in order; started again after 1 s"

    def heal(self):
        for mirror in self.world.mirrors:
            mirror.start()


class MirrorsStopped(Fault):
    name = "mirror stopped"
    seconds = 8.0

    def inject(self):
        for mirror in self.world.mirrors:
            mirror.freeze()
        return "SIGSTOP to every process of every mirror"

    def heal(self):
        for mirror in self.world.mirrors:
            mirror.thaw()


class WorkerStopped(Fault):
    """With requests that have left in part: it must not finish them when it goes on.

    It is stopped for longer than a lease, so that others have its partitions by then.
    """

    name = "Spark worker stopped"
    seconds = 40.0

    def inject(self):
        ports = self.world.ports(TARGET)
        self.world.wait_worker()
        for port in ports:
            self.world.proxies.set(port, Faults(stall=True))
        time.sleep(1.5)
        self._stopped = None
        with suppress(IndexError, psutil.Error):
            self._stopped = self.dice.choice(self.world.mirrors[0].process.lease_holders())
            self._stopped.send_signal(signal.SIGSTOP)
        for port in ports:
            self.world.proxies.set(port, NO_FAULTS)
        self.seconds = self.world.mirrors[0].lease_seconds + 8.0
        if self._stopped is None:
            self.seconds = 0.0
            return "no worker of Heliograph was there to stop"
        return (
            f"{TARGET} reads no requests for 1.5 s, then SIGSTOP to a worker of Heliograph for"
            f" {self.seconds:.0f} s, longer than its lease"
        )

    def heal(self):
        if self._stopped is not None:
            with suppress(psutil.Error):
                self._stopped.send_signal(signal.SIGCONT)


class FollowerStopped(Fault):
    """What leaders have and replicas lack is looked for by new holders of leases."""

    name = "target follower stopped, worker killed"
    seconds = 9.0

    def inject(self):
        self._victim = self.dice.choice(self.world.lab[TARGET].brokers)
        self.world.wait_worker()
        self._victim.suspend()
        time.sleep(0.5)
        done = WorkerKilled(self.world).inject()
        return f"SIGSTOP to broker {self._victim.node_id} of {TARGET}, then {done}"

    def heal(self):
        self._victim.resume()
        self.world.wait_whole(TARGET)


class LateRequests(Fault):
    """Requests of a dead writer arrive when brokers may have forgotten its producer id."""

    name = "target requests late"

    def __init__(self, world, alias=None):
        super().__init__(world, alias)
        self.seconds = 4.0 + 2 * min(world.forget_seconds, 5.0)

    def inject(self):
        ports = self.world.ports(TARGET)
        self.world.wait_worker()
        self._ports = self.dice.sample(ports, self.dice.randrange(1, len(ports) + 1))
        count = sum(self.world.proxies.strand(port) for port in self._ports)
        time.sleep(1.0)
        done = WorkerKilled(self.world).inject()
        return (
            f"nothing moves on {count} connections to {len(self._ports)} brokers of {TARGET}; then"
            f" {done}; what was sent arrives {self.seconds:.0f} s later"
        )

    def heal(self):
        for port in self._ports:
            self.world.proxies.land(port)


# -- the target's own logs -------------------------------------------------------------------------


def write_foreign(world, places):
    """Somebody else writes to remote topics of Heliograph; returns how many records."""
    producer = Producer({
        "bootstrap.servers": world.lab[TARGET].back_door, "acks": "all", "log_level": 0,
        "client.id": "foreign", "linger.ms": 5, "message.timeout.ms": 60_000,
    })  # fmt: skip
    written = 0
    stamp = int((time.time() - 3600 * world.dated_back) * 1000)
    for topic, partition in places:
        for n in range(world.dice.randrange(1, 60)):
            name = world.mirrors[0].prefix + topic
            producer.produce(name, encode(FOREIGN, n), partition=partition, timestamp=stamp)
            written += 1
    assert producer.flush(60) == 0
    return written


def _some(world, most):
    return world.dice.sample(sorted(world.streams), world.dice.randrange(1, most + 1))


class ForeignTails(Fault):
    name = "target foreign records"
    seconds = 1.0

    def inject(self):
        places = _some(self.world, 6)
        written = write_foreign(self.world, places)
        return f"another producer writes {written} records to {len(places)} remote partitions"


class EmptiedLogs(Fault):
    """While Heliograph is away, and when the checker has read all that is deleted."""

    name = "target logs emptied"
    seconds = 0.0

    def inject(self):
        world, ours = self.world, self.world.mirrors[0]
        how = self.dice.choice(("killed", "killed", "ended"))
        if how == "killed":
            ours.destroy()
        else:
            ours.end()
        places = _some(world, len(world.streams) // 2)
        foreign = self.dice.sample(places, len(places) // 2)
        written = write_foreign(world, foreign) if foreign else 0
        wanted = [(ours.prefix + topic, partition) for topic, partition in places]
        ends = log_offsets(world.lab[TARGET], wanted, OffsetSpec.latest())
        if not _await(lambda: self._read_up_to(ends), 60):
            return f"Heliograph {how}; nothing was emptied, because the checker is behind"
        if world.forget_seconds:
            _await(lambda: self._forgotten(wanted), 30)
        if ends != log_offsets(world.lab[TARGET], wanted, OffsetSpec.latest()):
            return f"Heliograph {how}; nothing was emptied, because somebody still writes"
        admin = AdminClient({"bootstrap.servers": world.lab[TARGET].back_door, "log_level": 0})
        cuts = [TopicPartition(topic, n, end) for (topic, n), end in ends.items()]
        for future in admin.delete_records(cuts, request_timeout=30).values():
            future.result()
        return (
            f"Heliograph {how}, {len(cuts)} remote partitions emptied to their ends,"
            f" {len(foreign)} of them after others had written {written} records"
        )

    def _read_up_to(self, ends):
        read = self.world.checker.reached(self.world.mirrors[0].name)
        return all(read.get(place, 0) >= end for place, end in ends.items())

    def _forgotten(self, wanted):
        settings = ClientSettings("x", {"bootstrap.servers": self.world.lab[TARGET].back_door})
        with ClusterClient(settings, "nemesis") as client:
            metadata = client.metadata(sorted({topic for topic, _ in wanted}))
            asked = [Partition(*place) for place in wanted]
            found = describe_producers(client, metadata, asked)
        return len(found) == len(asked) and not any(found.values())

    def heal(self):
        self.world.mirrors[0].start()


class LedgerCut(Fault):
    """All replicas of the ledger lose their tail: a restored disk, an unclean election."""

    name = "target ledger cut"
    seconds = 0.0

    def inject(self):
        cluster = self.world.lab[TARGET]
        name = ledger_topic(SOURCE)
        for broker in cluster.brokers:
            broker.kill()
        try:
            logs = [broker.data_folder / f"{name}-0" for broker in cluster.brokers]
            shortest = min((_batch_starts(folder) for folder in logs), key=lambda s: s[-1:])
            until = shortest[-min(len(shortest) - 1, self.dice.randrange(1, 40))]
            for folder in logs:
                cut(folder, until)
        finally:
            for broker in cluster.brokers:
                broker.start()
        self.world.wait_whole(TARGET, 180)
        return (
            f"all brokers of {TARGET} killed, {name} cut to its first {until:,} offsets on each"
            f" disk, of {shortest[-1]:,} and more; started again"
        )


def _batch_starts(folder):
    """The first offsets of all batches of a log."""
    return [
        header.base_offset
        for segment in sorted(folder.glob("*.log"))
        for header, _ in batches(memoryview(segment.read_bytes()))
    ]


def log_offsets(cluster, places, spec):
    """{(topic, partition): where it begins or ends}."""
    admin = AdminClient({"bootstrap.servers": cluster.back_door, "log_level": 0})
    asked = {TopicPartition(*place): spec for place in places}
    found = admin.list_offsets(asked, request_timeout=30)
    return {(p.topic, p.partition): future.result().offset for p, future in found.items()}


class PartKilled(Fault):
    """Only Heliograph has such parts; MM2 is one process."""

    victim = ""
    seconds = 1.0

    def inject(self):
        ours = self.world.mirrors[0]
        deadline = time.monotonic() + WORKER_SECONDS
        while True:
            try:
                ours.kill_part(self.victim, self.dice)
            except LookupError:
                if time.monotonic() > deadline:
                    return f"no {self.victim} of Heliograph was there to kill"
                time.sleep(0.2)
            else:
                return f"kill -9 of a {self.victim} of Heliograph (MM2 has none)"


class WorkerKilled(PartKilled):
    name = "Spark worker killed"
    victim = "worker"


class JvmKilled(PartKilled):
    name = "Spark JVM killed"
    victim = "jvm"


_EITHER = (
    BrokerKilled, BrokerStopped, RollingRestart, LeadersShuffled, LinkCut, LinkPartition, LinkHeld,
    OneLinkHeld, LinkSlow, LinkNarrow, CutWithinAnswers, Flapping, AnswersDropped, AnswersMuted,
    AnswersDuplicated, AnswersSwapped,
)  # fmt: skip


def kinds(world):
    """Every fault that can be injected here, by name: functions that make one."""
    made: list[tuple[type[Fault], str | None]]
    made = [(kind, alias) for kind in _EITHER for alias in (SOURCE, TARGET)]
    made += [(BitFlipped, SOURCE), (Quota, TARGET), (RequestsUnread, TARGET)]
    made += [(kind, None) for kind in (MirrorsKilled, MirrorsRestarted, MirrorsStopped,
                                       WorkerKilled, WorkerStopped, JvmKilled, FollowerStopped,
                                       LateRequests)]  # fmt: skip
    if world.damage:
        made += [(kind, None) for kind in (ForeignTails, EmptiedLogs, LedgerCut)]
    if world.small_disk is not None:
        made.append((DiskFull, None))
    return {kind(world, alias).name: (kind, alias) for kind, alias in made}


def schedule(world, wanted=None):
    """Endless faults: all kinds in random order, then all again in another."""
    known = kinds(world)
    chosen = [known[name] for name in known if not wanted or any(w in name for w in wanted)]
    if not chosen:
        raise ValueError(f"no such faults; known are: {', '.join(known)}")
    while True:
        order = chosen[:]
        world.dice.shuffle(order)
        for kind, alias in order:
            yield kind(world, alias)
