"""Handovers and answers to holds, as views of a topic."""

import uuid

from compacted_topic import CompactedTopic, follower_of

from heliograph.ledger.codec import Place
from heliograph.ledger.handovers import Cut, CutAt, Handover, Handovers, Kind, RestingCuts
from heliograph.ledger.holds import STANDBY, Holds, Resting, Subject


class Views:
    """The views of one process on a topic."""

    def __init__(self, topic, scope=""):
        self._follower = follower_of(topic)
        self.handovers = Handovers(self._follower, scope)
        self.holds = Holds(self._follower, scope)
        self.cuts = RestingCuts(self._follower, scope)

    def refresh(self):
        self._follower.refresh()
        return self


def test_a_handover_is_read_as_it_was_written():
    topic = CompactedTopic()
    mine, others = Views(topic).refresh(), Views(topic, "team/a").refresh()
    made = Handover("1f", Kind.FAILOVER, "me@here", 5, ("orders",), ("announce",), facts={"x": [1]})
    mine.handovers.note(made)
    cut = Cut("1f", "a", "b", {0: CutAt(10, 12), 3: CutAt(7, 7, exact=False)})
    mine.handovers.cut({"orders": cut})
    mine.refresh()
    others.refresh()
    assert mine.handovers.last == made
    assert mine.handovers.cuts == {"orders": cut}
    assert made.open and made.concerns("orders") and not made.concerns("other")
    assert others.handovers.last is None and not others.handovers.cuts
    ended = mine.handovers.end(made, aborted=True)
    mine.refresh()
    assert mine.handovers.last == ended and not ended.open and ended.aborted


def test_a_cut_counts_while_what_it_held_rests_and_as_a_failover_until_that_stands_by():
    topic = CompactedTopic()
    views = Views(topic).refresh()
    place = Place("orders", 0, uuid.uuid4(), uuid.uuid4())
    copying, at = Subject.part("copying"), CutAt(20, 25)
    views.holds.hold([copying], "me")
    held_ms = views.refresh().holds.held[copying].since_ms
    ids = str(place.source_id), str(place.target_id)
    views.handovers.cut({"orders": Cut("1", *ids, {0: at}, held_ms)})
    cuts = views.refresh().cuts
    assert (cuts.at(place), cuts.failed_over_at(place), cuts.failed_over) == (at, at, True)
    # It holds for a connector of this pair of clusters, too.
    assert Views(topic, "connector").refresh().cuts.failed_over_at(place) == at
    assert cuts.failed_over_at(place._replace(source_id=uuid.uuid4())) is None, "made anew"
    views.holds.lift([copying])
    views.refresh()
    assert (cuts.at(place), cuts.failed_over_at(place), cuts.failed_over) == (None, None, False)
    # The source gets from there on what the target takes.
    views.holds.hold([copying], "me", standby=True)
    held_ms = views.refresh().holds.held[copying].since_ms
    views.handovers.cut({"orders": Cut("1", *ids, {0: at}, held_ms)})
    views.refresh()
    assert (cuts.at(place), cuts.failed_over_at(place), cuts.failed_over) == (at, None, False)


def test_the_newest_handover_counts_and_cuts_of_earlier_ones_stay():
    topic = CompactedTopic()
    views = Views(topic).refresh()
    view = views.handovers
    view.cut({"old": Cut("1", "a", "b", {0: CutAt(1, 1)})})
    view.note(Handover("1", Kind.FAILOVER, "x", 1))
    view.note(Handover("2", Kind.FAILBACK, "x", 2))
    view.cut({"new": Cut("2", "a", "b", {0: CutAt(2, 2)})})
    views.refresh()
    assert view.last.id == "2" and view.cuts.keys() == {"old", "new"}
    view.forget()
    assert view.last.id == "2"
    view.publish()
    assert view.last is None


def test_a_mirror_answers_the_hold_that_it_obeys_and_no_other():
    views = Views(CompactedTopic()).refresh()
    holds = views.holds
    copying = Subject.part("copying")
    holds.hold([copying], "me")
    views.refresh()
    first = holds.held[copying]
    holds.answer("host:1:2", Resting({"copying": first.since_ms}, {"orders": 4}, 2.5))
    views.refresh()
    answer = holds.resting["host:1:2"]
    assert answer.obeys(copying, first) and answer.clear_seconds == 2.5
    assert not answer.obeys(Subject.topic("payments"), first)
    assert not answer.obeys(copying, first._replace(since_ms=first.since_ms + 1))
    holds.lift([copying])
    views.refresh()
    assert not holds.resting and not holds.held


def test_answers_stay_while_anything_is_held():
    views = Views(CompactedTopic()).refresh()
    holds = views.holds
    subjects = [Subject.part("copying"), Subject.topic("orders")]
    holds.hold(subjects, "me")
    views.refresh()
    holds.answer("p", Resting({}, {}))
    views.refresh()
    holds.lift(subjects[:1])
    views.refresh()
    assert holds.resting


def test_a_flow_in_standby_rests_until_it_is_started():
    views = Views(CompactedTopic()).refresh()
    holds = views.holds
    views.refresh()
    assert holds.parts_with(["copying"]) == {"copying": STANDBY}
    holds.hold([Subject.part("copying")], "me", "tests")
    views.refresh()
    assert holds.parts_with(["copying"])["copying"].why == "tests"
    holds.start("me")
    holds.lift([Subject.part("copying")])
    views.refresh()
    assert holds.started and holds.parts_with(["copying"]) == {}


def test_a_mirror_says_which_start_it_has_obeyed():
    topic = CompactedTopic()
    mirror, operator = Views(topic).refresh(), Views(topic).refresh()
    at_ms = operator.holds.start("me")
    mirror.refresh()
    assert mirror.holds.started_ms == at_ms
    mirror.holds.answer("p", Resting({}, {}, started_ms=at_ms))
    operator.refresh()
    assert operator.holds.resting["p"].started_ms == at_ms
    again = Views(topic)
    assert again.holds.started_ms == 0
    assert again.refresh().holds.started_ms == at_ms
