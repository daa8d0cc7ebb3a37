"""Collects values and writes them in Prometheus' text format. Pure; runs in the REST server.

prometheus_client writes the same text, and takes ten times as long: it looks at every label of
every sample. Here labels that several metrics share are written once. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from heliograph.rest.metrics.table import Metric, Twin

__all__ = ["Series"]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Series(Collector):
    """Values by metric and labels. What has the same labels is added up."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Metric, dict[tuple[str, ...], float]]] = {}

    def add(self, metric: Metric, value: float | None, *labels: str) -> None:
        """One more value; None is not known, and left out."""
        if value is None:
            return
        known = self._values.get(metric.name)
        if known is None:
            known = self._values[metric.name] = (metric, {})
        values = known[1]
        values[labels] = values.get(labels, 0) + value

    def twin(self, twin: Twin, value: float | None, name: str = "", *labels: str) -> None:
        """The same for both names; ``name`` is the first label, which the JMX exporter quotes."""
        if twin.jmx.labels:
            self.add(twin.jmx, value, f'"{name}"', *labels)
            self.add(twin.reporter, value, name, *labels)
        else:
            self.add(twin.jmx, value)
            self.add(twin.reporter, value)

    def choice(self, metric: Metric, chosen: str, choices: Sequence[str], *labels: str) -> None:
        """1 for what was chosen and 0 for the rest: a series each."""
        for choice in choices:
            self.add(metric, choice == chosen, *labels, choice)

    def text(self) -> bytes:
        """All of it. Text that is no Unicode has question marks."""
        lines: list[str] = []
        written: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        for name, (metric, values) in self._values.items():
            kind = "untyped" if metric.kind == "unknown" else metric.kind
            lines.append(f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n")
            for labels, value in values.items():
                key = metric.labels, labels
                if (pairs := written.get(key)) is None:
                    pairs = written[key] = _pairs(*key)
                lines.append(f"{name}{pairs} {value!r}\n")
        return "".join(lines).encode("utf-8", "replace")

    def collect(self) -> Iterator[Family]:
        """As prometheus_client wants them."""
        for metric, values in self._values.values():
            family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
            family.samples = [
                Sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
                for labels, value in values.items()
            ]
            yield family


def _pairs(names: Sequence[str], values: Sequence[str]) -> str:
    made = ",".join(
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{made}}}" if made else ""
