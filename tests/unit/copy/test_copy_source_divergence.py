"""Which events say that a setting lets a flow go on past lost records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.copy.leader_epochs import Divergence
from heliograph.copy.source_divergence import SourceDivergence
from heliograph.errors import PartitionError
from heliograph.model import Flow, TopicPartition

PARTITION: Any = SimpleNamespace(
    source=TopicPartition("orders", 0), target=TopicPartition("A.orders", 0), failing=None
)


@pytest.mark.parametrize("policy", ["fail", "continue", "restart-topic"])
@pytest.mark.parametrize("what", ["data.loss", "truncation"])
def test_an_event_names_the_setting_only_where_the_flow_goes_on(what, policy):
    policies = {"on_data_loss": "fail", "on_truncation": "fail"}
    context: Any = SimpleNamespace(
        flow=Flow("A", "B"), **policies | {f"on_{what.replace('.', '_')}": policy}
    )
    cluster: Any = SimpleNamespace(client=None, silent=None)
    ledger: Any = None
    told: list[tuple[int, int, str]] = []

    def add_event(p, code, text, first, until, policy=""):
        told.append((first, until, policy))

    looked = SourceDivergence(context, cluster, ledger, add_event)
    goes_on = policy == "continue"
    try:
        if what == "data.loss":
            looked.overrun(PARTITION, 10, 15)
        else:
            looked._decide_truncated(PARTITION, Divergence(10, 3, 5, 15, 20, 25))
        assert goes_on
    except PartitionError:
        assert not goes_on
    assert told == [(10, 15, f"heliograph.on.{what}=continue" if goes_on else "")]
