"""Where MM2 keeps its own state: the names that its Connect worker would use."""

from __future__ import annotations

import pytest

from heliograph.config import load

FILE = """clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


def state(tmp_path, *lines):
    path = tmp_path / "mm2.properties"
    path.write_text(FILE + "\n".join(lines))
    config = load(path)
    flow = next(f for f in config.flows if str(f.flow) == "A->B")
    return (flow.mm2_offsets_topic, flow.mm2_configs_topic, flow.mm2_group), config.warnings


def test_the_defaults_are_mm2s(tmp_path):
    found, warnings = state(tmp_path)
    assert found == ("mm2-offsets.A.internal", "mm2-configs.A.internal", "A-mm2")
    assert not warnings


def test_the_worker_of_a_flow_is_configured_by_its_target(tmp_path):
    lines = ("B.offset.storage.topic = o", "B.config.storage.topic = c", "B.group.id = g")
    assert state(tmp_path, *lines, "A.group.id = other")[0] == ("o", "c", "g")


def test_at_the_top_level_mm2_reads_topics_but_no_group(tmp_path):
    found, warnings = state(
        tmp_path, "offset.storage.topic = o", "B.offset.storage.topic = x", "group.id = g"
    )
    assert found == ("o", "mm2-configs.A.internal", "A-mm2")
    assert any("group.id" in str(w) for w in warnings)


@pytest.mark.parametrize("factor", ["offset.storage.replication.factor", "config.storage.x"])
def test_their_neighbours_are_still_accepted(tmp_path, factor):
    assert not state(tmp_path, f"{factor} = 1")[1]
