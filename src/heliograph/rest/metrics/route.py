"""The route, and how a snapshot becomes text. Runs in the REST server, in threads of handlers."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from heliograph.rest.latest import Latest
from heliograph.rest.metrics.mm2 import add_mm2_connectors, add_mm2_copies, add_mm2_groups
from heliograph.rest.metrics.own import add_flow, add_mirror, add_partitions, add_topics
from heliograph.rest.metrics.process import ProcessFigures
from heliograph.rest.metrics.series import Series
from heliograph.rest.metrics.topics import shown_topics
from heliograph.rest.routing import Answer, Call, Route
from heliograph.rest.settings import MetricsSettings, RestSettings, Role
from heliograph.service.certificates import CertificateWatch
from heliograph.service.snapshot import MirrorSnapshot

__all__ = ["exposition", "metrics_route"]


def metrics_route(latest: Latest, settings: RestSettings) -> Route:
    """``GET /metrics`` of what ``latest`` knows, and of when the server's certificate ends."""
    own = CertificateWatch(lambda: [("rest", settings.tls)])

    def metrics(_: Call) -> Answer:
        found = latest.get()
        certificates = (*found.certificates, *own.known())
        return Answer(exposition(replace(found, certificates=certificates), settings.metrics))

    return Route(
        method="GET", path="/metrics", role=Role.VIEWER, handler=metrics, tag="heliograph",
        summary="All figures, for Prometheus", produces=CONTENT_TYPE_PLAIN_0_0_4, consumes=False,
    )  # fmt: skip


def exposition(found: MirrorSnapshot, settings: MetricsSettings) -> bytes:
    """A snapshot and the figures of this process, in Prometheus' text format."""
    series = Series()
    add_mirror(series, found)
    shown = shown_topics(found.flows, settings.topics)
    for flow in found.flows:
        add_flow(series, flow)
        add_topics(series, flow, shown[flow.flow])
        if settings.partitions:
            add_partitions(series, flow, shown[flow.flow])
    add_mm2_connectors(series, found)
    for flow in found.flows:
        add_mm2_copies(series, flow, shown[flow.flow], partitions=settings.partitions)
        add_mm2_groups(series, flow, settings.topics)
    process = ProcessFigures(found.engine.pid if found.engine is not None else None)
    return series.text() + generate_latest(process)
