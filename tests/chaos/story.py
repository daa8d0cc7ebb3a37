"""Do all views of a mirror tell the same story? ``make story MINUTES=10``.

Two real clusters, numbered records without a pause, and a real ``heliograph run --listen`` with a
log file. Faults are injected one after another. At each fault, and after each repair, all views are
asked until they tell it: the dashboard in a real browser, ``heliograph status``, ``/metrics``, the
log, ``/health/ready`` and ``/health/live`` beside them. A row of the table is a fault: what each
view said, after how many seconds, and whether they agree. They do not if

- a view does not name the flow, the partitions, the state and the reason of the fault,
- a view does not say that all is well after the repair,
- a view names something that was not injected,
- one says *healthy* while another one says otherwise for longer than `BOUND` seconds,
- ``/health/live`` does not answer 200: only a driver that hangs, or its JVM, is not live.

At the end every record of the source must be on the target once.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
from browsing import MISSING, browser
from checker import Checker
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from load import Load, LoadedTopic
from mirror_process import MirrorProcess
from mirrors import SOURCE, TARGET, Heliograph
from nemesis import (
    BrokerKilled,
    BrokerStopped,
    Fault,
    JvmKilled,
    LinkPartition,
    WorkerKilled,
    World,
    write_foreign,
)
from proxy import Proxies, before
from servant import Servant
from story_report import differing, report, table
from views import (
    BAD,
    NAMED,
    Dashboard,
    Live,
    LogFile,
    Metrics,
    Ready,
    Status,
    command,
    counted_on_page,
    events_in,
    flow_url,
    get,
    post,
    words_of_status,
)

from heliograph.lab import Lab
from heliograph.lab.broker import free_ports

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "benchmarks" / "results" / "story.md"
FLOW = f"{SOURCE}->{TARGET}"
STALLED_AFTER = 6
#: A mirror measures every 2 s, and the page is sent figures every 2 s: views that differ for longer
#: than two rounds of both do not tell the same.
BOUND = 8.0
#: How long views have to tell a fault, and to tell that it is over.
TELL_SECONDS = 90.0
HEAL_SECONDS = 180.0
_START_SECONDS = 300.0
_CALM_SECONDS = 3.0
_HOLD_SECONDS = 3.0
_STEADY_SECONDS = STALLED_AFTER + 6.0
PLAIN, SINGLE, LARGE, LOST = "story-plain", "story-single", "story-large", "story-lost"
HEARTBEATS = "heartbeats"
#: Of the records whose first ones the source deletes.
_DELETED, _LEFT = 20, 10
LOADED = (
    LoadedTopic(PLAIN, "lz4", False, 3, 0, 200),
    LoadedTopic(SINGLE, "none", False, 1, 3, 50),
)
_SMALL, _LARGE, _RECORD = "50000", "2000000", 200_000


class Watched(Heliograph):
    """``heliograph run`` with a REST API, a log file and short intervals."""

    def __init__(self, folder, lab, topics):
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log_file = folder / "mirror.jsonl"
        super().__init__(folder, lab, topics, lease_seconds=5, replicas=1)

    def settings(self, replicas):
        return super().settings(replicas) | {
            "heliograph.stalled.after.seconds": STALLED_AFTER,
            "heliograph.canary.interval.seconds": 1,
            "heliograph.metrics.partitions": "true",
            "heliograph.rest.changes": "true",
            "heliograph.on.data.loss": "continue",
            "refresh.topics.interval.seconds": 5,
            # The remote topic of the record that is too large keeps its own limit.
            "sync.topic.configs.enabled": "false",
        }

    def _launch(self):
        self.process = MirrorProcess(
            self.config, self.log_path, "--listen", self.url.removeprefix("http://"), "-o", "json",
            "--log-file", str(self.log_file), "--log-format", "json",
        )  # fmt: skip
        return self.process.pid


# -- faults that only a mirror with a REST API, or a story, has -----------------------------------


class FlowPaused(Fault):
    """By clicks on the dashboard, or without a browser by REST."""

    name = "flow paused"

    def __init__(self, world, page):
        super().__init__(world)
        self._page = page

    def inject(self):
        return self._order("pause")

    def heal(self):
        self._order("resume")

    def _order(self, word):
        if self._page is not None:
            self._page.order(FLOW, word)
            return f"a click on {word} on the flow's page, and on yes"
        post(flow_url(self.world.mirrors[0].url, FLOW, f"/{word}"))
        return f"POST .../flows/{FLOW}/{word}"


class TopicPaused(Fault):
    name, topic, how_long = "topic paused", SINGLE, ""

    def inject(self):
        post(flow_url(self.world.mirrors[0].url, FLOW, f"/pause?topic={self.topic}"))
        return f"POST .../flows/{FLOW}/pause?topic={self.topic}{self.how_long}"

    def heal(self):
        post(flow_url(self.world.mirrors[0].url, FLOW, f"/resume?topic={self.topic}"))


class RecordsDeleted(Fault):
    """The source deletes records that are not mirrored yet, as retention does.

    Nothing heals that: by heliograph.on.data.loss=continue the partition goes on behind the gap.
    """

    name = "records deleted unread"

    def inject(self):
        pause = flow_url(self.world.mirrors[0].url, FLOW, f"/pause?topic={LOST}")
        post(pause)
        self._await(lambda row: row["state"] == "waiting" and "paused" in row["reason"])
        servers = {"bootstrap.servers": self.world.lab[SOURCE].back_door, "log_level": 0}
        producer, offsets = Producer(servers), []

        def noted(_, message):
            offsets.append(message.offset())

        for number in range(_DELETED + _LEFT):
            producer.produce(LOST, str(number).encode(), partition=0, on_delivery=noted)
        assert producer.flush(60) == 0
        before = TopicPartition(LOST, 0, min(offsets) + _DELETED)
        admin = AdminClient(servers)
        for future in admin.delete_records([before]).values():
            future.result(30)
        post(pause.replace("/pause?", "/resume?"))
        self._await(lambda row: "paused" not in row["reason"])
        return f"{_DELETED} of {_DELETED + _LEFT} new records of {LOST}-0 are deleted on {SOURCE}"

    def _await(self, condition):
        url = flow_url(self.world.mirrors[0].url, FLOW, f"/partitions?topic={LOST}")
        deadline = time.monotonic() + TELL_SECONDS
        while not condition(json.loads(_body(url))["partitions"][0]):
            assert time.monotonic() < deadline, _body(url)
            time.sleep(0.2)


class CanaryLost(TopicPaused):
    """Heartbeats do not arrive, and everything else does."""

    name, topic, how_long = "heartbeats held up", HEARTBEATS, ", for longer than 30 s"


class RecordRefused(Fault):
    name = "record too large"

    def inject(self):
        limit_target(self.world.lab, _SMALL)
        producer = Producer({
            "bootstrap.servers": self.world.lab[SOURCE].back_door, "log_level": 0,
            "message.max.bytes": int(_LARGE), "compression.type": "none",
        })  # fmt: skip
        producer.produce(LARGE, os.urandom(_RECORD), partition=0)
        assert producer.flush(60) == 0
        return f"a record of {_RECORD:,} bytes; max.message.bytes of the remote topic is {_SMALL}"

    def heal(self):
        limit_target(self.world.lab, _LARGE)


def limit_target(lab, value):
    """Set ``max.message.bytes`` of the remote topic."""
    admin = AdminClient({"bootstrap.servers": lab[TARGET].back_door, "log_level": 0})
    entry = ConfigEntry("max.message.bytes", value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, f"{SOURCE}.{LARGE}", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result(30)


class ForeignWrite(Fault):
    name = "foreign write"

    def inject(self):
        written = write_foreign(self.world, [(SINGLE, 0)])
        return f"another producer writes {written} records to {SOURCE}.{SINGLE}-0"


# -- what is expected of the views ----------------------------------------------------------------


@dataclass(frozen=True)
class Chapter:
    """A fault, and what all views must tell of it.

    Attributes:
        claims: what they must say is wrong, in the words of `views`; empty: nothing is wrong.
        code: that of the event in the log; ``over`` that of the one after the repair.
        reason: a pattern that the reason must fit where a view has one.
        more: a pattern of what may be said besides, because it follows from the fault.
        ready: whether ``/health/ready`` must say that the mirror is not ready.
        counter: a metric that must grow: (series, labels); ``counts``: by how much, if that is
            known.
        passes: it is over by itself, perhaps before anybody can run a command.
        hidden: exit codes of ``heliograph status FILE`` that are right although it names nothing.
    """

    fault: Fault
    claims: frozenset = frozenset()
    code: str = ""
    over: str = ""
    reason: str = ""
    more: str = r"(?!)"
    ready: bool = True
    counter: tuple = ()
    counts: int = 0
    passes: bool = False
    hidden: tuple = ()

    @property
    def partitions(self):
        """{name: state} of the partitions in trouble."""
        found = {}
        for claim in self.claims:
            flow, _, rest = claim.partition(" ")
            name, _, state = rest.rpartition(" ")
            if flow == FLOW and state in BAD:
                found[name] = state
        return found

    @property
    def state(self):
        return next(iter(self.partitions.values()), "")

    def uninvited(self, claims):
        """What nobody injected."""
        return {c for c in claims - self.claims if not re.fullmatch(self.more, c)}


#: What follows from a cluster that is away: everything that needs it.
_OUTAGE = r".* job failing|.* lag not known|.* (stalled|failed)|.* canary lost|.* starting"
#: After Spark, or a part of it, was killed: nothing is copied for a while.
_SPARK = r".* stalled|Spark starting|.* canary lost|.* job failing"


def chapters(world, names, page):
    """All faults, in the order in which they are told.

    ``names`` are the flow's partitions, ``page`` is the dashboard, None without a browser.
    """
    stalled = frozenset(f"{FLOW} {name} stalled" for name in names)

    def away(fault, alias, hidden=()):
        return Chapter(fault(world, alias), stalled, "partition.stalled", "partition.recovered",
                       _away(alias), _OUTAGE, ready=False, hidden=hidden)  # fmt: skip

    return [
        away(BrokerStopped, TARGET, hidden=(3,)),
        Chapter(FlowPaused(world, page), frozenset({f"{FLOW} paused"}), "flow.paused",
                "flow.resumed", "paused", rf"{FLOW} (copying|checkpoints|heartbeats) paused"),
        Chapter(RecordRefused(world), frozenset({f"{FLOW} {LARGE}-0 failed"}), "partition.failed",
                "partition.recovered", r"\[target\.refused\]",
                # It does not move until the target's limit was asked for.
                rf"{FLOW} {LARGE}-0 stalled"),
        away(BrokerKilled, SOURCE),
        Chapter(TopicPaused(world), frozenset({f"{FLOW} topic {SINGLE} paused"}),
                "flow.topic-paused", "flow.topic-resumed", "paused",
                # For a moment metrics count a topic whose partitions are not judged yet.
                rf"{FLOW} 1 topics paused"),
        Chapter(ForeignWrite(world), code="target.foreign",
                counter=("heliograph_foreign_records_total", {"flow": FLOW})),
        away(LinkPartition, TARGET, hidden=(3,)),
        Chapter(RecordsDeleted(world), code="source.data-loss",
                # While they are written and deleted, their topic is paused.
                more=rf"{FLOW} (topic {LOST}|1 topics) paused",
                counter=("heliograph_lost_records_total", {"flow": FLOW}), counts=_DELETED),
        Chapter(CanaryLost(world), frozenset({f"{FLOW} canary lost"}), "flow.canary-lost",
                "flow.canary-back", "on its way",
                rf"{FLOW} (topic {HEARTBEATS}|1 topics) paused"),
        # Spark runs the task again, and nobody has to know: no view may make a fault of it.
        Chapter(WorkerKilled(world), more=_SPARK),
        Chapter(JvmKilled(world), frozenset({"Spark starting"}), "engine.replaced", "engine.ready",
                "JVM is gone", _SPARK, ready=False, passes=True),
    ]  # fmt: skip


def _away(alias):
    return rf"{alias}\b.*(answer|refused|reach|timed out|closed|broker)|broker.*\b{alias}\b"


def missing(view, told, chapter, since, before_):
    """What an answer does not tell of a fault; empty if it tells all."""
    return _MISSING[view.name_](view, told, chapter, since, before_)


def _unsaid(told, chapter):
    return [f"not said: {claim}" for claim in sorted(chapter.claims - told.claims)]


def _status_lacks(view, told, chapter, since, before_):
    lacks = _unsaid(told, chapter)
    flow = _flow(told)
    if chapter.claims and told.healthy:
        lacks.append("it says healthy")
    if chapter.partitions and not lacks:
        rows = {f"{r['topic']}-{r['partition']}": r for r in flow["troubled"]}
        for name in chapter.partitions:
            row = rows[name]
            text = f"[{row['code']}] {row['reason']}" if row["code"] else row["reason"]
            if not _fits(chapter.reason, text):
                lacks.append(f"{name}: another reason: {text}")
    elif chapter.reason and chapter.claims:
        found = told.facts["problems"]
        if not _spark(chapter) and not any(_fits(chapter.reason, text) for text in found):
            lacks.append(f"another reason: {found}")
    if _is_counted(chapter) and _more_in_status(told, chapter, before_) <= 0:
        lacks.append(f"no {chapter.code} is counted")
    return lacks


def _is_counted(chapter):
    """Whether its event is one of a flow."""
    return chapter.code not in ("", "notice") and not _spark(chapter)


def _more_in_status(told, chapter, before_):
    """How many events of the fault's code `status` counts since it was injected."""
    return _flow(told)["events"].get(chapter.code, 0) - before_["events"].get(chapter.code, 0)


