"""The documented example of own filters and policies, at work between two clusters."""

from __future__ import annotations

import os
import subprocess
import sys

from mirroring import wait_for

from heliograph.config import load
from heliograph.config.properties import dump
from heliograph.control.topics.refresh import TopicRefresh
from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient


def write(lab, path, **values):
    base = {
        "clusters": "A,B", "A.bootstrap.servers": lab["A"].bootstrap,
        "B.bootstrap.servers": lab["B"].bootstrap, "A->B.enabled": "true",
        "replication.factor": "1", "topic.filter.class": "team-topics",
        "offset-syncs.topic.replication.factor": "1", "heartbeats.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
    }  # fmt: skip
    path.write_text(dump({**base, **values}))
    return path


def test_own_filters_and_an_own_policy_make_the_topics(
    lab, example_package, tmp_path, topic_name, monkeypatch
):
    monkeypatch.syspath_prepend(example_package)
    config = load(
        write(lab, tmp_path / "mm2.properties", **{
            "replication.policy.class": "suffix", "config.property.filter.class": "own-retention",
            "heliograph.plugin.teams": topic_name, "heartbeats.replication.enabled": "false",
        })
    ).flows[0]  # fmt: skip
    configs = {"retention.ms": "1000000", "segment.ms": "1000000"}
    new = [admin.NewTopic(t, 1, 1, configs) for t in (f"{topic_name}.in", f"{topic_name}-in")]
    with (
        ClusterClient(ClientSettings("A", lab["A"].client_properties()), "test") as source,
        ClusterClient(ClientSettings("B", lab["B"].client_properties()), "test") as target,
    ):
        assert not admin.create_topics(source, new, 30_000)
        for topic in new:
            wait_for(lambda name=topic.name: source.metadata([name]).leader(name, 0) >= 0)
        refresh = TopicRefresh(config, source, target).refresh
        partitions = wait_for(lambda: refresh().partitions)
        assert set(partitions.values()) == {f"{topic_name}.in-from-A"}
    described = lab.tool(
        "TopicCommand", "--bootstrap-server", lab["B"].bootstrap, "--describe",
        "--topic", f"{topic_name}.in-from-A",
    )  # fmt: skip
    assert "segment.ms=1000000" in described
    assert "retention.ms" not in described


def test_a_class_that_cannot_be_made_ends_the_start_with_its_name(lab, example_package, tmp_path):
    # heliograph.plugin.teams is missing.
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "run", write(lab, tmp_path / "mm2.properties")],
        env={**os.environ, "PYTHONPATH": str(example_package)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert (
        "[config.plugin] topic.filter.class=team-topics: heliograph_teams:TeamTopics of"
        " heliograph-teams 1.0 cannot be made: KeyError: 'heliograph.plugin.teams'"
    ) in done.stderr
    assert "Traceback" not in done.stderr
