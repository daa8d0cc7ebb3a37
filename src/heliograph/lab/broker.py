"""One Kafka node of a lab cluster: its properties file, its JVM, and a probe that it serves."""

from __future__ import annotations

import secrets
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.lab.process import MARKER, JavaProcess

__all__ = ["HOST", "Broker", "free_ports", "stop_file"]

HOST = "127.0.0.1"
# Below Linux's range for outgoing connections (32768 up): a client that keeps dialling a killed
# broker can otherwise be given the broker's own port and connect to itself.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_API_METADATA = 3
_SESSION = "broker.session.timeout.ms"
# Of a broker that is its own controller: no other could take over, and a machine that stands still
# for 9 s (Kafka's default) would leave the cluster without a broker for a moment.
_LONG_SESSION_MS = 600_000


def free_ports(count: int) -> list[int]:
    """``count`` different loopback ports that nobody listens on.

    On Linux no other process is given them while this one lives, also not while a broker is down.
    """
    found: list[int] = []
    while len(found) < count:
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if _reserve(port):
            found.append(port)
    return found


def _reserve(port: int) -> bool:
    """Bind a port that nobody has; False if somebody has it."""
    with socket.socket() as mine:
        try:
            mine.bind((HOST, port))
        except OSError:
            return False
        if sys.platform == "linux":
            # From now on servers may bind it too, and listen: they all set this. Whoever looks for
            # a free port does not, as above, and is refused. The descriptor stays open.
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            mine.detach()
    return True


def stop_file(cluster_folder: Path, node_id: int) -> Path:
    """While it is there, the lab keeps the broker stopped."""
    return cluster_folder / f"node-{node_id}.stopped"


class Broker(JavaProcess):
    """A Kafka node; starts again on the same ports with the same data.

    Attributes:
        node_id: 1, 2, ... in its cluster.
        port: of the listener for clients.
        advertised_port: where clients are told to go; ``port``, unless something stands between.
    """

    def __init__(
        self,
        node_id: int,
        properties: Mapping[str, str],
        *,
        port: int,
        advertised_port: int,
        probe_port: int,
        folder: Path,
        lab_folder: Path,
        classpath: str,
        heap: str,
        jvm_flags: Sequence[str],
        alone: bool,
    ) -> None:
        """Writes the node's properties file.

        ``probe_port`` is a PLAINTEXT listener; ``alone``: the cluster has no other broker.
        """
        self._long_session = alone and _SESSION not in properties
        self.node_id, self.port, self._probe_port = node_id, port, probe_port
        self._stopped_on_demand = False
        self.advertised_port = advertised_port
        self.properties_path = folder / f"node-{node_id}.properties"
        self.data_folder = Path(properties["log.dirs"])
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.properties_path.write_text(text, encoding="utf-8")
        flags = [f"{MARKER}{lab_folder}", f"-Xmx{heap}", "-Xms128m", "-XX:+UseG1GC"]
        super().__init__(
            f"node-{node_id}",
            "kafka.Kafka",
            [str(self.properties_path)],
            classpath=classpath,
            folder=folder,
            jvm_flags=[*flags, "-Djava.awt.headless=true", *jvm_flags],
        )

    def start(self) -> None:
        """As ``JavaProcess.start``."""
        self._args = [str(self.properties_path)]
        # After a kill the session of the killed process must end before the node is let in again.
        if self._long_session and not (self.data_folder / "__cluster_metadata-0").exists():
            self._args += ["--override", f"{_SESSION}={_LONG_SESSION_MS}"]
        super().start()

    @property
    def address(self) -> str:
        """``host:port`` for clients, as advertised."""
        return f"{HOST}:{self.advertised_port}"

    @property
    def back_door(self) -> str:
        """``host:port`` of the listener that brokers use among themselves, in plain text."""
        return f"{HOST}:{self._probe_port}"

    @property
    def formatted(self) -> bool:
        """Whether the data folder belongs to a cluster already."""
        return (self.data_folder / "meta.properties").exists()

    def obey_stop_file(self) -> bool:
        """Stops or starts as ``stop_file`` says; returns whether it should be running.

        A broker that died by itself stays dead.
        """
        wanted = not stop_file(self.folder, self.node_id).exists()
        if self._stopped_on_demand and wanted:
            self._stopped_on_demand = False
            self.start()
        elif not wanted and not self._stopped_on_demand:
            self._stopped_on_demand = True
            self.stop()
        return wanted

    def live_brokers(self, timeout_s: float = 1.0) -> int:
        """How many unfenced brokers this one knows of; 0 when it does not answer."""
        # Metadata v1, correlation 1, client "lab", no topics: known to every Kafka since 0.10.
        body = struct.pack(">hhih3si", _API_METADATA, 1, 1, 3, b"lab", 0)
        try:
            with socket.create_connection((HOST, self._probe_port), timeout_s) as link:
                link.settimeout(timeout_s)
                link.sendall(struct.pack(">i", len(body)) + body)
                answer = link.recv(12, socket.MSG_WAITALL)  # size, correlation, brokers
        except OSError:
            return 0
        return int(struct.unpack(">iii", answer)[2]) if len(answer) == 12 else 0
