"""What all scenarios share: two clusters, a clock, and mirrors that are started and cleaned up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from benchmarks.contenders import Contender, Mirror, Situation
from benchmarks.footprint import Footprint
from heliograph.lab import Lab
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError
from heliograph.wire.metadata import Metadata

__all__ = ["PARTITIONS", "QUIET", "SOURCE", "TARGET", "Bench", "Counter", "MeasureError", "Run"]

SOURCE, TARGET = "A", "B"
PARTITIONS = 4  # of every topic, where a scenario has no reason for another number
# librdkafka tells standard error when a broker goes away, as the lab's do at the end.
QUIET = {"log_level": 0}
_ADMIN_SECONDS = 60.0


class MeasureError(Exception):
    """A figure could not be measured; the message says why. The others still are."""


class Counter:
    """Counts records of one cluster by the ends of its partitions: one small request per look."""

    def __init__(self, bootstrap: str) -> None:
        settings = ClientSettings("bench", {"bootstrap.servers": bootstrap})
        self._client = ClusterClient(settings, "benchmark")
        self._metadata: Metadata | None = None

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def forget(self) -> None:
        """Drops what is known of topics: those of the last run are gone."""
        self._metadata = None

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """End offsets; partitions that do not exist yet are absent."""
        wanted = list(partitions)
        try:
            if self._metadata is None or any(
                self._metadata.leader(p.topic, p.partition) < 0 for p in wanted
            ):
                self._metadata = self._client.metadata(sorted({p.topic for p in wanted}))
            return admin.list_offsets(self._client, self._metadata, wanted, admin.LATEST)
        except WireError:
            self._metadata = None
            return {}


@dataclass(frozen=True, slots=True)
class Run:
    """One mirror at work on its own pair of aliases."""

    mirror: Mirror
    footprint: Footprint
    source_alias: str
    started: float  # time.monotonic()

    def remote(self, topic: str) -> str:
        """Name of ``topic`` on the target."""
        return f"{self.source_alias}.{topic}"

    def remote_partitions(self, topic: str, count: int) -> list[TopicPartition]:
        """Partitions of ``topic`` on the target."""
        return [TopicPartition(self.remote(topic), i) for i in range(count)]


class Bench:
    """Two clusters of one broker each, and what is measured on them.

    Every run of a mirror gets aliases of its own for the same two clusters (A7 -> B7), so that each
    starts without any state; its topics are deleted afterwards.
    """

    def __init__(self, lab: Lab, console: Console) -> None:
        self.lab = lab
        self.counters = {alias: Counter(lab[alias].bootstrap) for alias in (SOURCE, TARGET)}
        self._console = console
        self._began = time.monotonic()
        self._runs = 0
        self._admins = {
            alias: AdminClient({"bootstrap.servers": lab[alias].bootstrap, **QUIET})
            for alias in (SOURCE, TARGET)
        }

    def close(self) -> None:
        """Closes the connections of the benchmark itself."""
        for counter in self.counters.values():
            counter.close()

    def say(self, text: str) -> None:
        """A line of progress with the seconds since the beginning."""
        elapsed = time.monotonic() - self._began
        self._console.print(f"[dim]{elapsed:6.1f} s[/]  {text}", highlight=False)

    def create_topics(
        self, alias: str, partitions: Mapping[str, int], configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates topics, all with the same ``configs``, and waits until they can be written to."""
        new = [
            NewTopic(name, count, 1, config=dict(configs or {}))
            for name, count in partitions.items()
        ]
        for done in self._admins[alias].create_topics(new, request_timeout=_ADMIN_SECONDS).values():
            done.result(_ADMIN_SECONDS)
        wanted = [TopicPartition(t, i) for t, count in partitions.items() for i in range(count)]
        deadline = time.monotonic() + _ADMIN_SECONDS
        while len(self.counters[alias].ends(wanted)) < len(wanted):
            if time.monotonic() > deadline:
                raise MeasureError(f"topics of cluster {alias} have no leader after 60 s")
            time.sleep(0.05)

    def delete_topics(self, alias: str, keep: Iterable[str] = ()) -> None:
        """Deletes every topic but Kafka's own and ``keep``, and lets the disk settle."""
        listed = self._admins[alias].list_topics(timeout=_ADMIN_SECONDS).topics
        doomed = [name for name in listed if not name.startswith("__") and name not in keep]
        if doomed:
            deleted = self._admins[alias].delete_topics(doomed, request_timeout=_ADMIN_SECONDS)
            for done in deleted.values():
                try:
                    done.result(_ADMIN_SECONDS)
                except KafkaException as error:
                    # A broker lists for a moment what the controller has deleted already.
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        self.counters[alias].forget()

    @contextmanager
    def run(
        self, contender: Contender, topics: str, situation: Situation, keep: Iterable[str]
    ) -> Iterator[Run]:
        """Starts a mirror of the regex ``topics``; stops it and removes its traces at the end.

        Args:
            contender: what to start.
            topics: value of MM2's key.
            situation: what to tune for.
            keep: topics of the source to leave alone.
        """
        self._runs += 1
        source = (f"{SOURCE}{self._runs}", self.lab[SOURCE].bootstrap)
        target = (f"{TARGET}{self._runs}", self.lab[TARGET].bootstrap)
        properties = contender.properties(source, target, topics, situation)
        folder = self.lab.folder / f"run{self._runs}-{contender.key}"
        folder.mkdir()
        path = folder / "mm2.properties"
        path.write_text("".join(f"{k} = {v}\n" for k, v in properties.items()), encoding="utf-8")
        mirror = contender.make(path, folder)
        # Dirty pages of the last run would otherwise be written during this one.
        os.sync()
        started = time.monotonic()
        mirror.start()
        try:
            with Footprint(mirror.pid) as footprint:
                yield Run(mirror, footprint, source[0], started)
        finally:
            mirror.stop(grace_s=10.0)
            self.delete_topics(TARGET)
            self.delete_topics(SOURCE, keep)

    def wait_for_first(
        self, run: Run, count: Callable[[], int], timeout_s: float, interval_s: float
    ) -> tuple[float, int]:
        """Waits until a record is on the target: seconds since the start, records seen by then.

        Args:
            run: the mirror that writes it.
            count: looks how many records are on the target.
            timeout_s: after which it is given up.
            interval_s: between two looks.

        Raises:
            MeasureError: none came in ``timeout_s``.
            LabError: the mirror ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = count()
            now = time.monotonic()
            if seen:
                return now - run.started, seen
            if now > deadline:
                raise MeasureError(f"no record on the target after {timeout_s:.0f} s")
            run.mirror.require_running()
            time.sleep(interval_s)
