"""What a ledger tells of a flow's past: written by those who write it, read back as events."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

from heliograph.batch.records import Record
from heliograph.claims.log import Claim, Process, claim_key, encode_claim
from heliograph.ledger.codec import Cut, Place, encode_cut
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.handovers import Handover, Handovers, Kind
from heliograph.ledger.holds import Holds, Subject
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind, Rehearsals
from heliograph.ledger.runs import Run
from heliograph.service.events import level_of, line_of
from heliograph.service.ledger_history import LedgerHistory

NAME = "ledger"


class Written(LedgerFollower):
    """A ledger topic in memory: takes what is appended, at one second after the other."""

    def __init__(self):
        self.records = []
        self.lost = False
        self.folding = threading.RLock()

    def attach(self, view):
        pass

    def refresh(self):
        pass

    def append(self, pairs):
        for key, value in pairs:
            at = len(self.records)
            self.records.append(Record(at, 1000 * at, key, value))

    def find_end(self, position):
        lost, self.lost = self.lost, False
        return not lost

    def read(self, position):
        # As fetches do: whole batches, so some that were asked for before.
        yield self.records[max(0, position - 2) :]


def history(written, scope=""):
    made = LedgerHistory(None, NAME, "A->B", scope)
    made._log = written
    return made


def told(found):
    return [(event.code, event.at, line_of(event).partition(": ")[2]) for event in found]


CLAIM = Claim("one", Process("here", 7), 500, 30.0)


def test_who_had_the_flow_and_how_that_ended():
    written = Written()
    seen = history(written)
    written.append([encode_claim(CLAIM), encode_claim(replace(CLAIM, first=0, established=True))])
    # It is repeated, which is no news.
    written.append([encode_claim(replace(CLAIM, first=0, established=True))])
    assert told(seen.read()) == [
        ("flow.starting", 0.5, "process 7 on here asks for it"),
        ("flow.running", 1.0, "process 7 on here has it"),
    ]
    assert seen.read() == []
    other = replace(CLAIM, id="two", process=Process("there\x1b[2J", 8), since_ms=3000)
    written.append([encode_claim(other), (claim_key("one"), None)])
    [come, gone] = seen.read()
    assert line_of(come) == "A->B [flow.starting]: process 8 on there\\x1b[2J asks for it"
    assert told([gone]) == [
        ("flow.taken-over", 4.0,
         "process 7 on here has it no longer: another mirror removed its claim"),
    ]  # fmt: skip
    written.append([encode_claim(replace(other, left=True))])
    assert told(seen.read())[0][2].endswith(" has stopped")


def test_what_was_held_lifted_and_restarted():
    written = Written()
    holds = Holds(written)
    holds.hold([Subject.part("copying")], "ops@db7", "B is moved")
    holds.hold([Subject.topic("orders")], "ops")
    written.append([(b"hold//part/copying", None)])
    holds.restart(["checkpoints"], "ops")
    holds.hold([Subject.part("copying")], "switchover", "it is not needed now", standby=True)
    holds.start("ops")
    found = history(written).read()
    assert [event.code for event in found] == [
        "flow.paused", "flow.topic-paused", "flow.resumed", "flow.restarting", "flow.standing-by",
        "flow.resumed",
    ]  # fmt: skip
    lines = [line_of(event) for event in found]
    assert lines[0].startswith("A->B copying [flow.paused]: copying is paused by ops@db7 since ")
    assert lines[0].endswith("through Kafka: B is moved")
    assert lines[1].startswith("A->B copying [flow.topic-paused]: topic orders is paused by ops")
    assert lines[2:] == [
        "A->B copying [flow.resumed]: copying goes on",
        "A->B [flow.restarting]: checkpoints is restarted by ops, through Kafka",
        "A->B copying [flow.standing-by]: copying stands by: it is not needed now",
        "A->B [flow.resumed]: stands by no longer: it was started, through Kafka",
    ]


def test_the_steps_of_a_handover_and_how_it_ended():
    written = Written()
    handovers = Handovers(written)
    begun = handovers.note(Handover("1", Kind.FAILOVER, "ops", 1))
    stopped = handovers.note(replace(begun, steps=("stop",)))
    handovers.end(handovers.note(replace(stopped, steps=("stop", "drain", "move"))))
    handovers.end(Handover("2", Kind.SWITCHOVER, "ops", 5), aborted=True)
    found = history(written).read()
    assert [(event.step, event.phase, event.at) for event in found] == [
        ("begin", "done", 0.0), ("stop", "done", 1.0), ("drain", "done", 2.0),
        ("move", "done", 2.0), ("end", "done", 3.0), ("begin", "done", 4.0), ("end", "failed", 4.0),
    ]  # fmt: skip
    assert line_of(found[4]) == "A->B [flow.handover]: failover is through"
    assert line_of(found[6]) == "A->B [flow.handover]: switchover was given up"


def test_rehearsals_and_where_the_source_lost_records():
    written = Written()
    good = Rehearsal(0, RehearsalKind.DRILL, 7.2, 0, 0.0, True, 3, "ops")
    Rehearsals(written).add(good)
    Rehearsals(written).add(replace(good, ok=False, rto_seconds=None, text="B is full"))
    place = Place("orders", 3, uuid.UUID(int=1), uuid.UUID(int=2))
    written.append([encode_cut(Cut(place, Run(5, 100, 7)), "n")])
    # An operator's decision is none of the source's doing.
    written.append([encode_cut(Cut(place, Run(9, 200, 17), "id"), "n")])
    found = history(written).read()
    assert [(line_of(event), level_of(event)) for event in found] == [
        ("A->B [flow.drill]: drill by ops came to its end in 7.2 s", 20),
        ("A->B [flow.drill]: drill by ops did not come to its end: B is full", 30),
        ("A->B orders-3 [source.truncated]: the source lost mirrored records; what it has written"
         " since follows from offset 100 on", 30),
    ]  # fmt: skip


def test_another_connector_of_the_same_clusters_is_none_of_its_business():
    written = Written()
    Holds(written, "blue").hold([Subject.part("copying")], "ops")
    written.append([encode_claim(replace(CLAIM, id="blue/one"))])
    Handovers(written, "blue").note(Handover("1", Kind.FAILOVER, "ops", 1))
    assert history(written).read() == []
    assert len(history(written, "blue").read()) == 3


def test_a_ledger_that_lost_records_is_read_again():
    written = Written()
    seen = history(written)
    written.append([encode_claim(CLAIM)])
    assert len(seen.read()) == 1
    written.records.clear()
    written.lost = True
    written.append([encode_claim(replace(CLAIM, id="new"))])
    assert [event.code for event in seen.read()] == ["flow.starting"]
