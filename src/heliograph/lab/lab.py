"""Several clusters in one folder, described in ``lab.json`` for other terminals."""

from __future__ import annotations

import fcntl
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, TextIO, TypeVar

from heliograph.errors import LabError
from heliograph.jvm.archive import load_flags
from heliograph.jvm.artifacts import Artifact, classpath
from heliograph.lab import state
from heliograph.lab.cluster import (
    DEFAULT_KAFKA_VERSION,
    READY_SECONDS,
    SHORT_LIVED,
    Cluster,
    kafka_archive,
)
from heliograph.lab.process import abandon, java_command, run_java, stop_all

__all__ = ["Lab", "tool_command"]

_T = TypeVar("_T")


def tool_command(kafka_version: str, folder: Path, main: str, args: Sequence[str]) -> list[str]:
    """The command line of one of Kafka's own tools; see ``Lab.tool``."""
    name = main if "." in main else f"org.apache.kafka.tools.{main}"
    # Kafka first: its class archive serves every class path that begins with its jars.
    path = classpath(kafka_version, Artifact.KAFKA, Artifact.KAFKA_TOOLS, Artifact.CONNECT_MIRROR)
    flags = load_flags(kafka_archive(kafka_version))
    return java_command(name, args, classpath=path, folder=folder, jvm_flags=flags)


def _of(alias: str, value: _T | Mapping[str, _T]) -> _T:
    return value[alias] if isinstance(value, Mapping) else value