def _spark(chapter):
    return any(claim.startswith("Spark") for claim in chapter.claims)


def _flow(told):
    return next(flow for flow in told.facts["flows"] if flow["flow"] == FLOW)


def _metrics_lack(view, told, chapter, since, before_):
    lacks, series = _unsaid(told, chapter), told.facts["series"]
    if chapter.partitions:
        counted = _value(series, "heliograph_partitions", {"flow": FLOW, "state": chapter.state})
        if counted != len(chapter.partitions):
            lacks.append(f"{counted:g} partitions are {chapter.state}")
    if _is_counted(chapter) and _more_in_metrics(series, chapter, before_) <= 0:
        lacks.append(f"no {chapter.code} is counted")
    if chapter.counter:
        grown = _value(series, *chapter.counter) - before_["counter"]
        if grown <= 0 or (chapter.counts and grown != chapter.counts):
            lacks.append(f"{chapter.counter[0]} grows by {grown:g}")
    return lacks


def _more_in_metrics(series, chapter, before_):
    return events_in(series, FLOW, chapter.code) - before_["events"].get(chapter.code, 0)


def _value(series, name, labels):
    found = [v for found, v in series.get(name, ()) if labels.items() <= found.items()]
    return found[0] if found else 0.0


def _log_lacks(view, told, chapter, since, before_):
    lacks, events = _unsaid(told, chapter), view.events_since(since)
    texts = [e["text"] for e in events if e.get("code") == chapter.code]
    if chapter.code and not texts:
        return [f"no {chapter.code}"]
    if chapter.counts:
        named = sum(e.get("until", 0) - e.get("first", 0) for e in events
                    if e.get("code") == chapter.code)  # fmt: skip
        if named != chapter.counts:
            lacks.append(f"{chapter.code} names {named} offsets")
    if chapter.partitions:
        named = {f"{e['topic']}-{e['partition']}": e["text"] for e in events
                 if e.get("code") == chapter.code and e["flow"] == FLOW}  # fmt: skip
        lacks += [
            f"no {chapter.code} of {name}" for name in chapter.partitions.keys() - named.keys()
        ]
        texts = [named[name] for name in chapter.partitions.keys() & named.keys()]
        lacks += [f"another reason: {t}" for t in texts if not _fits(chapter.reason, t)]
    elif chapter.reason and not any(_fits(chapter.reason, t) for t in texts):
        lacks.append(f"another reason: {texts}")
    return lacks


