"""A Kafka cluster of the time before KRaft: one broker and the ZooKeeper that it needs."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.lab.broker import HOST, free_ports
from heliograph.lab.cluster import READY_SECONDS
from heliograph.lab.process import MARKER, JavaProcess, stop_all
from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError


class OldCluster:
    """As far like the lab's ``Cluster`` as a `Mirroring` needs it."""

    def __init__(self, folder: Path, kafka_version: str, **settings: str) -> None:
        jars = classpath(kafka_version, Artifact.KAFKA)
        keeper_port, self._port = free_ports(2)
        properties = {
            "broker.id": "1",
            "zookeeper.connect": f"{HOST}:{keeper_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            **settings,
        }
        config = folder / "broker.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        flags = [f"{MARKER}{folder}", "-Xmx256m"]
        self._keeper = JavaProcess(
            "zookeeper",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            [str(keeper_port), str(folder / "zookeeper")],
            classpath=jars,
            folder=folder,
            jvm_flags=[*flags, "-Dzookeeper.admin.enableServer=false"],
        )
        self._broker = JavaProcess(
            "broker", "kafka.Kafka", [str(config)], classpath=jars, folder=folder, jvm_flags=flags
        )
        self._keeper_port = keeper_port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    def client_properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    def start(self, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        self._keeper.start()
        self._wait(deadline, self._keeper, self._keeper_listens)
        self._broker.start()
        self._wait(deadline, self._broker, self._broker_serves)

    def stop(self) -> None:
        stop_all([self._broker, self._keeper], 0)

    def _wait(self, deadline, process, ready) -> None:
        while not ready():
            process.require_running()
            assert time.monotonic() < deadline, process.log_tail()
            time.sleep(0.2)

    def _keeper_listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._keeper_port), 1).close()
        except OSError:
            return False
        return True

    def _broker_serves(self) -> bool:
        settings = ClientSettings("old", self.client_properties())
        with ClusterClient(settings, "test", request_timeout=5) as client:
            try:
                return bool(client.cluster_id())
            except WireError:
                return False
