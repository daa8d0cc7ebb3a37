"""``lab.json``: what runs in a lab's folder, for ``status`` and ``down`` from another process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from heliograph.errors import LabError
from heliograph.lab.cluster import Cluster
from heliograph.lab.process import MARKER

__all__ = [
    "ClusterState",
    "LabState",
    "NodeState",
    "describe",
    "read",
    "require_same_shape",
    "stop",
    "write",
]

_FILE = "lab.json"


@dataclass(frozen=True, slots=True)
class NodeState:
    """One broker as recorded when it was last started."""

    id: int
    address: str
    pid: int

    def alive(self, folder: Path) -> bool:
        """Whether ``pid`` is still this lab's broker: its command line carries the lab's mark."""
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return f"{MARKER}{folder}" in process.cmdline()
        except psutil.Error:
            return False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One cluster of a lab."""

    alias: str
    bootstrap: str
    kafka_version: str
    folder: str
    nodes: tuple[NodeState, ...]


@dataclass(frozen=True, slots=True)
class LabState:
    """All of ``lab.json``.

    Attributes:
        status: ``starting``, ``running`` or ``stopped``, as last written by the supervisor.
        supervisor_pid: the process that started the brokers.
        supervisor_created: its start time, so that a reused pid is not mistaken for it.
    """

    folder: Path
    status: str
    supervisor_pid: int
    supervisor_created: float
    clusters: tuple[ClusterState, ...]

    @property
    def supervisor_alive(self) -> bool:
        """Whether the process that started the brokers still runs."""
        try:
            process = psutil.Process(self.supervisor_pid)
            created: float = process.create_time()
            zombie = process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False
        return not zombie and abs(created - self.supervisor_created) < 1.0

    @property
    def live_nodes(self) -> list[NodeState]:
        """The brokers that run at this moment."""
        return [n for c in self.clusters for n in c.nodes if n.alive(self.folder)]


def write(folder: Path, status: str, clusters: Sequence[Cluster]) -> None:
    """Replaces ``lab.json`` atomically; called by the process that owns the brokers."""
    me = psutil.Process()
    content = {
        "status": status,
        "supervisor_pid": me.pid,
        "supervisor_created": me.create_time(),
        "config": str(folder / "mm2.properties"),
        "clusters": [
            {
                "alias": cluster.alias,
                "bootstrap": cluster.bootstrap,
                "kafka_version": cluster.kafka_version,
                "folder": str(cluster.folder),
                "nodes": [asdict(NodeState(b.node_id, b.address, b.pid)) for b in cluster.brokers],
            }
            for cluster in clusters
        ],
    }
    part = folder / f"{_FILE}.part"
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(folder / _FILE)


def read(folder: Path) -> LabState | None:
    """What ``lab.json`` says; None when there is no lab in ``folder``.

    Raises:
        LabError: ``lab.bad-state``: the file is there but is not ours.
    """
    path = folder / _FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return LabState(
            folder=folder,
            status=content["status"],
            supervisor_pid=int(content["supervisor_pid"]),
            supervisor_created=float(content["supervisor_created"]),
            clusters=tuple(
                ClusterState(
                    alias=c["alias"],
                    bootstrap=c["bootstrap"],
                    kafka_version=c["kafka_version"],
                    folder=c["folder"],
                    nodes=tuple(NodeState(n["id"], n["address"], n["pid"]) for n in c["nodes"]),
                )
                for c in content["clusters"]
            ),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is not a lab's state: {error!r}."
        raise LabError("lab.bad-state", message, "Delete the folder or use another one.") from error


def describe(lab: LabState) -> dict[str, object]:
    """The state as plain values for JSON, with what is alive at this moment."""
    return {
        "folder": str(lab.folder),
        "config": str(lab.folder / "mm2.properties"),
        "status": lab.status if lab.supervisor_alive else "stopped",
        "supervisor": {"pid": lab.supervisor_pid, "alive": lab.supervisor_alive},
        "clusters": [
            {
                "alias": cluster.alias,
                "bootstrap": cluster.bootstrap,
                "kafka_version": cluster.kafka_version,
                "folder": cluster.folder,
                "brokers": [
                    {**asdict(node), "alive": node.alive(lab.folder)} for node in cluster.nodes
                ],
            }
            for cluster in lab.clusters
        ],
    }


def require_same_shape(folder: Path, shape: Mapping[str, int]) -> None:
    """Refuses to start over brokers or data of another lab.

    Args:
        folder: of the lab.
        shape: the number of brokers by alias.

    Raises:
        LabError: ``lab.in-use`` or ``lab.other-shape``.
    """
    earlier = read(folder)
    if earlier is None or not earlier.clusters:
        return
    down = f"heliograph lab down --folder {folder}"
    if earlier.live_nodes:
        raise LabError("lab.in-use", f"Brokers of an earlier lab run in {folder}.", f"`{down}`")
    held = {c.alias: len(c.nodes) for c in earlier.clusters}
    if held != dict(shape):
        message = (
            f"{folder} holds the data of another lab: brokers {held}, asked for {dict(shape)}."
        )
        raise LabError("lab.other-shape", message, f"`{down} --delete`, or use another folder.")


def stop(lab: LabState, grace_s: float = 10.0) -> int:
    """Stops a lab of another process: its supervisor in order, then any broker left over.

    Returns:
        How many brokers were running.
    """
    count = len(lab.live_nodes)
    if lab.supervisor_alive and lab.supervisor_pid != os.getpid():
        with suppress(psutil.NoSuchProcess):  # ended by itself since
            supervisor = psutil.Process(lab.supervisor_pid)
            supervisor.terminate()
            try:
                supervisor.wait(grace_s)
            except psutil.TimeoutExpired:
                supervisor.kill()
    # Read again: the supervisor may have restarted a broker since. Linux kills them with it.
    deadline = time.monotonic() + 2.0
    current = read(lab.folder) or lab
    while current.live_nodes and time.monotonic() < deadline:
        time.sleep(0.05)
    for node in current.live_nodes:
        with suppress(psutil.Error):
            broker = psutil.Process(node.pid)
            broker.kill()
            broker.wait(grace_s)  # its folder may be deleted next
    return count
