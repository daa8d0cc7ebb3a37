"""Our own routes: pages of the snapshot, events as a page and as a stream, commands."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from serving import ScriptedHerder, serving

from heliograph.config import MirrorMakerConfig
from heliograph.model import PartitionEvent, PartitionState, TopicPartition
from heliograph.rest import latest, routing
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.settings import Limits
from heliograph.rest.topic_rows import topic_rows
from heliograph.service.events import EventBus, FlowEvent, JobEvent
from heliograph.service.history import History
from heliograph.service.snapshot import (
    COPYING,
    HEARTBEATS,
    EngineSnapshot,
    EngineState,
    FlowSnapshot,
    FlowState,
    GroupDetails,
    GroupPartition,
    GroupSnapshot,
    JobSnapshot,
    Life,
    MirrorSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
)
from heliograph.units import moment

V1 = "/heliograph/v1"
FLOW = f"{V1}/flows/A-%3EB"
FLOW_CONFIG = MirrorMakerConfig.from_mapping({
    "clusters": "A, B", "A.bootstrap.servers": "127.0.0.1:1", "B.bootstrap.servers": "127.0.0.1:1",
    "A.security.protocol": "SASL_PLAINTEXT", "A.sasl.mechanism": "PLAIN",
    "A.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
                          ' username="u" password="s3cret";',
    "A->B.enabled": "true", "A->B.topics": "orders",
}).flows[0]  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)>\n"


def partition(topic, number, state=PartitionState.IDLE, lag=0, seconds=0.0):
    return PartitionSnapshot(topic, number, f"A.{topic}", state, since=float(number + 1),
                             lag_records=lag, lag_seconds=seconds)  # fmt: skip


def snapshot():
    parts = tuple(partition("big", n, lag=n) for n in range(10_000))
    odd = (
        partition("orders", 0, PartitionState.FAILED, 7, 3.0),
        partition("orders", 1, PartitionState.STALLED, None, None),
    )
    life = Life(FlowState.RUNNING, since=1.0)
    flow = FlowSnapshot(
        "A->B", "A", "B", life, {COPYING: life, HEARTBEATS: life}, measured_at=5.0,
        topics=(TopicSnapshot("big", "A.big", 10_000, 5, 0.0, 0),
                TopicSnapshot("orders", "A.orders", 2, 7, 3.0, 2)),
        partitions=parts + odd, states={"failed": 1, "stalled": 1, "idle": 10_000},
        jobs=(JobSnapshot("syncing configs", 60.0, error="no right"),
              JobSnapshot("heartbeats", 1.0, HEARTBEATS)),
        groups=(GroupSnapshot(HOSTILE, {"sync": "in use"}),),
    )  # fmt: skip
    other = FlowSnapshot("B->A", "B", "A", Life(FlowState.FAILED, "no broker", "x"))
    return MirrorSnapshot(10.0, (flow, other), EngineSnapshot(EngineState.READY), 1.0, 3)


class Supervisor:
    def __init__(self):
        self.done = []
        self.config = FLOW_CONFIG

    def group(self, group):
        if group != HOSTILE:
            raise KeyError(group)
        one = GroupPartition("orders", 0, "A.orders", 5, 9, 4, 3, 8)
        other = GroupPartition("orders", 1, "A.orders", 7)
        return GroupDetails("A->B", snapshot().flows[0].groups[0], (one, other))

    def pause(self, *parts, why=""):
        self.done.append(("pause", *parts, *filter(None, [why])))

    def resume(self, *parts):
        self.done.append(("resume", *parts))

    def restart(self, *parts):
        self.done.append(("restart", *parts))

    def pause_topics(self, *topics, why=""):
        self.done.append(("pause topics", *topics, *filter(None, [why])))

    def resume_topics(self, *topics):
        self.done.append(("resume topics", *topics))


class Lab:
    def __init__(self):
        self.bus = EventBus(history=50)
        self.supervisor = Supervisor()
        self.herder = ScriptedHerder()
        self.made = 0
        self.known = snapshot()
        self.history = History(self.snapshot)

    def snapshot(self):
        self.made += 1
        return self.known

    def publish(self, *texts):
        self.bus.publish(*(FlowEvent("A->B", "flow.paused", text, COPYING) for text in texts))

    @property
    def mirrored(self):
        supervisors = {"A->B": self.supervisor}
        return Mirrored(self.snapshot, self.bus, supervisors.__getitem__, self.history)


@pytest.fixture(scope="module")
def shared():
    lab = Lab()
    with serving(lab.herder, lab.mirrored, limits=Limits(requests_per_second=0)) as ask:
        yield lab, ask


@pytest.fixture
def ask(shared):
    return shared[1]


def test_snapshot_and_flows(ask):
    found = ask.get(f"{V1}/snapshot").json
    assert found["at"] == "1970-01-01T00:00:10.000Z"
    assert (found["sequence"], found["engine"]["state"]) == (3, "ready")
    assert found["flows"][0]["partitions"] == 10_002
    assert found["flows"][0]["parts"]["copying"]["state"] == "running"
    assert [flow["flow"] for flow in ask.get(f"{V1}/flows").json] == ["A->B", "B->A"]
    for path in (FLOW, f"{V1}/flows/A->B"):
        flow = ask.get(path).json
        assert [p["topic"] for p in flow["troubled"]] == ["orders", "orders"]
        assert [j["error"] for j in flow["failing"]] == ["no right"]
    reply = ask.get(f"{V1}/flows/nope")
    assert (reply.status, reply.message) == (404, "Flow nope not found")


def test_answers_are_small_however_many_partitions_there_are(ask):
    for path in ("/snapshot", "/flows", "/topics", "/jobs", "/groups"):
        assert len(ask.get(V1 + path).body) < 10_000
    page = ask.get(f"{FLOW}/partitions").json
    assert (page["total"], page["offset"], page["limit"]) == (10_002, 0, 100)
    assert len(page["partitions"]) == 100
    assert len(ask.get(f"{FLOW}/partitions?limit=100000").json["partitions"]) == 1000


def test_partitions_are_filtered_sorted_and_cut(ask):
    def names(query):
        page = ask.get(f"{FLOW}/partitions?{query}").json
        return page["total"], [f"{p['topic']}-{p['partition']}" for p in page["partitions"]]

    assert names("state=failed,stalled") == (2, ["orders-0", "orders-1"])
    assert names("state=failed&state=stalled&sort=-state") == (2, ["orders-0", "orders-1"])
    assert names("topic=ord*&sort=-name") == (2, ["orders-1", "orders-0"])
    assert names("topic=ord") == (0, [])
    assert names("topic=%5Bo%5Drders*") == (0, [])
    assert names("sort=-lag&limit=2") == (10_002, ["big-9999", "big-9998"])
    assert names("sort=lag&limit=2") == (10_002, ["orders-1", "big-0"])
    assert names("topic=big&offset=9999") == (10_000, ["big-9999"])
    assert names("offset=20000") == (10_002, [])
    assert ask.get(f"{FLOW}/partitions?topic=orders").json["measured_at"].startswith("1970")


def test_states_are_counted_for_the_topic_whatever_state_is_asked_for(ask):
    def counts(query):
        return ask.get(f"{FLOW}/partitions?limit=1&{query}").json["states"]

    assert counts("") == {"failed": 1, "stalled": 1, "idle": 10_000}
    assert counts("state=failed") == counts("")
    assert counts("topic=orders&state=idle") == {"failed": 1, "stalled": 1}
    assert counts("topic=nope") == {}


@pytest.mark.parametrize(
    "query",
    ["state=odd", "sort=odd", "limit=x", "offset=-1", "limit=1e3", "topic=" + 9 * "*a",
     "offset=9999999999999999999999", "limit=%D9%A1"],
)  # fmt: skip
def test_wrong_queries_are_400(ask, query):
    reply = ask.get(f"{FLOW}/partitions?{query}")
    assert reply.status == 400
    assert reply.message


def test_topics_groups_and_jobs(ask):
    found = ask.get(f"{V1}/topics?sort=-lag").json
    assert [(t["flow"], t["topic"]) for t in found["topics"]] == [
        ("A->B", "orders"),
        ("A->B", "big"),
    ]
    assert ask.get(f"{V1}/topics?flow=B-%3EA").json["total"] == 0
    assert ask.get(f"{V1}/topics?flow=x").status == 404
    reply = ask.get(f"{V1}/groups")
    assert reply.json["groups"] == [
        {"flow": "A->B", "group": HOSTILE, "said": {"sync": "in use"}, "ready": None, "why": "",
         "partitions": 0, "lag": None}
    ]  # fmt: skip
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    found = ask.get(f"{V1}/jobs?sort=-error").json
    assert [j["error"] for j in found["jobs"]] == ["no right", ""]


def test_a_topic_has_the_state_of_its_worst_partition(ask):
    worst, fine = ask.get(f"{V1}/topics?sort=-state").json["topics"]
    assert {name: worst[name] for name in ("topic", "state", "partition", "since", "paused")} == {
        "topic": "orders", "state": "failed", "partition": 0, "since": "1970-01-01T00:00:01.000Z",
        "paused": None,
    }  # fmt: skip
    # It is idle since the last of its partitions is.
    assert (fine["state"], fine["partition"], fine["since"][:16]) == (
        "idle", None, "1970-01-01T02:46",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["idle", "waiting"], ["paused", "by ada", None, 2.0]),
        (["idle", "idle"], ["paused", "by ada", None, None]),
        # Whoever paused it may not know.
        (["waiting", "failed"], ["failed", "why 1", 1, 2.0]),
        ([], ["paused", "by ada", None, None]),
    ],
)
def test_a_paused_topic_says_so_unless_something_is_worse(states, said):
    rows = tuple(
        partition("t", number, PartitionState(state))._replace(reason=f"why {number}")
        for number, state in enumerate(states)
    )
    topic = TopicSnapshot("t", "A.t", len(rows), 0, 0.0, 0)
    life = Life(FlowState.RUNNING)
    flow = FlowSnapshot("A->B", "A", "B", life, topics=(topic,), partitions=rows,
                        paused_topics={"t": "by ada"})  # fmt: skip
    [row] = topic_rows(flow)
    plain = row.to_json()
    since = moment(said[3]) if said[3] else None
    assert [plain[name] for name in ("state", "reason", "partition", "since")] == [*said[:3], since]
    assert plain["paused"] == "by ada"


def test_a_group_on_both_sides(ask):
    found = ask.get(f"{V1}/group?flow=A-%3EB&group={quote(HOSTILE)}").json
    assert {key: found[key] for key in ("flow", "group", "ready", "why", "said")} == {
        "flow": "A->B", "group": HOSTILE, "ready": None, "why": "", "said": {"sync": "in use"},
    }  # fmt: skip
    assert found["partitions"] == [
        {"topic": "orders", "partition": 0, "target_topic": "A.orders", "source_committed": 5,
         "source_end": 9, "translated": 4, "target_committed": 3, "target_end": 8},
        {"topic": "orders", "partition": 1, "target_topic": "A.orders", "source_committed": 7,
         "source_end": None, "translated": None, "target_committed": None, "target_end": None},
    ]  # fmt: skip
    for query, status in (("flow=A-%3EB&group=x", 404), ("flow=x&group=x", 404), ("flow=x", 400),
                          ("group=x", 400)):  # fmt: skip
        assert ask.get(f"{V1}/group?{query}").status == status


def test_groups_are_found_by_a_part_of_their_name_or_a_pattern(ask):
    def total(text):
        return ask.get(f"{V1}/groups?group={quote(text)}").json["total"]

    assert [total(t) for t in ("src=x", "SRC=", "img*", "<img*", "nope", "")] == [1, 0, 0, 1, 0, 1]


def test_configuration_with_its_origin_and_without_secrets(ask):
    reply = ask.get(f"{V1}/config?flow=A-%3EB")
    assert [flow["flow"] for flow in reply.json["flows"]] == ["A->B"]
    keys = {row["key"]: row for row in reply.json["flows"][0]["keys"]}
    assert keys["topics"]["value"] == "orders"
    assert not keys["topics"]["is_default"]
    assert keys["topics"]["origin"]
    assert keys["refresh.topics.enabled"]["is_default"]
    assert b"s3cret" not in reply.body
    assert ask.get(f"{V1}/config?flow=x").status == 404


def test_many_who_ask_at_once_share_a_snapshot(shared, monkeypatch):
    lab, ask = shared
    now = [1e9]
    monkeypatch.setattr(latest, "time", SimpleNamespace(monotonic=lambda: now[0]))
    before = lab.made
    for _ in range(5):
        ask.get(f"{V1}/flows")
    assert lab.made == before + 1
    now[0] += 1
    ask.get(f"{V1}/flows")
    assert lab.made == before + 2
    # The same bytes for the same question, others for others.
    pages = {ask.get(f"{FLOW}/partitions?{query}").body for query in ("", "", "limit=1", "limit=2")}
    assert len(pages) == 3
    assert ask.get(f"{V1}/topics").json["topics"] != ask.get(f"{V1}/groups").json
    # What is known costs no routing, and goes to nobody who would not get it otherwise.
    url = f"{V1}/topics?limit=1"
    known = ask.get(url)
    asked = []
    monkeypatch.setattr(routing, "_call_of", lambda *_: asked.append(1) or 1 / 0)
    again = ask.get(url)
    assert (again.status, again.body, asked) == (200, known.body, [])
    assert dict(again.headers) | {"date": ""} == dict(known.headers) | {"date": ""}
    assert ask("GET", url, headers={"Accept": "text/html"}).status == 406
    assert ask("GET", url, headers={"Content-Type": "text/plain"}).status == 415
    assert asked == []
    now[0] += 1
    assert (ask.get(url).status, asked) == (500, [1])
    monkeypatch.undo()
    # Clocks do not go back, but this one does, at the end of the test.
    ask("POST", f"{FLOW}/resume")


def test_commands(shared, caplog):
    lab, ask = shared
    lab.supervisor.done.clear()
    caplog.set_level(logging.INFO)
    reply = ask("POST", f"{FLOW}/pause")
    assert (reply.status, reply.json) == (202, {"flow": "A->B", "parts": ["copying", "heartbeats"]})
    assert ask("POST", f"{FLOW}/resume?part=copying").status == 202
    assert ask("POST", f"{FLOW}/restart?part=copying,heartbeats&part=copying").status == 202
    assert lab.supervisor.done == [
        ("pause",), ("resume", "copying"), ("restart", "copying", "heartbeats"),
    ]  # fmt: skip
    lab.supervisor.done.clear()
    assert ask("POST", f"{FLOW}/pause?topic=orders,big").status == 202
    assert ask("POST", f"{FLOW}/resume?topic=orders").status == 202
    assert lab.supervisor.done == [("pause topics", "orders", "big"), ("resume topics", "orders")]
    lab.supervisor.done.clear()
    assert ask("POST", f"{FLOW}/pause?part=copying&why=B%20is%1Bmoved").status == 202
    assert lab.supervisor.done == [("pause", "copying", "paused through REST: B is\\x1bmoved")]
    for query, status in (("part=odd", 400), ("part=checkpoints", 400), ("topic=x", 400),
                          ("topic=orders&part=copying", 400),
                          (f"why={'x' * 301}", 400)):  # fmt: skip
        assert ask("POST", f"{FLOW}/pause?{query}").status == status
    assert ask("POST", f"{V1}/flows/x/pause").status == 404
    # One that another process has, or that was just removed.
    assert ask("POST", f"{V1}/flows/B-%3EA/pause").status == 404
    assert "anybody (admin, 127.0.0.1) POST /heliograph/v1/flows/A->B/pause: 202" in caplog.text


def test_events_as_pages():
    lab = Lab()
    with serving(lab.herder, lab.mirrored) as ask:
        empty = ask.get(f"{V1}/events").json
        assert empty == {"events": [], "next": 0, "last": 0, "missed": 0}
        lab.publish("one", HOSTILE)
        lab.bus.publish(
            PartitionEvent("A->B", TopicPartition("orders", 3), "source.cut", "text", 5, 9),
            JobEvent("A->B", "job", "job.failed", "why"),
        )
        found = ask.get(f"{V1}/events").json
        kinds = ["flow", "flow", "partition", "job"]
        assert [event["kind"] for event in found["events"]] == kinds
        third = found["events"][2]
        assert (third["topic"], third["partition"], third["first"]) == ("orders", 3, 5)
        assert third["level"] == "warning"
        assert found["next"] == found["last"] == 4
        page = ask.get(f"{V1}/events?after=1&limit=2").json
        assert [event["sequence"] for event in page["events"]] == [2, 3]
        assert (page["next"], page["last"]) == (3, 4)
        # A number of a mirror that ran before.
        assert len(ask.get(f"{V1}/events?after=4000").json["events"]) == 4
        lab.publish(*map(str, range(60)))
        assert ask.get(f"{V1}/events?after=1").json["missed"] == 13


class Stream:
    """Reads server-sent events, one at a time."""

    def __init__(self, ask, query="", path="/events/stream", **headers):
        self.connection = ask.connect()
        self.connection.request("GET", f"{V1}{path}{query}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.headers["Content-Type"].startswith("text/event-stream")
        assert self._lines() == ["retry: 2000"]

    def _lines(self):
        lines = []
        while line := self.answer.fp.readline():
            # The chunks of the transfer stand between the lines.
            text = line.decode().strip()
            if not text and lines:
                return lines
            if ":" in text:
                lines.append(text)
        return lines

    def next(self):
        while lines := self._lines():
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if fields:
                return fields.get("id"), fields["event"], json.loads(fields["data"])
        return None

    def close(self):
        self.connection.close()


def test_events_as_a_stream():
    lab = Lab()
    lab.publish("before")
    with serving(lab.herder, lab.mirrored, limits=Limits(streams=3)) as ask:
        late, early = Stream(ask), Stream(ask, "?after=0")
        assert early.next()[2]["text"] == "before"
        lab.publish("one", HOSTILE)
        for stream in (late, early):
            number, kind, event = stream.next()
            assert (number, kind, event["text"]) == ("2", "flow", "one")
            assert stream.next()[2]["text"] == HOSTILE
        again = Stream(ask, **{"Last-Event-ID": "2"})
        assert again.next()[0] == "3"
        reply = ask.get(f"{V1}/events/stream")
        assert (reply.status, reply.message) == (503, "Too many follow the events already")
        early.close()
        lab.publish(*map(str, range(60)))
        assert [int(again.next()[0]) for _ in range(60)] == list(range(4, 64))
        again.close()
        late.close()
    assert ask.listener.port


def test_a_stream_says_what_it_missed_and_ends_with_the_server():
    lab = Lab()
    lab.publish(*map(str, range(60)))
    with serving(lab.herder, lab.mirrored) as ask:
        assert ask("HEAD", f"{V1}/events/stream").status == 200
        assert ask.get(f"{V1}/events/stream?after=x").status == 400
        stream = Stream(ask, "?after=3")
        assert stream.next()[1:] == ("missed", {"missed": 7})
        assert stream.next()[0] == "11"
        # A number of a mirror that ran before: everything is new.
        restarted = Stream(ask, **{"Last-Event-ID": "4000"})
        assert restarted.next()[1:] == ("missed", {"missed": 10})
    while (found := stream.next()) is not None:
        last = found
    assert last[0] == "60"
    stream.close()
    restarted.close()
