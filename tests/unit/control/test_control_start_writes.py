"""Writing where groups start, against coordinators that refuse, move and change their minds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.config import load
from heliograph.control.groups import source_positions, start_writes, starts
from heliograph.control.groups.shared_partitions import Limit
from heliograph.control.groups.source_positions import (
    GroupPositions,
    Position,
    SourcePositions,
    find_positions,
)
from heliograph.control.groups.start_logs import TargetLogs
from heliograph.control.groups.start_rules import GroupStart, KeptAhead, Log, Moved, Start
from heliograph.control.groups.start_writes import write_starts
from heliograph.ledger.runs import PartitionLedger, Run
from heliograph.ledger.translation import MirroredPartition
from heliograph.mm2.formats import Checkpoint
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin
from heliograph.wire.errors import BrokerError, ConnectionFailed, WireError
from heliograph.wire.groups import Answers, Committed, GroupList, ListedGroup

P, Q = (TopicPartition("A.t", n) for n in range(2))
SETTINGS = ClientSettings("B", {"bootstrap.servers": "b:1"})
TOPIC_DENIED, GROUP_DENIED, UNKNOWN_MEMBER, LOADING, UNSTABLE = 29, 30, 25, 14, 88


class Coordinator:
    """A target in memory. ``script``: what each commit answers, one after the other; 0 at last."""

    def __init__(self, *script, there=()):
        self.client: Any = SimpleNamespace(settings=SETTINGS, alias="B")
        self.script = list(script)
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {"g": dict(there)}
        self.commits = 0

    def committed_of(self, wanted, *, stable):
        assert stable
        found = {
            g: {p: self.offsets[g].get(p, Committed(-1)) for p in asked}
            for g, asked in wanted.items()
        }
        return Answers(found)

    def commit(self, offsets):
        if not offsets:
            return Answers()
        self.commits += 1
        said = self.script.pop(0) if self.script else 0
        if isinstance(said, WireError):
            return Answers({}, dict.fromkeys(offsets, said))
        codes = {g: {p: said(p) if callable(said) else said for p in o} for g, o in offsets.items()}
        for g, answered in codes.items():
            for p, code in answered.items():
                if not code:
                    self.offsets[g][p] = offsets[g][p]
        return Answers(codes)


def write(target, *, rewind=False, **starts):
    partitions = {"p": P, "q": Q}
    found = {partitions[n]: Start(partitions[n], o, Log(0, 50)) for n, o in starts.items()}
    moved = write_starts(target, {"g": GroupStart("g", "Empty", starts=found)}, rewind=rewind)
    return moved["g"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(start_writes, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(start_writes, "_PAUSE_SECONDS", 0.01)


def test_a_coordinator_that_is_not_ready_is_asked_again():
    target = Coordinator(LOADING, BrokerError(LOADING, "committing"), ConnectionFailed("gone"))
    assert write(target, p=5, q=6) == Moved("g", written=2)
    assert target.commits == 4


def test_a_coordinator_that_stays_away_is_given_up():
    class Away(Coordinator):
        def commit(self, offsets):
            self.commits += 1
            return Answers({}, dict.fromkeys(offsets, ConnectionFailed("nobody there")))

    target = Away()
    assert write(target, p=5) == Moved("g", reason="nobody there")
    assert target.commits > 1


def test_part_of_a_group_is_refused():
    target = Coordinator(lambda p: TOPIC_DENIED if p == Q else 0)
    moved = write(target, p=5, q=6)
    assert (moved.written, target.commits) == (1, 1)
    assert moved.reason.startswith("User:ANONYMOUS may not Read topic A.t on cluster B; grant it")


@pytest.mark.parametrize(("code", "says"), [
    (GROUP_DENIED, "--operation Read --group g"),
    (UNKNOWN_MEMBER, "became active on B meanwhile: left alone"),
])  # fmt: skip
def test_a_refusal_is_final(code, says):
    target = Coordinator(code)
    moved = write(target, p=5)
    assert (moved.written, target.commits) == (0, 1)
    assert says in moved.reason


def test_an_offset_in_an_open_transaction_is_not_written_over():
    target = Coordinator(there={P: Committed(-1, error=UNSTABLE)})
    moved = write(target, p=5)
    assert (moved.written, target.commits) == (0, 0)
    assert moved.reason == "what is committed for A.t-0 is unclear: UNSTABLE_OFFSET_COMMIT (88)"


def test_what_is_ahead_is_kept_also_if_the_mirror_ran_on(monkeypatch):
    there = {P: Committed(40), Q: Committed(60)}
    ends = {Q: 60}
    monkeypatch.setattr(admin, "list_offsets", lambda *_: ends)
    target = Coordinator(there=there)
    target.client.metadata = lambda _: None
    kept = {P: KeptAhead(40, 5), Q: KeptAhead(60, 5)}
    assert write(target, p=5, q=5) == Moved("g", kept=kept)
    ends[Q] = 59  # behind the end: nobody can start there
    assert write(target, p=5, q=5) == Moved("g", written=1, kept={P: KeptAhead(40, 5)})
    assert write(target, rewind=True, p=5, q=5) == Moved("g", written=1, already=1)
    assert target.offsets["g"] == {P: Committed(5), Q: Committed(5)}


def test_somebody_who_commits_right_after_us_is_noticed():
    class Meddled(Coordinator):
        def commit(self, offsets):
            answers = super().commit(offsets)
            if self.commits == 1:
                self.offsets["g"][P] = Committed(3)
            return answers

    target = Meddled()
    assert write(target, p=5) == Moved("g", written=1)
    assert target.commits == 2


# -- a source that is half gone ---------------------------------------------------------------


class Topics:
    def remote(self, topic):
        return f"A.{topic}" if topic != "other" else None

    def source(self, topic):
        return topic.removeprefix("A.") if topic.startswith("A.") else None


def checkpoints(*groups):
    known = {(g, "A.t", 0): Checkpoint(g, "A.t", 0, 7, 3, "m") for g in groups}
    return SimpleNamespace(refresh=lambda: None, known=known, stamps=dict.fromkeys(known, 99))


@pytest.mark.parametrize("silent", [True, False])
def test_the_checkpoints_tell_of_groups_that_a_source_does_not_answer_for(monkeypatch, silent):
    kinds = {"there": "classic", "idle": "classic", "away": "classic", "shared": "share"}
    listed = {g: ListedGroup(g, kind, "consumer", "Empty") for g, kind in kinds.items()}
    failures = [ConnectionFailed("broker 2 is down")] if silent else []

    class Source:
        def __init__(self, client):
            pass

        def list_groups(self):
            return GroupList(listed, failures, all_visible=True)

        def committed(self, groups):
            assert set(groups) == {"there", "idle", "away"}
            errors: dict[str, WireError] = (
                {"away": ConnectionFailed("no coordinator")} if silent else {}
            )
            found = {
                "there": {TopicPartition("t", 0): Committed(5), TopicPartition("other", 0):
                          Committed(1), TopicPartition("t", 1): Committed(-1, error=29)},
                "idle": {},
            }  # fmt: skip
            return Answers(found if silent else found | {"away": {}}, errors)

    monkeypatch.setattr(source_positions, "GroupClient", Source)
    client: Any = SimpleNamespace(
        alias="A", settings=SETTINGS, metadata=lambda _: SimpleNamespace(topics={})
    )
    topics: Any = Topics()
    log: Any = checkpoints("there", "idle", "away", "unlisted", "shared", "filtered")
    found = find_positions(client, topics, lambda g: g != "filtered", log)
    assert found.groups["there"].positions.keys() == {P}
    assert found.groups["there"].positions[P].upstream == 5
    assert found.groups["there"].unclear.keys() == {Q}
    assert "share groups cannot be synced" in found.groups["shared"].reason
    if not silent:
        assert found.groups.keys() == {"there", "shared"}
        assert (found.silent, found.checkpoints_ms) == ("", None)
        return
    assert found.groups.keys() == {"there", "shared", "away", "unlisted"}
    position = Position(TopicPartition("t", 0), 7, "m", 99, downstream=3)
    assert found.groups["away"] == GroupPositions({P: position}, answered=False)
    assert found.silent == "does not answer for all groups (broker 2 is down)"
    assert found.checkpoints_ms == 99


# -- several flows in one partition -----------------------------------------------------------


def test_where_flows_meet_the_exact_place_is_the_lowest_of_all(monkeypatch, tmp_path):
    """The rules are those of the sync (`shared_partitions`), and so are its words."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\n"
    )
    [config] = [f for f in load(path).flows if f.enabled]
    asked = {}

    class Meeting:
        def __init__(self, *_):
            pass

        def limits(self, wanted):
            asked.update(wanted)
            return {("g", P): Limit(4, "is held at 4: C->B"), ("h", P): Limit(None, "left alone")}

    monkeypatch.setattr(starts, "FlowMeeting", Meeting)
    ledger = PartitionLedger()
    ledger.add(Run(0, 0, 0))
    nothing: Any = None
    seen = TargetLogs(
        nothing, dict.fromkeys((P, Q), MirroredPartition(ledger, 0, 20)), {P: [], Q: []}
    )
    position = Position(TopicPartition("t", 0), 9, "", 1)
    known = {g: GroupPositions({P: position, Q: position}) for g in "gh"}
    made = starts.GroupStarts(config, nothing)
    exact = made._exact(SourcePositions(known), seen, nothing)
    assert exact["g"] == {P: (4, 4, "is held at 4: C->B"), Q: (9, 9, "")}
    assert exact["h"] == {P: (None, None, "left alone"), Q: (9, 9, "")}
    assert {p: (o.upstream, o.downstream, o.end) for p, o in asked["g"].items()} == {
        P: (9, 9, 20), Q: (9, 9, 20),
    }  # fmt: skip
