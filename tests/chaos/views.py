"""The views of a running mirror: what each of them says is wrong, in the same words.

A view is asked again and again in a thread of its own, and keeps all that it was told.
`Told.claims` is what it says is wrong, one sentence each, in words that are the same for all views:

    A->B paused               A->B orders-3 stalled       A->B job failing
    A->B topic orders paused  A->B lag not known          A->B canary lost
    Spark starting

What a view cannot say it does not have: metrics have no reasons, the dashboard's overview names
five partitions and counts the others.
"""

import http.client
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from urllib.error import HTTPError
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families

from heliograph.cli.rest_client import Login, RestClient
from heliograph.cli.status import status_of
from heliograph.cli.watched import Watched

#: States of partitions that need somebody; others are notices.
BAD = ("stalled", "failed")
#: States of flows that are as they should be.
FINE = ("running", "standing by")
#: Partitions that the overview of the dashboard names.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Told:
    """One answer. ``healthy`` is None if the view says neither: a notice, or no answer."""

    asked: float
    answered: float
    healthy: bool | None
    claims: frozenset = frozenset()
    words: str = ""
    facts: dict = field(default_factory=dict)


class View(threading.Thread):
    """Asks every ``every`` seconds until it is closed. Any thread may read ``told``."""

    name_ = ""
    every = 1.0

    def __init__(self):
        super().__init__(name=f"view {self.name_}", daemon=True)
        self.told = []
        self.failures = []  # (time, text)
        self._closing = threading.Event()

    def look(self):
        """(healthy, claims, words, facts)."""
        raise NotImplementedError

    def run(self):
        while not self._closing.wait(self.every):
            asked = time.monotonic()
            try:
                healthy, claims, words, facts = self.look()
            except Exception as error:
                text = (str(error) or type(error).__name__).splitlines()[0]
                self.failures.append((asked, text))
                self.told.append(Told(asked, time.monotonic(), None, words=f"no answer: {text}"))
                continue
            self.told.append(
                Told(asked, time.monotonic(), healthy, frozenset(claims), words, facts)
            )

    @property
    def last(self):
        return self.told[-1] if self.told else Told(0, 0, None, words="nothing yet")

    def since(self, moment):
        """Answers to questions that were asked after a moment."""
        found = []
        for told in reversed(self.told):
            if told.asked < moment:
                break
            found.append(told)
        return found[::-1]

    def close(self):
        self._closing.set()
        self.join(30)


