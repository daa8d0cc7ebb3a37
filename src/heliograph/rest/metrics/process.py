"""Figures of the driver's process, and of Spark's Java. Runs in the REST server."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric as Family
from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import SummaryMetricFamily
from prometheus_client.registry import Collector

from heliograph.jvm.figures import JvmFigures, jvm_figures
from heliograph.rest.metrics import table as t
from heliograph.rest.metrics.series import Series

__all__ = ["ProcessFigures"]


class ProcessFigures(Collector):
    """``process_*`` and ``python_info``; `jvm_figures` of the process with that id, if any."""

    def __init__(self, jvm_pid: int | None) -> None:
        self._jvm_pid = jvm_pid

    def collect(self) -> Iterator[Family]:
        """Asks the system."""
        yield from ProcessCollector(registry=None).collect()
        yield from PlatformCollector(registry=None).collect()
        found = jvm_figures(self._jvm_pid) if self._jvm_pid is not None else None
        if found is not None:
            yield from _jvm(found)


def _jvm(found: JvmFigures) -> Iterator[Family]:
    series = Series()
    series.add(t.JVM_MEMORY, found.heap_bytes, "heap")
    series.add(t.JVM_MEMORY, found.metaspace_bytes, "nonheap")
    series.add(t.JVM_THREADS, found.threads)
    yield from series.collect()
    family = SummaryMetricFamily(t.JVM_GC.name, t.JVM_GC.help, labels=t.JVM_GC.labels)
    for name, (count, seconds) in found.collections.items():
        family.add_metric([name], count, seconds)
    yield family