def _fits(pattern, text):
    return re.search(pattern, text, re.DOTALL) is not None


def _page_lacks(view, told, chapter, since, before_):
    shown, lacks = told.facts, []
    if chapter.claims and told.healthy:
        lacks.append(f"it says: {shown['sentence']}")
    if chapter.partitions:
        counted = counted_on_page(shown, FLOW, chapter.state)
        if counted != len(chapter.partitions):
            lacks.append(f"{counted} partitions are {chapter.state}")
        if f"{chapter.state} partition" not in shown["sentence"]:
            lacks.append(f"the sentence is {shown['sentence']}")
        named = [i for i in shown["attention"] if i["what"] in chapter.partitions
                 and i["state"] == chapter.state]  # fmt: skip
        if len(named) != min(NAMED, len(chapter.partitions)):
            lacks.append(f"{len(named)} of {len(chapter.partitions)} need attention")
        lacks += [f"{i['what']}: another reason: {i['reason']}" for i in named
                  if not _fits(chapter.reason, i["reason"])]  # fmt: skip
    else:
        lacks += _unsaid(told, chapter)
    if chapter.code and not chapter.partitions:
        wanted = chapter.reason if chapter.code == "notice" else re.escape(chapter.code)
        if not any(_fits(wanted, text) for text in shown["events"]):
            lacks.append(f"no {chapter.code} among the latest events")
    return lacks


