"""The canary on real brokers: it measures, goes up while the link is cut, and comes back."""

from __future__ import annotations

import time

import pytest
from driving import PlainEngine
from mirroring import wait_for
from proxy import Faults

from heliograph.config import MirrorMakerConfig
from heliograph.service import mirror as service


@pytest.fixture
def mirror(net, topic_name, monkeypatch):
    """Both directions' heartbeats, as MM2 emits them, and A->B mirrored through the proxies."""
    monkeypatch.setattr(service, "Engine", PlainEngine)
    source, target = f"{topic_name}A", f"{topic_name}B"
    values = {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": net.lab["A"].bootstrap,
        f"{target}.bootstrap.servers": net.lab["B"].bootstrap,
        f"{source}->{target}.enabled": "true",
        f"{source}->{target}.topics": topic_name,
        "refresh.topics.interval.seconds": "1",
        "heliograph.lease.seconds": "5",
        "heliograph.canary.interval.seconds": "1",
    } | {f"{kind}replication.factor": "1" for kind in
         ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")}  # fmt: skip
    made = service.Mirror(MirrorMakerConfig.from_mapping(values))
    made.start()
    yield made
    made.close()


def test_the_canary_measures_goes_up_under_a_cut_link_and_comes_back(mirror, net):
    def canary():
        copying = [f for f in mirror.snapshot().flows if f.topics]
        return copying[0].canary if copying else None

    wait_for(lambda: canary() is not None and canary().seen_at)
    first = canary()
    # Written by this very process, so its stamp is of the driver's own clock: what differs is how
    # long the write took. Under load that may be seconds.
    assert first.skew_seconds is not None and first.skew_seconds > -0.1
    assert first.lost == 0
    before = time.time()
    net.proxies.set(net.b, Faults(refuse=True))
    net.proxies.cut(net.b)
    wait_for(lambda: canary().latency_seconds > max(5.0, first.latency_seconds))
    assert canary().latency_seconds <= time.time() - before + 10.0
    net.proxies.heal()
    wait_for(lambda: canary().seen_at > first.seen_at and canary().latency_seconds < 5.0)
