"""``heliograph doctor``: asks everything, judges, and returns the findings. Runs in a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from heliograph.config import FlowConfig, MirrorMakerConfig
from heliograph.doctor import (  # noqa: F401 - in the order of the report
    cluster_checks,
    flow_checks,
    machine_checks,
    pace_checks,
    rights_checks,
    topic_checks,
)
from heliograph.doctor.clusters import look_at_cluster
from heliograph.doctor.facts import ClusterFacts, FlowFacts
from heliograph.doctor.findings import CHECKS, Finding, Missing, Scope, Verdict
from heliograph.doctor.flows import look_at_flow
from heliograph.doctor.machine import look_at_file, look_at_machine
from heliograph.doctor.parallel import Progress, ask_all
from heliograph.model import ClientSettings

__all__ = ["Examination", "connections_of", "examine", "judged"]

#: Questions that wait for others: a cluster is asked in three steps, a flow in two.
_STEPS = 3.5
#: Connections of a process to each broker of a flow. A driver was seen with 7, for the heartbeats
#: of the way back, too: clients of jobs, of the claim, of the canary. A worker had 4.
_PER_BROKER = 8


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def healthy(self) -> bool:
        """Whether there is no problem; warnings are no problem."""
        return not any(f.said.verdict is Verdict.PROBLEM for f in self.findings)

    def count(self, verdict: Verdict) -> int:
        """How many findings have this verdict."""
        return sum(f.said.verdict is verdict for f in self.findings)


def examine(file: Path, listen: str | None, seconds: float, progress: Progress) -> Examination:
    """Look at a file and at all that it names; each question has so many seconds."""
    facts, config = look_at_file(file)
    findings = [*judged(Scope.FILE, file.name, facts)]
    machine = look_at_machine(config, listen)
    clusters = _clusters(config, seconds, progress) if config is not None else {}
    if config is not None:
        machine = replace(machine, connections=connections_of(config, clusters))
    findings += judged(Scope.MACHINE, "this machine", machine)
    if config is not None:
        for alias, cluster in clusters.items():
            findings += judged(Scope.CLUSTER, alias, cluster)
        for flow in _flows(config, clusters, seconds, progress):
            findings += judged(Scope.FLOW, str(flow.config.flow), flow)
    return Examination(findings)


def judged(scope: Scope, about: str, facts: object) -> Iterator[Finding]:
    """What all checks of a scope say."""
    for one in CHECKS.values():
        if one.scope is scope:
            yield from one.findings(about, facts)


def connections_of(config: MirrorMakerConfig, clusters: Mapping[str, ClusterFacts]) -> int:
    """How many connections one process of the mirror may have open, to the brokers that answer."""
    brokers = {alias: len(cluster.brokers) for alias, cluster in clusters.items()}
    sides = [(f.flow.source, f.flow.target) for f in config.flows if f.enabled]
    return _PER_BROKER * sum(brokers[source] + brokers[target] for source, target in sides)


def _clusters(
    config: MirrorMakerConfig, seconds: float, progress: Progress
) -> Mapping[str, ClusterFacts]:
    used: dict[str, dict[str, ClientSettings]] = {}
    for flow in config.flows:
        sides = [(flow.flow.target, "admin", flow.target_admin)]
        if flow.enabled:
            sides += [
                (flow.flow.source, "admin", flow.source_admin),
                (flow.flow.source, "consumer", flow.source_client),
                (flow.flow.target, "producer", flow.target_client),
            ]
        for alias, role, settings in sides:
            used.setdefault(alias, {}).setdefault(role, settings)
    questions = {
        alias: partial(look_at_cluster, alias, clients, seconds, progress)
        for alias, clients in sorted(used.items(), key=lambda item: config.clusters.index(item[0]))
    }
    told = ask_all(questions, _STEPS * seconds, progress)
    return {
        alias: ClusterFacts(alias, used[alias]["admin"], {}, facts)
        if isinstance(facts, Missing)
        else facts
        for alias, facts in told.items()
    }


def _flows(
    config: MirrorMakerConfig,
    clusters: Mapping[str, ClusterFacts],
    seconds: float,
    progress: Progress,
) -> Iterator[FlowFacts]:
    def look(flow: FlowConfig) -> FlowFacts:
        source, target = clusters[flow.flow.source], clusters[flow.flow.target]
        back = (flow.flow.target, flow.flow.source)
        opposite = next(
            (f for f in enabled.values() if (f.flow.source, f.flow.target) == back), None
        )
        return look_at_flow(flow, opposite, source, target, seconds, progress)

    enabled = {str(flow.flow): flow for flow in config.flows if flow.enabled}
    questions = {name: partial(look, flow) for name, flow in enabled.items()}
    for name, facts in ask_all(questions, _STEPS * seconds, progress).items():
        if isinstance(facts, Missing):
            flow = enabled[name].flow
            sides = clusters[flow.source], clusters[flow.target]
            yield FlowFacts(enabled[name], *sides, *[facts] * 8)
        else:
            yield facts