def _ready_lacks(view, told, chapter, since, before_):
    if not chapter.claims:
        return []
    if told.healthy is not chapter.ready:
        return [f"it answers {told.words}"]
    return []


def _live_lacks(view, told, chapter, since, before_):
    return [] if told.healthy else [f"it answers {told.words}"]


_MISSING = {"dashboard": _page_lacks, "status": _status_lacks, "metrics": _metrics_lack,
            "log": _log_lacks, "ready": _ready_lacks, "live": _live_lacks}  # fmt: skip


def found_by(view, told, chapter, since, before_):
    """By what a view tells a fault that leaves everything healthy; empty for other faults."""
    if chapter.claims or not chapter.code:
        return ""
    code = chapter.code
    if view.name_ == "dashboard":
        count = sum(code in text for text in told.facts["events"])
    elif view.name_ == "status":
        count = _more_in_status(told, chapter, before_)
    elif view.name_ == "metrics":
        series, (name, labels) = told.facts["series"], chapter.counter
        grown = _value(series, name, labels) - before_["counter"]
        count = _more_in_metrics(series, chapter, before_)
        return f"event {code} x{count:g}, {name.removeprefix('heliograph_')} +{grown:g}"
    elif view.name_ == "log":
        count = sum(event.get("code") == code for event in view.events_since(since))
    else:
        return ""
    return f"event {code} x{count}"


