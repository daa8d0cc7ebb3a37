"""A real KRaft cluster on loopback."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.errors import LabError
from heliograph.jvm.archive import archive_path, load_flags, writing
from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.lab.broker import HOST, Broker, free_ports
from heliograph.lab.process import abandon, java_command, run_java, stop_all
from heliograph.lab.security import USER, Security

__all__ = [
    "DEFAULT_KAFKA_VERSION",
    "SHORT_LIVED",
    "Cluster",
    "build_kafka_archive",
    "kafka_archive",
]

DEFAULT_KAFKA_VERSION = "4.3.1"
#: A start takes 5 s; on a machine that does a lot else it may take minutes.
READY_SECONDS = 600.0
# The first compiler tier alone: halves the CPU of a start, and costs throughput after minutes.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
#: Java writes it when it ends, which takes 5 s, and minutes on a machine that does a lot else.
_ARCHIVE_SECONDS = 600.0
#: What StorageTool wrote for a node in this process, by all that it depends on: name and content.
_formatted: dict[tuple[object, ...], dict[str, bytes]] = {}


def kafka_archive(kafka_version: str) -> Path:
    """Where the class archive of a version's brokers and tools is, or will be."""
    return archive_path(f"kafka-{kafka_version}", classpath(kafka_version, Artifact.KAFKA))


def build_kafka_archive() -> Path:
    """Start a broker of the lab's usual version once, and keep its classes for later starts.

    Raises:
        LabError: ``jvm.archive`` if Java wrote none, and whatever ``Cluster`` raises.
    """
    path = kafka_archive(DEFAULT_KAFKA_VERSION)
    with writing(path) as flag, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster("archive", Path(folder), jvm_flags=[flag])
        try:
            cluster.start()
            cluster.wait_ready()
        finally:
            cluster.stop(_ARCHIVE_SECONDS)
    if not path.is_file():
        hint = "labs start slower without it, and work all the same"
        raise LabError("jvm.archive", f"Java did not write {path}", hint)
    return path