def get(url, seconds=10):
    """(status, body), whatever the status is."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def post(url):
    """Order something; raises OSError if that is refused."""
    request = urllib.request.Request(url, b"", {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def flow_url(base, flow, rest=""):
    return f"{base}/heliograph/v1/flows/{quote(flow, safe='')}{rest}"


class Status(View):
    """What ``heliograph status URL -o json`` prints, asked without starting a process each time."""

    name_ = "status"

    def __init__(self, url):
        super().__init__()
        self._watched = Watched(RestClient(url, Login()))

    def look(self):
        found = status_of(self._watched)
        return found["healthy"], claims_of_status(found), words_of_status(found), found


def claims_of_status(found):
    claims = set()
    for flow in found["flows"]:
        name, life = flow["flow"], flow["life"]["state"]
        if life not in FINE:
            claims.add(f"{name} {life}")
        else:
            claims |= {
                f"{name} {part} {of['state']}"
                for part, of in flow["parts"].items() if of["state"] not in FINE
            }  # fmt: skip
        claims |= {
            f"{name} {row['topic']}-{row['partition']} {row['state']}"
            for row in flow["troubled"] if row["state"] in BAD
        }  # fmt: skip
        claims |= {f"{name} job failing" for _ in flow["failing"]}
        claims |= {f"{name} topic {topic} paused" for topic in flow.get("paused_topics", ())}
        if flow["unmeasured"] and life in FINE:
            claims.add(f"{name} lag not known")
        if (flow["canary"] or {}).get("overdue") and life in FINE:
            claims.add(f"{name} canary lost")
    engine = found["engine"]
    if engine is not None and engine["state"] != "ready":
        claims.add(f"Spark {engine['state']}")
    return claims


def words_of_status(found):
    return "healthy" if found["healthy"] else "; ".join(found["problems"])


def command(*arguments, seconds=120):
    """(exit code, JSON or None, what it said) of a ``heliograph status`` that is really run."""
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "status", *arguments, "-o", "json"],
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    return done.returncode, found, done.stderr.strip()


class Metrics(View):
    """``GET /metrics``, with a series for each partition."""

    name_ = "metrics"

    def __init__(self, url):
        super().__init__()
        self._url = f"{url}/metrics"

    def look(self):
        status, text = get(self._url)
        if status != http.HTTPStatus.OK:
            raise OSError(f"/metrics answers {status}")
        series = {}
        for family in text_string_to_metric_families(text):
            if family.name.startswith("heliograph_"):
                for sample in family.samples:
                    series.setdefault(sample.name, []).append((sample.labels, sample.value))
        claims = claims_of_metrics(series)
        return not claims, claims, _metric_words(series, claims), {"series": series}


def claims_of_metrics(series):
    claims, states = set(), {}
    for labels, value in series.get("heliograph_flow_state", ()):
        if value:
            states[labels["flow"]] = labels["state"]
            if labels["state"] not in FINE:
                claims.add(f"{labels['flow']} {labels['state']}")
    for labels, value in series.get("heliograph_part_state", ()):
        flow = labels["flow"]
        if value and labels["state"] not in FINE and states.get(flow) in FINE:
            claims.add(f"{flow} {labels['part']} {labels['state']}")
    for labels, value in series.get("heliograph_partition_state", ()):
        if value and labels["state"] in BAD:
            claims.add(
                f"{labels['flow']} {labels['topic']}-{labels['partition']} {labels['state']}"
            )
    for labels, value in series.get("heliograph_job_failing", ()):
        if value:
            claims.add(f"{labels['flow']} job failing")
    claims |= _paused_topics(series)
    for labels, value in series.get("heliograph_unmeasured_partitions", ()):
        if value and states.get(labels["flow"]) in FINE:
            claims.add(f"{labels['flow']} lag not known")
    for labels, value in series.get("heliograph_canary_overdue", ()):
        if value and states.get(labels["flow"]) in FINE:
            claims.add(f"{labels['flow']} canary lost")
    for labels, value in series.get("heliograph_engine_state", ()):
        if value and labels["state"] != "ready":
            claims.add(f"Spark {labels['state']}")
    return claims


def _paused_topics(series):
    """Metrics count paused topics; which they are is seen by the states of their partitions."""
    states = {}
    for labels, value in series.get("heliograph_partition_state", ()):
        if value:
            states.setdefault((labels["flow"], labels["topic"]), set()).add(labels["state"])
    claims = set()
    for labels, value in series.get("heliograph_paused_topics", ()):
        if value:
            waiting = [t for (f, t), s in states.items() if (f, s) == (labels["flow"], {"waiting"})]
            claims |= {f"{labels['flow']} topic {topic} paused" for topic in waiting}
            if len(waiting) != value:
                claims.add(f"{labels['flow']} {value:g} topics paused")
    return claims


def events_in(series, flow, code):
    """How many events of a code the metrics count."""
    found = series.get("heliograph_events_total", ())
    return sum(v for labels, v in found if (labels["flow"], labels["code"]) == (flow, code))


def _metric_words(series, claims):
    if not claims:
        return "nothing"
    told = []
    for name, wanted in (
        ("heliograph_flow_state", lambda s: s not in FINE),
        ("heliograph_partitions", BAD.__contains__),
        ("heliograph_engine_state", lambda s: s != "ready"),
    ):
        told += [
            f'{name.removeprefix("heliograph_")}{{state="{labels["state"]}"}} {value:g}'
            for labels, value in series.get(name, ()) if value and wanted(labels["state"])
        ]  # fmt: skip
    for name in (
        "heliograph_paused_topics", "heliograph_unmeasured_partitions", "heliograph_canary_overdue",
    ):  # fmt: skip
        total = sum(value for _, value in series.get(name, ()))
        told += [f"{name.removeprefix('heliograph_')} {total:g}"] if total else []
    jobs = sum(value for _, value in series.get("heliograph_job_failing", ()))
    return ", ".join([*told, f"job_failing {jobs:g}"] if jobs else told)


class LogFile(View):
    """The JSON lines of the log: what was told of and has not been told to be over."""

    name_ = "log"
    every = 0.5

    def __init__(self, path):
        super().__init__()
        self._path, self._offset = path, 0
        self.events = []  # (when it was read, the line)
        self._open = {}  # what is wrong, by what it is about

    def look(self):
        with self._path.open("rb") as file:
            file.seek(self._offset)
            read = file.read()
        whole = read[: read.rfind(b"\n") + 1]
        self._offset += len(whole)
        now = time.monotonic()
        for line in whole.splitlines():
            event = json.loads(line)
            self.events.append((now, event))
            self._take(event)
        claims = set(self._open.values())
        codes = {e["code"] for _, e in self.events[-200:] if e.get("code")}
        words = "; ".join(sorted(claims)) or "nothing"
        return not claims, claims, words, {"codes": codes}

    def _take(self, event):
        code, flow = event.get("code", ""), event.get("flow", "")
        kind, _, what = code.partition(".")
        if kind == "partition":
            name = f"{event['topic']}-{event['partition']}"
            self._set((flow, name), what in BAD, f"{flow} {name} {what}")
        elif code in ("flow.topic-paused", "flow.topic-resumed"):
            topic = event["text"].split()[1]
            self._set(
                (flow, "topic", topic), what == "topic-paused", f"{flow} topic {topic} paused"
            )
        elif code in ("flow.paused", "flow.resumed"):
            part = event["part"]
            self._set((flow, "part", part), what == "paused", f"{flow} {part} paused")
            copying = (flow, "part", "copying") in self._open
            self._set((flow, "paused"), copying, f"{flow} paused")
        elif code in ("flow.canary-lost", "flow.canary-back"):
            self._set((flow, "canary"), what == "canary-lost", f"{flow} canary lost")
        elif code in ("flow.failed", "flow.recovered"):
            self._set((flow, "failed"), what == "failed", f"{flow} failed")
        elif kind == "job":
            self._set((flow, "job", event["job"]), what == "failed", f"{flow} job failing")
        elif kind == "engine":
            self._set(("Spark",), what != "ready", "Spark starting")

    def _set(self, about, wrong, claim):
        if wrong:
            self._open[about] = claim
        else:
            self._open.pop(about, None)

    def events_since(self, moment):
        return [event for at, event in list(self.events) if at >= moment]


class Ready(View):
    """``GET /health/ready``. It says whether flows do their work, and counts no partitions."""

    name_ = "ready"

    def __init__(self, url):
        super().__init__()
        self._url = f"{url}/health/ready"

    def look(self):
        status, text = get(self._url)
        found = json.loads(text)
        claims = {f"{r['what']} {r['state']}" for r in found["reasons"]}
        words = f"{status} " + ", ".join(sorted(claims)) if claims else str(status)
        return status == http.HTTPStatus.OK, claims, words, found


class Live(View):
    """``GET /health/live``: whether the driver moves. A probe kills the mirror that does not."""

    name_ = "live"

    def __init__(self, url):
        super().__init__()
        self._url = f"{url}/health/live"

    def look(self):
        status, text = get(self._url)
        claims = {f"{part['part']} stuck" for part in json.loads(text)["stuck"]}
        words = " ".join([str(status), *sorted(claims)])
        return status == http.HTTPStatus.OK, claims, words, {}


#: What the overview shows, by what is visible on it.
_READ = """
  const seen = (one) => one && one.checkVisibility();
  const text = (one) => seen(one) ? one.innerText.replace(/\\s+/g, " ").trim() : "";
  const all = (css, root) => [...(root ?? document).querySelectorAll(css)].filter(seen);
  const head = document.querySelector(".health h1");
  const needs = document.querySelector('section[aria-label="Needs attention"]');
  return {
    kind: head?.className ?? "", sentence: text(head),
    rows: all('section[aria-label="Flows"] tbody tr').map((row) => ({
      flow: row.querySelector("th a").title, state: text(row.querySelector(".state")),
      kind: row.querySelector(".state").className.replace("state ", ""),
    })),
    attention: seen(needs) ? all("li", needs).map((one) => ({
      state: text(one.querySelector(".state")), what: text(one.querySelector("a")),
      where: text(one.querySelector("a ~ .muted")), reason: text(one.querySelector(".reason")),
    })) : [],
    more: seen(needs) ? text(needs.querySelector(":scope > p")) : "",
    tiles: all(".tiles .tile").map(text),
    events: all('section[aria-label="Latest events"] li').map(text),
    page: text(document.querySelector("header")),
  };
