"""A worker in its group: what it says of itself, whom it removes, and whose silence it knows of."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.claims.log import Process
from heliograph.claims.process_identity import this_process
from heliograph.connect import group as group_module
from heliograph.connect import watch as watch_module
from heliograph.connect.group import WorkerGroup, lost_processes, name_of
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.membership import GroupMember, Joined, Removed

CONNECTORS = ["c0", "c1", "c2", "c3"]
OTHER = Process("db8", 4242, "4d9d-boot", "pid:[4026531836]", 123456)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Coordinator:
    """In place of `GroupMember`: the worker leads, and the test says who else is there."""

    def __init__(self) -> None:
        self.others: dict[str, dict[str, object]] = {}
        self.generation = 0
        self.removed = False
        self.member_id = ""
        #: What the worker has said of itself, and what was assigned, with each of its joins.
        self.said: list[dict[str, Any]] = []
        self.shares: list[dict[str, Any]] = []
        self.taken_out: list[str] = []
        self.left = threading.Event()
        #: What becomes of the next heartbeats and joins; by themselves they succeed.
        self.heartbeats: list[Callable[[], bool]] = []
        self.refusals: list[Exception] = []

    def join(self, metadata, assign) -> Joined:
        self.said.append(json.loads(metadata))
        if self.refusals:
            raise self.refusals.pop(0)
        self.generation += 1
        self.removed = False
        self.member_id = "me"
        encoded = {member: json.dumps(said).encode() for member, said in self.others.items()}
        shares = assign({"me": metadata, **encoded})
        self.shares.append({member: json.loads(share) for member, share in shares.items()})
        return Joined(self.generation, "me", True, shares["me"])

    def heartbeat(self) -> bool:
        return self.heartbeats.pop(0)() if self.heartbeats else True

    def remove(self, member_id) -> None:
        self.taken_out.append(member_id)

    def leave(self) -> None:
        self.left.set()

    # What a heartbeat may say.
    def rebalance(self) -> bool:
        return False

    def unknown(self) -> bool:
        self.removed = True
        return False

    def away(self) -> bool:
        raise ConnectionFailed("the coordinator does not answer")


@pytest.fixture
def coordinator(monkeypatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(group_module, "GroupMember", lambda *_, **__: made)
    monkeypatch.setattr(group_module, "_HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(group_module, "_PAUSE_SECONDS", 0.01)
    # A machine may stand still for as long as it likes, unless a test says otherwise.
    monkeypatch.setattr(group_module, "_SESSION_SECONDS", 600.0)
    monkeypatch.setattr(watch_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(watch_module, "_AGAIN_SECONDS", 0.01)
    return made


@pytest.fixture
def group(coordinator) -> Iterator[WorkerGroup]:
    client: Any = SimpleNamespace(close=lambda: None)
    made = WorkerGroup(client, "g", "here:8083", lambda: CONNECTORS, lambda: None)
    made.start()
    wait_for(lambda: made.assignment.generation == 1)
    yield made
    made.close()


def next_generation(coordinator, group) -> None:
    before = group.assignment.generation
    coordinator.heartbeats.append(coordinator.rebalance)
    wait_for(lambda: group.assignment.generation > before)


def other(url="there:8083", **said) -> dict[str, object]:
    """What another worker says of itself."""
    return {"url": url, "process": name_of(OTHER), "connectors": [], **said}


# -- a worker that was removed ----------------------------------------------------------------


def test_a_worker_says_what_it_has_and_what_it_knows(coordinator, group):
    next_generation(coordinator, group)
    first, second = coordinator.said
    assert first["connectors"] == []
    assert second["connectors"] == CONNECTORS
    assert second["generation"] == 1
    assert second["processes"] == [name_of(this_process())]


def test_a_worker_that_was_removed_does_not_ask_for_what_it_had(coordinator, group):
    coordinator.heartbeats.append(coordinator.unknown)
    wait_for(lambda: len(coordinator.said) == 2)
    assert coordinator.said[1]["connectors"] == []
    assert coordinator.said[1]["generation"] == -1


def test_a_worker_that_was_removed_while_it_joined_does_not_ask_for_what_it_had(coordinator, group):
    """It was frozen between the heartbeat that told it to join and its request."""
    coordinator.refusals.append(Removed("gone"))
    next_generation(coordinator, group)
    _, refused, again = coordinator.said
    assert refused["connectors"] == CONNECTORS
    assert again["connectors"] == []


def test_a_worker_that_was_cut_off_for_too_long_does_not_ask_for_what_it_had(
    coordinator, group, monkeypatch
):
    monkeypatch.setattr(group_module, "_SESSION_SECONDS", 0.0)
    coordinator.heartbeats.append(coordinator.away)
    wait_for(lambda: len(coordinator.said) == 2)
    assert coordinator.said[1]["connectors"] == []


def test_what_others_took_over_stays_there_but_for_what_makes_it_even(coordinator, group):
    """The other worker wakes up: it is given as many as it needs, and not what it had."""
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    had = set(coordinator.shares[-1]["two"]["connectors"])
    coordinator.others.clear()
    next_generation(coordinator, group)
    assert group.assignment.connectors == set(CONNECTORS)
    coordinator.others["two, again"] = other()
    next_generation(coordinator, group)
    again = set(coordinator.shares[-1]["two, again"]["connectors"])
    assert len(had) == len(again) == 2
    assert group.assignment.connectors == set(CONNECTORS) - again
    next_generation(coordinator, group)
    assert group.assignment.connectors == set(CONNECTORS) - again


def test_the_coordinators_word_that_a_member_is_unknown_reaches_the_worker(monkeypatch):
    """The real `GroupMember`, with answers of a coordinator that has removed it."""
    client: Any = SimpleNamespace(alias="B", request_timeout=1.0)
    member = GroupMember(
        client, "g", protocol_type="connect", protocol="p", session_seconds=6, rebalance_seconds=6
    )
    asked = []
    answers = [
        SimpleNamespace(error_code=79, member_id="m1"),
        SimpleNamespace(
            error_code=0, member_id="m1", generation_id=1, leader="another", members=[]
        ),
        SimpleNamespace(error_code=0, assignment=b"x"),
        SimpleNamespace(error_code=25),  # joins again: it was removed meanwhile
        SimpleNamespace(error_code=79, member_id="m2"),
        SimpleNamespace(
            error_code=0, member_id="m2", generation_id=5, leader="another", members=[]
        ),
        SimpleNamespace(error_code=25),  # removed between join and sync
    ]

    def ask(message, *_):
        asked.append(message)
        return answers.pop(0)

    monkeypatch.setattr(member, "_ask", ask)
    assert member.join(b"a", lambda _: {}).member_id == "m1"
    for told in (b"b", b"c"):
        with pytest.raises(Removed):
            member.join(told, lambda _: {})
        assert member.removed
        assert member.member_id == ""
    assert [m.member_id for m in asked] == ["", "m1", "m1", "m1", "", "m2", "m2"]
    assert answers == []


# -- a worker that is stopped -----------------------------------------------------------------


def test_a_worker_that_stops_says_so_before_it_leaves(coordinator, group):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    group.close()
    assert coordinator.left.is_set()
    last = coordinator.said[-1]
    assert (last["stopping"], last["connectors"]) == (True, [])
    share = coordinator.shares[-1]
    assert share["me"]["connectors"] == []
    assert share["two"]["connectors"] == CONNECTORS
    assert share["two"]["processes"] == [name_of(OTHER)]
    assert share["two"]["lost"] == {}


def test_a_worker_that_is_alone_leaves_at_once(coordinator, group):
    group.close()
    assert coordinator.left.is_set()
    assert len(coordinator.said) == 1


def test_a_worker_leaves_though_it_cannot_say_that_it_stops(coordinator, group):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    coordinator.refusals.append(ConnectionFailed("away"))
    group.close()
    assert coordinator.left.is_set()


def test_who_stops_is_not_lost(coordinator, group):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    coordinator.others["two"] = other(stopping=True)
    next_generation(coordinator, group)
    coordinator.others.clear()
    next_generation(coordinator, group)
    assert not group.silent(OTHER)
    assert group.assignment.connectors == set(CONNECTORS)


# -- a worker that is lost --------------------------------------------------------------------


def test_who_was_a_member_and_is_not_any_more_is_silent_until_it_is_back(coordinator, group):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    assert not group.silent(OTHER)
    coordinator.others.clear()
    next_generation(coordinator, group)
    assert group.silent(OTHER)
    next_generation(coordinator, group)
    assert group.silent(OTHER), "not all of its claims may be gone yet"
    assert not group.silent(OTHER._replace(started=7))
    assert not group.silent(this_process())
    coordinator.others["two, again"] = other()
    next_generation(coordinator, group)
    assert not group.silent(OTHER)


def test_a_worker_that_hears_nothing_knows_of_nobodys_silence(coordinator, group, monkeypatch):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    coordinator.others.clear()
    next_generation(coordinator, group)
    assert group.silent(OTHER)
    monkeypatch.setattr(group_module, "_SESSION_SECONDS", -1.0)
    assert not group.silent(OTHER), "it may be a member again, and this worker was frozen"


def test_a_worker_that_was_removed_knows_of_nobodys_silence(coordinator, group):
    coordinator.others["two"] = other()
    next_generation(coordinator, group)
    coordinator.others.clear()
    next_generation(coordinator, group)
    coordinator.refusals += [ConnectionFailed("away")] * 3
    coordinator.heartbeats.append(coordinator.unknown)
    wait_for(lambda: group.assignment.generation != 3)
    assert not group.silent(OTHER)


def said_by(process, generation=-1, processes=(), lost=None):
    return {
        "process": process, "generation": generation, "processes": list(processes),
        "lost": lost or {},
    }  # fmt: skip


def test_a_leader_that_is_new_learns_from_the_others_who_is_lost():
    said = [said_by("new"), said_by("b", 7, ["a", "b"], {"z": 3})]
    assert lost_processes(said) == {"a": 8, "z": 3}


def test_who_missed_a_generation_does_not_know_who_stopped():
    """``a`` stopped in generation 7, which ``c`` has missed."""
    said = [said_by("b", 7, ["b"]), said_by("c", 6, ["a", "b", "c"])]
    assert lost_processes(said) == {}


def test_a_group_that_knows_nothing_has_lost_nobody():
    assert lost_processes([said_by("a"), said_by("b")]) == {}
    assert lost_processes([]) == {}
    older = {"url": "x:1", "connectors": []}
    assert lost_processes([older, said_by("b", 7, ["b", "a"])]) == {"a": 8}


def test_the_newest_of_those_that_are_lost_are_told():
    known = {f"p{n}": n for n in range(100)}
    found = lost_processes([said_by("a", 100, ["a", "b"], known)])
    assert len(found) == 32
    assert found["b"] == 101
    assert min(found.values()) == 69


# -- who watches whom -------------------------------------------------------------------------


def test_the_leader_watches_all_others_and_the_first_of_them_the_leader(coordinator, group):
    coordinator.others = {"two": other("x:2"), "three": other("x:3"), "four": other(stopping=True)}
    next_generation(coordinator, group)
    share = coordinator.shares[-1]
    assert {m: w["url"] for m, w in share["me"]["watch"].items()} == {"two": "x:2", "three": "x:3"}
    assert {m: w["url"] for m, w in share["three"]["watch"].items()} == {"me": "here:8083"}
    assert share["two"]["watch"] == share["four"]["watch"] == {}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_worker_that_is_killed_is_removed_once(coordinator, group, listener):
    reached = threading.Event()

    def accept() -> None:
        listener.accept()[0].close()
        reached.set()

    threading.Thread(target=accept, daemon=True).start()
    url = f"127.0.0.1:{listener.getsockname()[1]}"
    coordinator.others["two"] = other(url)
    next_generation(coordinator, group)
    assert reached.wait(60)
    # Its looks were answered by the kernel since.
    time.sleep(0.1)
    assert coordinator.taken_out == []
    listener.close()
    wait_for(lambda: coordinator.taken_out)
    assert coordinator.taken_out == ["two"]
    coordinator.others.clear()
    next_generation(coordinator, group)
    assert group.silent(OTHER)
    # It lives on: its address proves nothing.
    coordinator.others["two, again"] = other(url)
    next_generation(coordinator, group)
    assert not group.silent(OTHER)
    assert group._watch._watched.keys() == set()