def disagreement(one, other, since, until):
    """For how long, for certain, ``one`` said healthy while ``other`` said otherwise."""
    longest = 0.0
    for well in _runs(one.since(since), True, until):
        for ill in _runs(other.since(since), False, until):
            longest = max(longest, min(well[1], ill[1]) - max(well[0], ill[0]))
    return longest


def _runs(told, healthy, until):
    """[from, to] of answers in a row that say so: from the first answer to the last question."""
    for says, group in itertools.groupby(told, key=lambda t: t.healthy):
        found = list(group)
        if says is healthy and found[0].answered < until:
            yield found[0].answered, min(found[-1].asked, until)


# -- the run --------------------------------------------------------------------------------------


@dataclass
class Row:
    """A line of the table."""

    name: str
    did: str
    said: dict = field(default_factory=dict)  # words by view
    told: dict = field(default_factory=dict)  # seconds by view
    well: dict = field(default_factory=dict)
    by_file: str = ""
    longest: float = 0.0
    wrong: list = field(default_factory=list)


class Story:
    """One run. Everything that was started is on the stack, and ends with it."""

    stalled_after, bound = STALLED_AFTER, BOUND

    def __init__(self, folder, options, say):
        self.folder, self.options, self.say = folder, options, say
        self.rows, self.notes, self.wrong = [], [], []
        self.streams = {
            (t.name, p): t.first_stream + p for t in LOADED for p in range(t.partitions)
        }

    def run(self):
        with ExitStack() as stack:
            world = self._build(stack)
            self.views = self._watch(stack, world)
            self._await_start()
            told = self._chapters(world)
            began = time.monotonic()
            for number, chapter in enumerate(told):
                over = time.monotonic() - began > 60 * self.options["minutes"]
                if number >= self._least and over:
                    break
                self._tell(chapter)
                if not self.mirror.process.running:
                    self.wrong.append("the mirror has ended")
                    break
            self._finish()

    def _build(self, stack):
        proxies = stack.enter_context(Proxies(2))
        a, b = proxies.ports
        lab = Lab(self.folder, heap="384m", advertised={SOURCE: [a], TARGET: [b]})
        stack.callback(lab.stop, grace_s=0)
        lab.start(180)
        self.say(f"two clusters in {self.folder}")
        self._create(lab)
        self.mirror = Watched(self.folder, lab, "story-.*")
        world = World(lab, proxies, before(proxies, lab), random.Random(self.options["seed"]),
                      mirrors=[self.mirror], streams=self.streams)  # fmt: skip
        self.checker = Servant(
            Checker, lab[SOURCE].back_door, lab[TARGET].back_door,
            {self.mirror.name: self.mirror.prefix}, self.streams,
        )  # fmt: skip
        stack.callback(self.checker.close)
        self.load = Servant(Load, lab[SOURCE].back_door, LOADED, self.options["seed"])
        stack.callback(self.load.close)
        stack.callback(self.mirror.destroy)
        self.mirror.start()
        return world

    def _create(self, lab):
        def create(alias, topics):
            admin = AdminClient({"bootstrap.servers": lab[alias].back_door, "log_level": 0})
            for future in admin.create_topics(topics).values():
                future.result(60)

        create(SOURCE, [*(NewTopic(t.name, t.partitions, 1) for t in LOADED),
                        NewTopic(LOST, 1, 1),
                        NewTopic(LARGE, 1, 1, config={"max.message.bytes": _LARGE})])  # fmt: skip
        small = {"max.message.bytes": _SMALL}
        create(TARGET, [NewTopic(f"{SOURCE}.{LARGE}", 1, 1, config=small)])

    def _watch(self, stack, world):
        url = self.mirror.url
        self._await(lambda: _answers(url), _START_SECONDS, "the REST API")
        views = [
            Status(url), Metrics(url), LogFile(self.mirror.log_file), Ready(url), Live(url),
        ]  # fmt: skip
        if MISSING:
            self.notes.append(f"The dashboard was left out: {MISSING}.")
            self.say(self.notes[-1])
        else:
            page = Dashboard(stack.enter_context(browser()), url)
            page.open()
            views.insert(0, page)
        for view in views:
            stack.callback(view.close)
            view.start()
        return views

    def _await(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.mirror.process.running:
                raise RuntimeError(f"the mirror has ended: {self.mirror.log_path}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.2)

    def _await_start(self):
        def copied():
            source, there, _ = self.checker.progress()
            return source and there[self.mirror.name] and all(v.last.healthy for v in self.views)

        try:
            self._await(copied, _START_SECONDS, "all views say healthy")
        except RuntimeError as error:
            said = {v.name_: v.last.words for v in self.views}
            raise RuntimeError(f"{error}: {said}") from error
        self.say("all views say that all is well")
        self._calm("before the first fault")

    def _calm(self, when):
        """Nothing is wrong, and nobody says that anything is."""
        since = time.monotonic()
        time.sleep(_CALM_SECONDS)
        for view in self.views:
            for told in view.since(since):
                if told.claims:
                    self.wrong.append(f"{when}, {view.name_} says: {told.words}")

    def _chapters(self, world):
        status = next(v for v in self.views if isinstance(v, Status))
        flow = _flow(status.last)
        with_partitions = json.loads(
            _body(flow_url(self.mirror.url, FLOW, "/partitions?limit=100"))
        )
        names = [f"{p['topic']}-{p['partition']}" for p in with_partitions["partitions"]]
        assert len(names) == flow["partitions"], names
        page = next((v for v in self.views if isinstance(v, Dashboard)), None)
        found = chapters(world, names, page)
        wanted = self.options["faults"]
        chosen = [c for c in found if not wanted or any(w in c.fault.name for w in wanted)]
        self._least = len(chosen)
        return itertools.cycle(chosen)

    def _tell(self, chapter):
        before_ = self._before(chapter)
        since = time.monotonic()
        row = Row(chapter.fault.name, chapter.fault.inject())
        self.rows.append(row)
        self.say(f"{row.name}: {row.did}")
        try:
            self._await_told(chapter, row, since, before_)
            # States may still change: a view that told at once must not take it back.
            time.sleep(_HOLD_SECONDS if chapter.claims and not chapter.passes else 0)
            self._ask_commands(chapter, row, "at the fault", well=not chapter.claims)
        finally:
            healed = time.monotonic()
            chapter.fault.heal()
        self._await_well(chapter, row, since if chapter.passes else healed)
        if chapter.passes:
            self._await_steady()
        self._ask_commands(chapter, row, "after the repair", well=True)
        until = time.monotonic()
        self._judge(chapter, row, since, until)
        self._calm(f"after {row.name}")
        times = ", ".join(f"{n} {s:.1f} s" for n, s in row.told.items())
        self.say(f"{row.name}: told after {times}; " + ("; ".join(row.wrong) or "all agree"))

    def _before(self, chapter):
        by_name = {v.name_: v.last for v in self.views}
        counter = 0.0
        if chapter.counter:
            counter = _value(by_name["metrics"].facts["series"], *chapter.counter)
        return {"events": dict(_flow(by_name["status"])["events"]), "counter": counter}

    def _await_told(self, chapter, row, since, before_):
        """Until each view has told the fault, or did not in time."""
        deadline, lacking = since + TELL_SECONDS, {}
        waiting = list(self.views)
        seen = dict.fromkeys(waiting, since)
        while waiting and time.monotonic() < deadline:
            time.sleep(0.1)
            for view in list(waiting):
                for told in view.since(seen[view]):
                    seen[view] = told.answered
                    if told.words.startswith("no answer"):
                        lacking[view] = [told.words]
                        continue
                    lacking[view] = missing(view, told, chapter, since, before_)
                    if not lacking[view]:
                        row.told[view.name_] = told.answered - since
                        found = found_by(view, told, chapter, since, before_)
                        row.said[view.name_] = "; ".join(filter(None, [told.words, found]))
                        waiting.remove(view)
                        break
        for view in waiting:
            row.said[view.name_] = view.last.words
            what = "; ".join(lacking.get(view, ["nothing was heard of it"]))
            row.wrong.append(f"{view.name_} did not tell it: {what}")

    def _await_well(self, chapter, row, healed):
        """Until each view says that all is well, and the log that it is over."""
        deadline, waiting = healed + HEAL_SECONDS, list(self.views)
        while waiting and time.monotonic() < deadline:
            time.sleep(0.1)
            for view in list(waiting):
                last = view.last
                if last.asked < healed or not last.healthy:
                    continue
                if isinstance(view, LogFile) and not self._is_over(chapter, view, healed):
                    continue
                row.well[view.name_] = last.answered - healed
                waiting.remove(view)
        row.wrong += [f"{v.name_} does not say that it is over: {v.last.words}" for v in waiting]

    def _await_steady(self):
        """Leases begin anew, and until they copy partitions may be stalled: wait for that, too."""
        deadline = time.monotonic() + HEAL_SECONDS
        while time.monotonic() < deadline:
            moment = time.monotonic() - _STEADY_SECONDS
            if all(told.healthy for view in self.views for told in view.since(moment)):
                return
            time.sleep(0.5)

    def _is_over(self, chapter, log, healed):
        if not chapter.over:
            return True
        # What is over may have been told a moment before the last step of the repair was done.
        events = [e for e in log.events_since(healed - 1) if e.get("code") == chapter.over]
        if not chapter.partitions:
            return bool(events)
        return {f"{e['topic']}-{e['partition']}" for e in events} >= chapter.partitions.keys()

    def _ask_commands(self, chapter, row, when, *, well):
        """Both forms of the real command, with their exit codes."""
        code, found, said = command(self.mirror.url)
        # What was over by then is told as healthy, and by nothing else.
        passed = chapter.passes and not well and (code, found and found["healthy"]) == (0, True)
        if not passed and ((code == 0) != well or found is None or found["healthy"] != well):
            row.wrong.append(f"{when}, heliograph status URL exits with {code}: {said or found}")
        began = time.monotonic()
        code, found, said = command(str(self.mirror.config))
        took = time.monotonic() - began
        told = words_of_status(found) if found is not None else said.splitlines()[0]
        source = found["mirror"]["from"] if found is not None else "nobody"
        if not well:
            row.by_file = f"{code}, from {source}, {took:.0f} s: {told}"
        passed = chapter.passes and not well and (code, found and found["healthy"]) == (0, True)
        if not passed and ((code == 0) != well or (found is None and code not in chapter.hidden)):
            row.wrong.append(f"{when}, heliograph status FILE exits with {code}: {told}")

    def _judge(self, chapter, row, since, until):
        """What was said too long, and what nobody injected."""
        for view in self.views:
            if isinstance(view, Live):
                wrong = {told.words for told in view.since(since) if not told.healthy}
                row.wrong += [f"live answered {words}" for words in sorted(wrong)]
        # Probes are no verdict on partitions, and have their own expectations.
        views = [v for v in self.views if not isinstance(v, (Ready, Live))]
        for view in views:
            uninvited = set()
            for told in view.since(since):
                uninvited |= chapter.uninvited(told.claims)
            if uninvited:
                row.wrong.append(
                    f"{view.name_} names what nobody did: {', '.join(sorted(uninvited))}"
                )
        for one, other in itertools.permutations(views, 2):
            seconds = disagreement(one, other, since, until)
            row.longest = max(row.longest, seconds)
            if seconds > BOUND:
                row.wrong.append(
                    f"{one.name_} said healthy for {seconds:.1f} s while {other.name_} did not"
                )

    def _finish(self):
        """The load ends; everything must be there once."""
        self.load.stop(patience=300)
        deadline = time.monotonic() + HEAL_SECONDS
        while time.monotonic() < deadline:
            source, there, _ = self.checker.progress()
            if there[self.mirror.name] >= source and min(self.checker.quiet_for().values()) > 3:
                break
            time.sleep(0.5)
        self.verdict = self.checker.verdict(self.mirror.name, {})
        code, report = self.mirror.verify(LARGE)
        self.verified = f"{LARGE}: {report['verdict']}"
        if code:
            self.wrong.append(f"heliograph verify: {self.verified}")
        if not self.verdict.exact:
            self.wrong += self.verdict.examples or ["not every record is on the target once"]
        exit_code = self.mirror.process.stop()
        if exit_code:
            self.wrong.append(f"heliograph run ended with exit code {exit_code}")

    @property
    def agree(self):
        return not self.wrong and not any(row.wrong for row in self.rows)


def _answers(url):
    try:
        return "flows" in json.loads(_body(f"{url}/heliograph/v1/snapshot"))
    except (OSError, ValueError):
        return False


def _body(url):
    return get(url)[1]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--minutes",
    default=10.0,
    show_default=True,
    help="How long faults are injected; each kind at least once.",
)
@click.option("--faults", default="", help="Only kinds whose names contain one of these, a,b,c.")
@click.option("--seed", default=16, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="For data and logs; kept if given.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the report goes.")
def main(minutes, faults, seed, folder, output):  # fmt: skip
    """Inject faults one after another, and compare what all views of the mirror say."""
    began = time.monotonic()

    def say(text):
        seconds = int(time.monotonic() - began)
        click.echo(f"{seconds // 60:3}:{seconds % 60:02}  {text}", err=True)

    kept = folder is not None
    folder = folder or Path(tempfile.mkdtemp(prefix="heliograph-story-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [name.strip() for name in faults.split(",") if name.strip()]
    story = Story(folder, {"minutes": minutes, "faults": wanted, "seed": seed}, say)
    try:
        story.run()
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        sys.exit(130)
    click.echo("\n".join(table(story)))
    if output is not None:
        options = f""" STORY_OPTIONS='--faults "{faults}"'""" if faults else ""
        command_line = f"make story MINUTES={minutes:g}{options}"
        output.write_text(report(story, (time.monotonic() - began) / 60, command_line))
    if not story.agree:
        click.echo("\n".join(differing(story)), err=True)
        click.echo(f"logs are kept in {folder}", err=True)
        sys.exit(1)
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