class Lab:
    """Real Kafka clusters for the demo, the tests and the benchmarks. A context manager.

    One live Lab per folder (``lab.in-use`` otherwise). Data stays in the folder: a second Lab of
    the same shape goes on with it. See ``JavaProcess`` for the thread that may start it.
    """

    def __init__(
        self,
        folder: Path | str,
        clusters: Sequence[str] = ("A", "B"),
        brokers: int | Mapping[str, int] = 1,
        kafka_version: str | Mapping[str, str] = DEFAULT_KAFKA_VERSION,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        heap: str = "512m",
        security: str | Mapping[str, str | None] | None = None,
        authorizer: bool | Mapping[str, bool] = False,
        advertised: Mapping[str, Sequence[int]] | None = None,
        jvm_flags: Sequence[str] = SHORT_LIVED,
    ) -> None:
        """Describes the lab; nothing is fetched, written or started before ``start``.

        Args:
            folder: for everything; created when missing.
            clusters: their aliases.
            brokers: per cluster, or one number for each.
            kafka_version: likewise.
            settings: extra broker keys by alias; ``"*"`` stands for all clusters.
            heap: of each broker.
            security: see ``Cluster``; per cluster, or one for each.
            authorizer: likewise.
            advertised: see ``Cluster``; by alias, for those whose clients shall go elsewhere.
            jvm_flags: see ``Cluster``.

        Raises:
            LabError: ``lab.bad-alias``, ``lab.bad-brokers``.
        """
        _check(clusters, brokers)
        self.folder = Path(folder).resolve()
        self.aliases = tuple(clusters)
        self.clusters: dict[str, Cluster] = {}
        self._brokers, self._version, self._security = brokers, kafka_version, security
        self._settings, self._heap, self._authorizer = settings or {}, heap, authorizer
        self._advertised, self._jvm_flags = advertised or {}, jvm_flags
        self._lock: TextIO | None = None

    def __getitem__(self, alias: str) -> Cluster:
        return self.clusters[alias]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def config_path(self) -> Path:
        """A ready-made mm2.properties: the first cluster mirrored to each of the others."""
        return self.folder / "mm2.properties"

    def start(self, timeout_s: float = READY_SECONDS) -> None:
        """Starts every cluster, all at once, and waits until they serve.

        Raises:
            LabError: in use, not to be fetched, died, timed out; nothing is left running then.
            StartError: no Java, or one too old.
        """
        self._take_folder()
        formats: list[tuple[Cluster, list[subprocess.Popen[str]]]] = []
        try:
            self.clusters = {alias: self._make(alias) for alias in self.aliases}
            for cluster in self.clusters.values():
                formats.append((cluster, cluster.begin_format()))  # noqa: PERF401  kept on errors
            for cluster, tools in formats:
                cluster.finish_format(tools)
            self._write_config()
            for cluster in self.clusters.values():
                cluster.start_brokers()
                for broker in cluster.brokers:
                    broker.on_start = self._write_state
            self._write_state("starting")
            for cluster in self.clusters.values():
                cluster.wait_ready(timeout_s)
            self._write_state()
        except BaseException:
            for _, tools in formats:
                abandon(tools)
            self.stop(grace_s=0)
            raise

    def stop(self, grace_s: float = 5.0) -> None:
        """Stops every broker and gives the folder back; harmless when nothing runs.

        Args:
            grace_s: between SIGTERM and SIGKILL; 0 kills at once, for data nobody wants to keep.
        """
        stop_all([broker for c in self.clusters.values() for broker in c.brokers], grace_s)
        if self._lock is not None:
            self._write_state("stopped")
            self._lock.close()
            self._lock = None

    def tool(
        self, main: str, *args: str, stdin: str | None = None, timeout_s: float = 180.0
    ) -> str:
        """Runs one of Kafka's own command-line tools and returns its standard output.

        MM2's formatters (``org.apache.kafka.connect.mirror.formatters.*``) are on its class path.

        Args:
            main: the Java class; one without a package is taken from ``org.apache.kafka.tools``.
            args: its arguments; pass ``--bootstrap-server`` yourself.
            stdin: text for its standard input.
            timeout_s: after which it is killed.

        Raises:
            LabError: ``lab.tool``: a non-zero exit code or a timeout, with all it said.
        """
        command = tool_command(_of(self.aliases[0], self._version), self.folder, main, args)
        with run_java(command, stdin=stdin) as process:
            try:
                out, err = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\nkilled after {timeout_s:.0f} s"
        if process.returncode != 0:
            message = f"{' '.join((main, *args))}: exit code {process.returncode}\n{out}{err}"
            raise LabError("lab.tool", message.rstrip())
        return out

    def _make(self, alias: str) -> Cluster:
        return Cluster(
            alias,
            self.folder / alias,
            _of(alias, self._brokers),
            _of(alias, self._version),
            {**self._settings.get("*", {}), **self._settings.get(alias, {})},
            self._heap,
            _of(alias, self._security),
            lab_folder=self.folder,
            authorizer=_of(alias, self._authorizer),
            advertised=self._advertised.get(alias, ()),
            jvm_flags=self._jvm_flags,
        )

    def _take_folder(self) -> None:
        """Locks the folder for the life of this process and checks what an earlier lab left."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            hint = f"`heliograph lab down --folder {self.folder}` stops it; or use another folder."
            raise LabError("lab.in-use", f"A lab runs in {self.folder}.", hint) from None
        try:
            state.require_same_shape(self.folder, self._shape())
        except LabError:
            lock.close()
            raise
        self._lock = lock

    def _shape(self) -> dict[str, int]:
        return {alias: _of(alias, self._brokers) for alias in self.aliases}

    def _write_state(self, status: str = "running") -> None:
        state.write(self.folder, status, list(self.clusters.values()))

    def _write_config(self) -> None:
        first, *others = self.aliases
        lines = ["# Written by `heliograph lab`: run it with `heliograph run`.", ""]
        lines.append(f"clusters = {', '.join(self.aliases)}")
        for alias, cluster in self.clusters.items():
            properties = cluster.client_properties()
            if not cluster.security.sasl and not cluster.security.tls:
                del properties["security.protocol"]
            lines += [f"{alias}.{key} = {value}" for key, value in properties.items()]
        lines += ["", *(f"{first}->{other}.enabled = true" for other in others), ""]
        replicas = min(3, *self._shape().values(), 3)
        for topic in ("", "heartbeats.topic.", "offset-syncs.topic.", "checkpoints.topic."):
            lines.append(f"{topic}replication.factor = {replicas}")
        self.config_path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _check(clusters: Sequence[str], brokers: int | Mapping[str, int]) -> None:
    for alias in clusters:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", alias):
            hint = "An alias prefixes topic names: letters, digits, _ and - only."
            raise LabError("lab.bad-alias", f"Bad cluster alias {alias!r}.", hint)
    if not clusters or len(set(clusters)) != len(clusters):
        message = f"Aliases must be given and be different: {','.join(clusters)!r}."
        raise LabError("lab.bad-alias", message)
    for alias in clusters:
        if not 1 <= _of(alias, brokers) <= 9:
            message = f"{_of(alias, brokers)} brokers for cluster {alias}: expected 1 to 9."
            raise LabError("lab.bad-brokers", message)