class Cluster:
    """``brokers`` Kafka nodes with ids 1..N; all are controllers when N >= 3, else node 1 alone.

    Not thread-safe; see ``JavaProcess`` for the thread that may start it. Data in ``folder`` is
    kept: a second Cluster on it goes on with it, on other ports.
    """

    def __init__(
        self,
        alias: str,
        folder: Path,
        brokers: int = 1,
        kafka_version: str = DEFAULT_KAFKA_VERSION,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        security: str | None = None,
        lab_folder: Path | None = None,
        authorizer: bool = False,
        advertised: Sequence[int] = (),
        jvm_flags: Sequence[str] = SHORT_LIVED,
    ) -> None:
        """Fetches Kafka when needed and writes the nodes' files; nothing runs before ``start``.

        Args:
            alias: the cluster's name in messages and in mm2.properties.
            folder: for data, logs and properties files.
            brokers: how many.
            kafka_version: as on Maven; 3.3 or newer (KRaft).
            settings: broker keys that override or extend the lab's own.
            heap: of each broker, in Java's notation.
            security: None (PLAINTEXT), ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``, for clients;
                the brokers talk to each other in plain text on a port of their own.
            lab_folder: what ``lab down`` knows the processes by; ``folder`` by default.
            authorizer: whether rights count: alice may do everything, ``security.GUESTS`` nothing.
            advertised: a port per broker where clients are told to go, for proxies between them and
                the brokers; none: straight to the brokers.
            jvm_flags: of the brokers, beside heap and collector; none for measurements.
        """
        self.alias, self.folder = alias, folder.resolve()
        self.kafka_version = kafka_version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.security = Security.create(security, self.folder, authorizer)
        self._classpath = classpath(kafka_version, Artifact.KAFKA)
        self._archive = load_flags(kafka_archive(kafka_version))
        self._kind = (
            kafka_version, *self.security.format_arguments(), *sorted((settings or {}).items()),
        )  # fmt: skip
        ports = free_ports(3 * brokers)
        clients, internals, controllers = (ports[i::3] for i in range(3))
        fronts = list(advertised) or clients
        quorum = range(1, brokers + 1) if brokers >= 3 else range(1, 2)
        voters = ",".join(f"{i}@{HOST}:{controllers[i - 1]}" for i in quorum)
        replicas = str(min(3, brokers))
        common = {
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENT:"
            + self.security.protocol,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Few internal partitions: the first group and the first transaction start at once.
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Nothing is written while nothing happens: idle brokers leave the cores to others.
            "metadata.max.idle.interval.ms": "0",
            **self.security.broker_properties(),
            **(settings or {}),
        }
        self.brokers = tuple(
            Broker(
                i,
                {
                    "node.id": str(i),
                    "process.roles": "broker,controller" if i in quorum else "broker",
                    "log.dirs": str(self.folder / f"data-{i}"),
                    "listeners": (
                        f"CLIENT://{HOST}:{clients[i - 1]},INTERNAL://{HOST}:{internals[i - 1]}"
                        + (f",CONTROLLER://{HOST}:{controllers[i - 1]}" if i in quorum else "")
                    ),
                    "advertised.listeners": (
                        f"CLIENT://{HOST}:{fronts[i - 1]},INTERNAL://{HOST}:{internals[i - 1]}"
                    ),
                    **common,
                },
                port=clients[i - 1],
                advertised_port=fronts[i - 1],
                probe_port=internals[i - 1],
                folder=self.folder,
                lab_folder=lab_folder or self.folder,
                classpath=self._classpath,
                heap=heap,
                jvm_flags=[*self._archive, *jvm_flags],
                alone=brokers == 1,
            )
            for i in range(1, brokers + 1)
        )

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:p1,127.0.0.1:p2``, as advertised."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def back_door(self) -> str:
        """Bootstrap servers that reach the brokers directly, whatever stands before their ports.

        Plain text, and not behind an authorizer's back: it is the listener between brokers.
        """
        return ",".join(broker.back_door for broker in self.brokers)

    def broker(self, node_id: int) -> Broker:
        """The node with id 1..N."""
        return self.brokers[node_id - 1]

    def client_properties(
        self, mechanism: str = "SCRAM-SHA-512", user: str = USER
    ) -> dict[str, str]:
        """Kafka client keys to reach the cluster.

        Args:
            mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; only matters with SASL.
            user: alice, or one of ``security.GUESTS``, whom clusters with an authorizer know.
        """
        return {
            "bootstrap.servers": self.bootstrap,
            **self.security.client_properties(mechanism, user),
        }

    def begin_format(self) -> list[subprocess.Popen[str]]:
        """Formats each node without data; ``finish_format`` waits for it.

        By Kafka's StorageTool, a JVM for each; from the second cluster of a kind on by copying.
        """
        kept = self.folder / "cluster.id"
        if not kept.exists():
            kept.write_text(_new_id(), "utf-8")
        args = [
            "format",
            "--cluster-id",
            kept.read_text("utf-8"),
            *self.security.format_arguments(),
        ]
        fresh = [broker for broker in self.brokers if not broker.formatted]
        if self._kind in _formatted:
            for broker in fresh:
                self._format_alike(broker, kept.read_text("utf-8"))
            return []
        return [
            run_java(
                java_command(
                    "kafka.tools.StorageTool",
                    [*args, "--config", str(broker.properties_path)],
                    classpath=self._classpath,
                    folder=self.folder,
                    jvm_flags=self._archive,
                )
            )
            for broker in fresh
        ]

    def _format_alike(self, broker: Broker, cluster_id: str) -> None:
        own = {"node.id": broker.node_id, "cluster.id": cluster_id, "directory.id": _new_id()}
        broker.data_folder.mkdir(exist_ok=True)
        for name, content in _formatted[self._kind].items():
            for key, value in own.items() if name == "meta.properties" else ():
                pattern = rb"(?m)^%s=.*$" % re.escape(key.encode())
                content = re.sub(pattern, f"{key}={value}".encode(), content)  # noqa: PLW2901
            (broker.data_folder / name).write_bytes(content)

    def finish_format(self, tools: list[subprocess.Popen[str]]) -> None:
        """Waits for what ``begin_format`` started.

        Raises:
            LabError: ``lab.format``, with what the tool said.
        """
        for tool in tools:
            out, err = tool.communicate()
            if tool.returncode != 0:
                abandon(tools)
                message = f"Kafka's StorageTool refused cluster {self.alias}:\n{out}{err}"
                raise LabError("lab.format", message.rstrip(), f"Settings are in {self.folder}.")
        if len(tools) == len(self.brokers):
            written = self.brokers[0].data_folder.iterdir()
            _formatted[self._kind] = {path.name: path.read_bytes() for path in written}

    def start(self) -> None:
        """Formats what is new and starts every broker that is not running; see ``wait_ready``."""
        self.finish_format(self.begin_format())
        self.start_brokers()

    def start_brokers(self) -> None:
        """Starts every broker that is not running; returns at once."""
        for broker in self.brokers:
            broker.start()

    def wait_ready(self, timeout_s: float = READY_SECONDS) -> None:
        """Waits until every broker answers and knows all the others as alive.

        Raises:
            LabError: ``lab.died`` or ``lab.timeout``, with the end of the broker's log.
        """
        deadline = time.monotonic() + timeout_s
        for broker in self.brokers:
            while broker.live_brokers() < len(self.brokers):
                # Each: none comes to know one that is dead.
                for each in self.brokers:
                    each.require_running()
                if time.monotonic() > deadline:
                    message = (
                        f"Cluster {self.alias}, {broker.name}: no answer in {timeout_s:.0f} s."
                        f" {broker.condition()}"
                    )
                    hint = f"See {broker.log_path}; is the machine busy with something else?"
                    raise LabError("lab.timeout", f"{message}\n{broker.log_tail()}", hint)
                time.sleep(0.05)

    def stop(self, grace_s: float = 5.0) -> None:
        """Stops every broker: SIGTERM, then SIGKILL after ``grace_s`` (0: at once)."""
        stop_all(self.brokers, grace_s)


def _new_id() -> str:
    """A random id as Kafka makes them: one that begins with a dash would look like an option."""
    while True:
        made = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made
