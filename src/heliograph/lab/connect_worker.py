"""The real Kafka Connect, with MM2's connectors on its class path, to compare our answers with."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from heliograph.errors import LabError
from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.lab.broker import HOST, free_ports
from heliograph.lab.cluster import DEFAULT_KAFKA_VERSION, READY_SECONDS, SHORT_LIVED
from heliograph.lab.process import MARKER, JavaProcess

__all__ = ["ConnectWorker", "worker_properties"]

_ANSWER_SECONDS = 15.0  # /health itself answers after 10 s at the latest
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def worker_properties(
    client: Mapping[str, str], port: int, group: str = "connect"
) -> dict[str, str]:
    """A distributed worker's file as the tutorials have it, for a cluster of one broker.

    Args:
        client: how the worker reaches its cluster: ``Cluster.client_properties()``.
        port: where it serves HTTP, on loopback.
        group: its ``group.id``; the storage topics are ``<group>-configs`` and so on.
    """
    topics = {"config": "configs", "offset": "offsets", "status": "status"}
    return {
        **client,
        "group.id": group,
        **{f"{kind}.storage.topic": f"{group}-{name}" for kind, name in topics.items()},
        **{f"{kind}.storage.replication.factor": "1" for kind in topics},
        "listeners": f"http://{HOST}:{port}",
        # Only these copy bytes; MM2's documents and Strimzi set them.
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        # A minute by default: tests wait for stored positions.
        "offset.flush.interval.ms": "1000",
        # Five minutes by default: a worker that was killed is missed at once.
        "scheduled.rebalance.max.delay.ms": "0",
    }


class ConnectWorker(JavaProcess):
    """``ConnectDistributed``, one worker of a Connect cluster; starts again on the same port.

    Attributes:
        properties: of its file.
        properties_path: the file, which `heliograph connect` takes as well.
        url: ``http://127.0.0.1:port``, without a slash at the end.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        folder: Path | str,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        heap: str = "512m",
        version: str = DEFAULT_KAFKA_VERSION,
        name: str = "connect",
        jvm_flags: Sequence[str] = SHORT_LIVED,
    ) -> None:
        """Writes its properties file; ``start`` runs it.

        Args:
            client: how it reaches its cluster: ``Cluster.client_properties()``.
            folder: for the properties file and ``logs/<name>.log``.
            settings: keys that override or extend ``worker_properties``.
            port: for HTTP; a free one by default.
            heap: -Xmx.
            version: of Kafka.
            name: of the files, when several share a folder.
            jvm_flags: beside the heap; none for measurements.
        """
        folder = Path(folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        port = port or free_ports(1)[0]
        self.url = f"http://{HOST}:{port}"
        self.properties = {**worker_properties(client, port), **(settings or {})}
        self.properties_path = folder / f"{name}.properties"
        text = "".join(f"{key}={value}\n" for key, value in self.properties.items())
        self.properties_path.write_text(text, encoding="utf-8")
        super().__init__(
            name,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            [str(self.properties_path)],
            classpath=classpath(version, Artifact.CONNECT_MIRROR),
            folder=folder,
            jvm_flags=[f"{MARKER}{folder}", f"-Xmx{heap}", "-Djava.awt.headless=true", *jvm_flags],
            log_level="INFO",
        )

    def health(self) -> tuple[int, str]:
        """HTTP status and text of ``GET /health``; (0, why) when nothing answers."""
        try:
            # S310: the address is always http and loopback.
            with urllib.request.urlopen(  # noqa: S310
                f"{self.url}/health", timeout=_ANSWER_SECONDS
            ) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        except OSError as error:
            return 0, str(error)

    def wait_ready(self, timeout_s: float = READY_SECONDS) -> None:
        """Waits until the worker has joined its group and has read its topics.

        Raises:
            LabError: ``lab.died`` or ``lab.timeout``, with the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            status, said = self.health()
            if status == 200 and json.loads(said)["status"] == "healthy":
                return
            self.require_running()
            if time.monotonic() > deadline:
                message = f"{self.name}: {status} {said} after {timeout_s:.0f} s."
                message = f"{message} {self.condition()}\n{self.log_tail()}"
                raise LabError("lab.timeout", message, f"See {self.log_path}.")
            time.sleep(0.1)
