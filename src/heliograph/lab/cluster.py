"""A real KRaft cluster on loopback."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.errors import LabError
from heliograph.lab.artifacts import Artifact, classpath
from heliograph.lab.broker import HOST, Broker, free_ports
from heliograph.lab.process import abandon, run_java, stop_all
from heliograph.lab.security import USER, Security

__all__ = ["DEFAULT_KAFKA_VERSION", "Cluster"]

DEFAULT_KAFKA_VERSION = "4.3.1"


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
        """
        self.alias, self.folder = alias, folder.resolve()
        self.kafka_version = kafka_version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.security = Security.create(security, self.folder, authorizer)
        self._classpath = classpath(kafka_version, Artifact.KAFKA)
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
        """Starts Kafka's StorageTool for each node without data; ``finish_format`` waits for it."""
        kept = self.folder / "cluster.id"
        if not kept.exists():
            kept.write_text(_new_cluster_id(), "utf-8")
        args = [
            "format",
            "--cluster-id",
            kept.read_text("utf-8"),
            *self.security.format_arguments(),
        ]
        return [
            run_java(
                "kafka.tools.StorageTool",
                [*args, "--config", str(broker.properties_path)],
                classpath=self._classpath,
                folder=self.folder,
            )
            for broker in self.brokers
            if not broker.formatted
        ]

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

    def start(self) -> None:
        """Formats what is new and starts every broker that is not running; see ``wait_ready``."""
        self.finish_format(self.begin_format())
        self.start_brokers()

    def start_brokers(self) -> None:
        """Starts every broker that is not running; returns at once."""
        for broker in self.brokers:
            broker.start()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Waits until every broker answers and knows all the others as alive.

        Raises:
            LabError: ``lab.died`` or ``lab.timeout``, with the end of the broker's log.
        """
        deadline = time.monotonic() + timeout_s
        for broker in self.brokers:
            while broker.live_brokers() < len(self.brokers):
                broker.require_running()
                if time.monotonic() > deadline:
                    message = (
                        f"Cluster {self.alias}, {broker.name}: no answer in {timeout_s:.0f} s."
                    )
                    hint = f"See {broker.log_path}; a loaded machine may need a longer timeout."
                    raise LabError("lab.timeout", f"{message}\n{broker.log_tail()}", hint)
                time.sleep(0.05)

    def stop(self, grace_s: float = 5.0) -> None:
        """Stops every broker: SIGTERM, then SIGKILL after ``grace_s`` (0: at once)."""
        stop_all(self.brokers, grace_s)


def _new_cluster_id() -> str:
    """A random id as Kafka makes them: one that begins with a dash would look like an option."""
    while True:
        made = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made
