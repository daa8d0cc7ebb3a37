"""A flow that is being handed over must not be resumed."""

import pytest
from compacted_topic import CompactedTopic, follower_of

from heliograph.failover.open_handovers import OpenHandovers
from heliograph.failover.refusals import HandoverRefused
from heliograph.ledger.handovers import Handover, Handovers, Kind
from heliograph.ledger.holds import Subject
from heliograph.model import Flow

COPYING, ORDERS, CLICKS = Subject.part("copying"), Subject.topic("orders"), Subject.topic("clicks")
FLOW = Flow("A", "B")


class World:
    """Handovers as a command writes them, and what a mirror of a connector makes of them."""

    def __init__(self):
        topic = CompactedTopic()
        self._reader = follower_of(topic)
        writer = follower_of(topic)
        self.handovers = Handovers(writer)
        writer.refresh()
        self._mine, self._connectors = OpenHandovers(self._reader), OpenHandovers(self._reader, "c")

    def refused(self, *subjects):
        self._reader.refresh()
        for view in (self._mine, self._connectors):
            with pytest.raises(HandoverRefused) as caught:
                view.refuse_to_resume(FLOW, subjects)
        return caught.value

    def may_resume(self, *subjects):
        self._reader.refresh()
        for view in (self._mine, self._connectors):
            view.refuse_to_resume(FLOW, subjects)


def test_an_open_handover_is_named_with_the_command_that_ends_it():
    world = World()
    world.may_resume(COPYING)
    begun = world.handovers.note(Handover("1", Kind.FAILOVER, "bob@ops", 1_700_000_000_000))
    refusal = world.refused(COPYING)
    assert refusal.code == "handover.open" and refusal.exit_code == 1
    assert "A->B must not go on now: a failover of flow A->B, begun by bob@ops at" in str(refusal)
    assert "heliograph failover without --topics' goes on with it" in refusal.hint
    assert "'heliograph resume' lets A->B go on" in refusal.hint
    assert world.refused(ORDERS), "it is about all topics"
    world.handovers.end(begun)
    world.may_resume(COPYING)


def test_one_about_some_topics_keeps_these_only():
    world = World()
    facts = {"pattern": "ord.*"}
    world.handovers.note(Handover("1", Kind.FAILOVER, "bob", 1, ("orders",), facts=facts))
    world.may_resume(COPYING, CLICKS)
    refusal = world.refused(CLICKS, ORDERS)
    assert "(topics orders)" in str(refusal) and "--topics ord.*" in refusal.hint


def test_a_switchover_may_also_be_taken_back():
    world = World()
    world.handovers.note(Handover("1", Kind.SWITCHOVER, "bob", 1))
    assert "with --abort it is taken back" in world.refused(COPYING).hint