"""
_COUNTED = re.compile(r"(\d+) ([a-z]+)")


class Dashboard(View):
    """The overview, as a real browser shows it."""

    name_ = "dashboard"

    def __init__(self, browser, url):
        super().__init__()
        self._page, self._url = browser, url
        #: A browser does one thing at a time.
        self._turn = threading.Lock()

    def order(self, flow, word):
        """Click on pause or resume on the page of a flow, confirm it, and go back."""
        with self._turn:
            self._page.go(f"/flow/{quote(flow)}/partitions")
            self._page.click(f'.card-head [data-command="{word}"]')
            self._page.click("#confirm-yes")
            self._page.until(lambda: not self._page.all("dialog[open]"), "the dialog is gone")
            self._page.go("/")
            self._page.find(".health h1")

    def open(self):
        self._page.open(f"{self._url}/dashboard/")
        self._page.find(".health h1")

    def look(self):
        with self._turn:
            shown = self._page.run(_READ)
        claims, notices = claims_of_page(shown)
        healthy = not claims and shown["kind"] == "ok"
        # A notice is neither: whoever looks knows of it, and needs not come.
        verdict = None if not healthy and not claims and notices else healthy
        return verdict, claims, words_of_page(shown), shown


def claims_of_page(shown):
    """(what is wrong, notices)."""
    claims, notices = set(), set()
    for row in shown["rows"]:
        flow, label = row["flow"], row["state"]
        for word in label.split(", "):
            counted = _COUNTED.fullmatch(word)
            if counted and counted[2] not in BAD:
                notices.add(f"{flow} {word}")
            elif " topic" in word and word.endswith("paused"):
                claims.add(f"{flow} {word}")
            elif word.endswith("failing"):
                claims.add(f"{flow} job failing")
            elif not counted and word not in _FINE_WORDS:
                claims.add(f"{flow} {word}")
    for item in shown["attention"]:
        flow = item["where"].partition(" · ")[0].replace(" → ", "->")
        if "->" not in flow:
            continue  # a job, or a whole flow: its row says so
        found = claims if item["state"] in BAD else notices
        found.add(f"{flow} {item['what']} {item['state']}")
    for tile in shown["tiles"]:
        spark = re.search(r"Spark (\w+)", tile)
        if spark and spark[1] != "ready":
            claims.add(f"Spark {spark[1]}")
    return claims, notices


_FINE_WORDS = (
    "in step",
    "mirroring",
    "running",
    "standing by",
    "checkpoints only",
    "heartbeats only",
)


def counted_on_page(shown, flow, state):
    """How many partitions of a flow the page says are in a state."""
    for row in shown["rows"]:
        if row["flow"] == flow:
            for number, word in _COUNTED.findall(row["state"]):
                if word == state:
                    return int(number)
    return 0


def words_of_page(shown):
    return shown["sentence"]
