"""The dashboard in a real browser, against the real REST server, with 10,000 partitions.

After each test: the console has said nothing, and nothing was asked from elsewhere.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, cycle, permutations
from urllib.parse import quote

import pytest
from browsing import MISSING, browser, wait_until
from selenium.webdriver.common.keys import Keys
from synthetic import (
    BACK,
    FAILED_REASON,
    HOSTILE,
    MAIN,
    STALLED_REASON,
    SyntheticMirror,
    synthetic_server,
)
from tools import skip_without

from heliograph.control.groups.start_rules import KeptAhead
from heliograph.model import TopicPartition

needs_browser = skip_without(MISSING)
FLOW_TABS = ("partitions", "topics", "groups", "failover", "configuration")
VIEWS = ("", "topics", "groups", "jobs", "events", "configuration",
         *(f"flow/{quote(MAIN)}/{tab}" for tab in FLOW_TABS))  # fmt: skip
#: Chromium says so by itself; the page has a form for it.
EXPECTED_OF_LOGINS = "the server responded with a status of 401"


@pytest.fixture(scope="module")
def chromium():
    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def served():
    with synthetic_server() as made:
        yield made


@pytest.fixture(scope="module")
def guarded():
    with synthetic_server(SyntheticMirror(partitions=200, groups=3), logins=True) as made:
        yield made


@pytest.fixture
def page(chromium):
    """The browser, as after its start; checks what it has done when the test is over."""
    chromium.screen()
    chromium.prefers()
    chromium.driver.get_log("performance")
    chromium.driver.get_log("browser")
    chromium.may_say = ()
    yield chromium
    said = [line for line in chromium.console() if not any(m in line for m in chromium.may_say)]
    assert said == []
    elsewhere = [
        u for u in chromium.requests() if not u.startswith(("http://127.0.0.1:", "about:"))
    ]
    assert elsewhere == []
    chromium.run("try { localStorage.clear(); sessionStorage.clear(); } catch {}")
    chromium.open("about:blank")


def test_the_figures_of_the_pictures_agree_and_have_no_pattern():
    mirror = SyntheticMirror(clock=lambda: 1_794_994_872.0)
    flow = mirror.snapshot().flow(MAIN)
    points = mirror.history.read(mirror.clock(), 3600, 720)[MAIN].points
    _, records, _, rate, _, latency = points[-1]
    # Five seconds before, nothing was very different.
    for shown, now in (
        (records, flow.lag_records), (rate, flow.records_per_second),
        (latency, flow.canary.latency_seconds),
    ):  # fmt: skip
        assert shown == pytest.approx(now, rel=0.2)
    assert flow.lag_records == sum(p.lag_records for p in flow.partitions)
    assert flow.lag_records == flow.at_risk.records
    assert flow.progressed_at == mirror.clock() - 1
    # A wave would come back to its highest within a period.
    rates = [point[3] for point in points]
    top = max(rates)
    assert sum(rate > 0.97 * top for rate in rates) < 0.1 * len(rates)


def open_view(page, served, address=""):
    page.open(f"{served.url}/dashboard/#/{address}")
    page.find("nav a", "Overview")


def flow_address(flow, tab="partitions"):
    return f"flow/{quote(flow)}/{tab}"


def rows(page):
    """Names in the first column of the flow's table."""
    page.find("#tab tbody th")
    return page.run(
        "return [...document.querySelectorAll('#tab tbody th .name')].map((n) => n.textContent)"
    )


def test_all_modules_are_loaded_at_once():
    folder = files("heliograph.rest") / "dashboard"
    index = (folder / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:href|src)="(app/\w+\.js)"', index))
    assert named == {f"app/{entry.name}" for entry in (folder / "app").iterdir()}


def test_no_file_of_the_page_makes_markup_or_code_of_text():
    folder = files("heliograph.rest") / "dashboard"
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://"
        r"|style=|\son\w+="
    )
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in [folder / "index.html", *(folder / "app").iterdir()]
    }
    found = {
        name: match.group()
        for name, text in texts.items()
        # The name of SVG's elements is no address.
        if (match := forbidden.search(text.replace("http://www.w3.org/2000/svg", "")))
    }
    assert found == {}


@needs_browser
def test_opens_and_tells_what_flows_where_and_what_needs_somebody(page, served):
    open_view(page, served)
    page.says("2 of 3 flows need attention")
    page.says("us-east → eu-west would lose most. If us-east died now:")
    page.says("What 1 flow would lose is not known.")
    arrow = page.find(f'.arrow[data-flow="{MAIN}"]')
    assert re.search(r"rec/s · [\d.]+ [kM]B/s", arrow.text)
    assert re.search(r"1 failed, 1 stalled · lag [\d.]+k", arrow.text)
    assert len(page.all(".arrow")) == 3
    # Why, and what to do, without a click.
    page.says(STALLED_REASON, ".attention")
    page.says(FAILED_REASON, ".attention")
    page.says("What to do: Raise max.message.bytes", ".attention")
    page.says("10,006", ".tiles")
    assert re.search(r"Canary latency \d+ ms", page.text(".tiles"))
    page.find("#connection.ok")


class Drawn(SyntheticMirror):
    """A mirror whose flows are between other clusters; all do what three real ones do."""

    def __init__(self, pairs):
        super().__init__(partitions=200, groups=1)
        self.pairs = pairs

    def snapshot(self):
        found = super().snapshot()
        if not hasattr(self, "pairs"):
            return found
        flows = tuple(
            replace(kind, flow=f"{source}->{target}.{number}", source=source, target=target)
            for number, ((source, target), kind) in enumerate(zip(self.pairs, cycle(found.flows)))
        )
        return replace(found, flows=flows)


CHAIN = [("london", "paris"), ("paris", "frankfurt"), ("frankfurt", "singapore")]
#: Four clusters, each with each in both directions, and eight more flows.
MESH = [*permutations(("us-east", "us-west", "eu-west", "ap-south"), 2)]
MESH += [pair for pair in MESH if "us-east" in pair][:6] + MESH[-2:]
MANY = [*combinations([f"region-{n}" for n in range(12)], 2)][:30]

#: Of the topology: how often each cluster is drawn, what is outside, and what is upon another.
PICTURE = """
  const svg = document.querySelector(".topology svg");
  const outer = svg.getBoundingClientRect();
  const shown = (css) => [...svg.querySelectorAll(css)].filter((one) => one.getBBox().width);
  const named = (one) =>
    [one.textContent || one.parentNode.textContent, one.getBoundingClientRect()];
  const boxes = shown(".cluster rect").map(named);
  const labels = [...boxes, ...shown(".figure").map(named)];
  const outside = labels.filter(([, r]) => r.left < outer.left - 1 || r.right > outer.right + 1
    || r.top < outer.top - 1 || r.bottom > outer.bottom + 1).map(([name]) => name);
  const upon = labels.flatMap(([a, r], n) => labels.slice(n + 1)
    .filter(([, q]) => Math.min(r.right, q.right) - Math.max(r.left, q.left) > 1
      && Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 1)
    .map(([b]) => `${a} / ${b}`));
  for (const one of shown(".cluster text")) {
    const box = one.parentNode.querySelector("rect").getBBox();
    if (one.getBBox().width > box.width - 2) outside.push(one.textContent);
  }
  const times = {};
  for (const one of svg.querySelectorAll(".cluster title"))
    times[one.textContent] = (times[one.textContent] ?? 0) + 1;
  return { arrows: shown(".arrow").length, times, outside, upon };
"""


@needs_browser
@pytest.mark.parametrize("pairs", [CHAIN, MESH, MANY])
def test_any_topology_is_drawn_with_room_for_all_that_it_says(page, pairs):
    with synthetic_server(Drawn(pairs)) as served:
        for width in (1280, 390):
            page.screen(width, 900)
            open_view(page, served)
            page.find(".arrow .lag", "lag")
            found = page.run(PICTURE)
            assert (found["outside"], found["upon"]) == ([], []), width
            assert found["arrows"] == len(pairs)
            assert found["times"].keys() == {name for pair in pairs for name in pair}
            # Twelve clusters have no room beside each other on a phone.
            assert (set(found["times"].values()) == {1}) == (pairs is not MANY or width == 1280)


@needs_browser
def test_a_chart_moves_and_has_its_past_after_a_reload(page, served):
    open_view(page, served)
    line = ".chart .series.line-0"

    def drawn():
        # At once: the page replaces it.
        return page.run("return document.querySelector(arguments[0])?.getAttribute('d')", line)

    def hour():
        """How much of the chart's width the lag covers."""
        return page.run("""
          const [line] = arguments;
          const found = document.querySelector(line);
          return found ? found.getBBox().width / found.ownerSVGElement.clientWidth : 0;
        """, line)  # fmt: skip

    page.until(lambda: hour() > 0.7, "an hour of lag")
    before = drawn()
    page.until(lambda: drawn() != before, "the chart moves")
    page.open(f"{served.url}/dashboard/")
    page.until(lambda: hour() > 0.7, "an hour of lag after a reload")
    # Read by keyboard: values of a moment that is gone.
    page.run("document.querySelector('.plot').focus()")
    page.press(Keys.HOME)
    page.until(lambda: "UTC" in page.text(".chart .moment"), "the time that is read")
    page.click(".choice button", "15 min")
    page.find('.choice button[aria-pressed="true"]', "15 min")


@needs_browser
def test_finds_a_stalled_partition_among_10_000_and_reads_why(page, served):
    open_view(page, served)
    page.click(f'.arrow[data-flow="{MAIN}"]')
    page.says("1 to 25 of 10,000 partitions")
    assert len(rows(page)) == 25
    page.click('#tab [data-state="stalled"]')
    page.until(lambda: rows(page) == ["payments.settled-7"], "the one that is stalled")
    page.says(STALLED_REASON, "#tab")
    page.says("What to do: Look at the broker that the reason names", "#tab")
    assert "ago" in page.text("#tab tbody tr")
    # The failed one is tried again, and says when.
    page.click('#tab [data-state="failed"]')
    page.until(lambda: rows(page) == ["audit.raw-3"], "the one that failed")
    assert re.search(r"in \d+ s|now", page.text("#tab tbody tr"))
    # By topic, and by lag: the server sorts.
    page.click('#tab [data-state=""]')
    page.find('#tab input[name="topic"]').send_keys("clicks")
    page.says("1 to 25 of 96 partitions")
    # States are counted for what is filtered.
    assert page.text("#tab .choice") == "all 96 copying 96"
    page.click("#tab thead button", "Lag")
    page.find("#tab [aria-sort=descending] button", "Lag")
    page.click("#tab .pager button", "Next")
    page.says("26 to 50 of 96 partitions")
    page.click("#tab .opener")
    page.says("Target topic us-east.clicks", "#tab")


@needs_browser
def test_pauses_and_resumes_after_a_confirmation_and_events_say_so(page, served):
    flow = served.mirror.supervisor(BACK)
    open_view(page, served, flow_address(BACK, "events"))
    page.click('.card-head [data-command="pause"]')
    page.says(f"Pause flow {BACK.replace('->', ' → ')}?", "dialog")
    page.says("its lag grows", "dialog")
    page.click("dialog button", "Cancel")
    assert flow.paused == {}
    page.click('.card-head [data-command="pause"]')
    page.click("#confirm-yes")
    wait_until(lambda: len(flow.paused) == 3, "all parts pause")
    page.says("paused", ".title")
    page.says(f"{BACK} checkpoints checkpoints is paused", "#tab .events")
    page.click('.card-head [data-command="resume"]')
    page.click("#confirm-yes")
    wait_until(lambda: not flow.paused, "all parts go on")
    page.says("in step", ".title")
    # One part of it, with a reason.
    page.click('.part [data-command="pause"]')
    page.find("#confirm-why").send_keys("<b>B is moved</b>")
    page.click("#confirm-yes")
    wait_until(lambda: list(flow.paused) == ["copying"], "one part pauses")
    page.says("paused through REST: <b>B is moved</b>", ".part")
    page.click('.part [data-command="resume"]')
    page.click("#confirm-yes")
    wait_until(lambda: not flow.paused, "it goes on")
    page.click('.card-head [data-command="restart"]')
    page.click("#confirm-yes")
    wait_until(lambda: flow.restarts == 1, "it restarts")
    page.says("flow.restarted", "#tab .events")


@needs_browser
def test_topics_have_a_state_a_reason_and_the_button_that_applies(page, served):
    flow = served.mirror.supervisor(MAIN)

    def row(topic):
        return page.text(f'[data-row="{MAIN} {topic}"]')

    open_view(page, served, "topics")
    # The worst first: the failed partition, the stalled one, and why.
    page.find("tbody .opener", "payments.settled")
    names = "return [...document.querySelectorAll('tbody th .name')].map((n) => n.textContent)"
    assert page.run(names)[:3] == ["audit.raw", "payments.settled", "clicks"]
    assert re.search(r"failed 22 min ago 12 1 780 [\d.]+ min (in \d+ s|now)$", row("audit.raw"))
    page.says(f"audit.raw-3: {FAILED_REASON}")
    page.says("What to do: Raise max.message.bytes")
    page.says(f"payments.settled-7: {STALLED_REASON}")
    page.click(".opener", "clicks")
    page.says("Target topic us-east.clicks")
    assert page.all('main [data-command="resume"]') == []
    page.click('main [data-command="pause"]')
    page.find("#confirm-why").send_keys("the target is full")
    page.click("#confirm-yes")
    wait_until(lambda: flow.paused_topics, "the topic pauses")
    page.until(lambda: " paused " in row("clicks"), "the topic is paused")
    page.says("paused through REST: the target is full")
    # Who paused it knows: the overview does not call for anybody.
    page.go("/")
    page.says(STALLED_REASON, ".attention")
    assert "clicks" not in page.text(".attention")
    page.go(f"/{flow_address(MAIN, 'partitions')}/clicks")
    page.says("its topic is paused through REST: the target is full What to do: Resume it", "#tab")
    page.go("/topics")
    page.click(".opener", "clicks")
    page.until(lambda: not page.all('main [data-command="pause"]'), "nothing is left to pause")
    page.click('main [data-command="resume"]')
    page.click("#confirm-yes")
    wait_until(lambda: not flow.paused_topics, "the topic goes on")
    page.until(lambda: " copying " in row("clicks"), "the topic is copied")


def posted(page, url):
    """How the server answers who is logged in, whatever the page offers."""
    return page.driver.execute_async_script("""
      const [url, done] = arguments;
      const Authorization = sessionStorage.getItem("heliograph.login");
      fetch(url, {
        method: "POST", headers: {Authorization, "Content-Type": "application/json"}, body: "{}",
      }).then((answer) => done(answer.status));
    """, url)  # fmt: skip


@needs_browser
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_each_role_logs_in_and_sees_what_it_may_do(page, guarded, role):
    page.may_say = (EXPECTED_OF_LOGINS, "status of 403")
    page.open(f"{guarded.url}/dashboard/#/{flow_address(BACK)}")
    name, password = guarded.users[role]
    page.find("#user").send_keys(name)
    page.find("#password").send_keys("wrong")
    page.press(Keys.ENTER)
    page.says("Wrong name or password.")
    page.find("#password").clear()
    page.find("#password").send_keys(password, Keys.ENTER)
    page.says(f"{name} · {role}", "#who")
    page.find(".part")
    if role == "viewer":
        assert page.all("[data-command]") == []
        page.says("Your role is viewer")
        # Nor does the server take it, whatever a page does.
        assert posted(page, f"{guarded.url}/heliograph/v1/flows/{quote(BACK)}/pause") == 403
        assert guarded.mirror.supervisor(BACK).paused == {}
    else:
        offered = {button.get_attribute("data-command") for button in page.all("[data-command]")}
        assert offered == {"pause", "restart"}
        flow = guarded.mirror.supervisor(BACK)
        page.click('.card-head [data-command="pause"]')
        page.find("#confirm-why").send_keys("us-east is moved")
        page.click("#confirm-yes")
        wait_until(lambda: len(flow.paused) == 3, "all parts pause")
        # Who has ordered it is told to everybody.
        page.says(f"paused by {name}, through REST: us-east is moved", ".part")
        page.click('.card-head [data-command="resume"]')
        page.click("#confirm-yes")
        wait_until(lambda: not flow.paused, "all parts go on")
        page.find('.card-head [data-command="pause"]')
    # An operator sees what a failover would do, only an admin is offered to do it.
    page.go(f"/{flow_address(BACK, 'failover')}")
    if role == "viewer":
        page.says("An operator sees what a failover would do", "#tab")
    else:
        page.says("Nothing speaks against a failover to us-east", "#tab")
    offered = bool(page.all('[data-command="failover"]'))
    assert offered == (role == "admin")
    if role != "admin":
        assert posted(page, f"{guarded.url}/heliograph/v1/flows/{quote(BACK)}/failover") == 403
        assert guarded.mirror.stage.wishes == []
    assert ("An admin can fail over" in page.text("#tab")) == (role == "operator")
    # A reload keeps the login, logging out forgets it; a token is another way.
    page.driver.refresh()
    page.says(f"{name} · {role}", "#who")
    page.click("#logout")
    page.says("You are logged out.")
    assert page.run("return sessionStorage.length") == 0
    page.click(".choice button", "Token")
    page.find("#token").send_keys(guarded.tokens[role], Keys.ENTER)
    page.says(f"· {role}", "#who")


@needs_browser
def test_a_failover_is_done_when_its_flow_is_typed_and_followed_step_by_step(page):
    # It answers 409 to what it refuses.
    page.may_say = (EXPECTED_OF_LOGINS, "status of 409")
    with synthetic_server(SyntheticMirror(partitions=200, groups=3), logins=True) as served:
        stage = served.mirror.stage
        stage.healthy, stage.waits_before = True, "stop"
        stage.notes = ("retention.ms is 1 on us-east and 2 on eu-west: audit.raw",)
        stage.kept = {
            "billing": {TopicPartition("us-east.audit.raw", 0): KeptAhead(40_007, 40_000)}
        }
        page.open(f"{served.url}/dashboard/#/{flow_address(MAIN, 'failover')}")
        for field, text in zip(("#user", "#password"), served.users["admin"], strict=True):
            page.find(field).send_keys(text)
        page.press(Keys.ENTER)
        # What was rehearsed, what would be lost, what speaks against it, who cannot be moved.
        page.says("eu-west did not answer", "#tab")
        page.says("502 records would be lost: us-east itself says so", "#tab")
        page.says("all 84 partitions of it have a leader: nothing has to be lost", ".against")
        page.says("fraud-detection no 0 0 is in use on eu-west (Stable)", "#tab")
        page.says("Worth knowing retention.ms is 1 on us-east and 2 on eu-west", "#tab")
        page.click('[data-command="failover"]')
        name, yes = page.find("#confirm-name"), page.find("#confirm-yes")
        assert page.driver.switch_to.active_element == name
        for typed in ("us-east", "->eu-wes", "t"):
            assert not yes.is_enabled()
            name.send_keys(typed)
        # It is typed; what speaks against it has to be overruled as well.
        assert not yes.is_enabled()
        name.send_keys(Keys.ENTER)
        assert stage.wishes == []
        page.click("#confirm-force")
        assert yes.is_enabled()
        # The target has gone bad since somebody looked: it is refused, and says why.
        stage.unfit = True
        page.click("#confirm-yes")
        page.says("eu-west cannot take writes: us-east.orders.placed-3 has no leader", "dialog")
        assert stage.last == {}
        stage.unfit = False
        page.click("#confirm-yes")
        page.find('[data-step="drain"][data-state="done"]', "1,204 records came")
        page.says("under way", "#tab")
        page.find('[data-step="stop"][data-state="todo"]')
        page.until(lambda: not page.all("dialog[open]"), "the dialog is gone")
        page.until(lambda: not page.find('[data-command="failover"]').is_enabled(), "one at a time")
        stage.go.set()
        page.find('[data-step="groups"][data-state="done"]', "3 groups moved, 1 not")
        page.says("Groups that were not moved fraud-detection", "#tab")
        page.says("kept there billing: us-east.audit.raw-0 at 40007, 7 ahead", "#tab")
        page.find('[data-command="failover"]', "Do what the failover left")
        assert [wish.force for wish in stage.wishes] == [True, True]
        page.go(f"/{flow_address(MAIN, 'events')}")
        page.says("is through after 7.2 s; 1 group not moved", "#tab .events")
        # The old source is back, and takes writes.
        stage.diverged = 12
        page.go("/")
        page.says("us-east has 12 records that eu-west has not.", ".attention")


@needs_browser
def test_the_name_of_a_group_is_text_and_both_offsets_are_shown(page, served):
    open_view(page, served, "groups")
    page.find('input[name="group"]').send_keys("<img")
    page.says("1 group")
    assert page.text(".opener .name") == HOSTILE
    page.click(".opener")
    page.says("Source: committed Source: end Translated Target: committed Target: end")
    page.says("orders.placed-2")
    assert page.run("return document.images.length") == 1
    page.find('input[name="group"]').clear()
    page.find('input[name="group"]').send_keys("fraud")
    page.says("not now is in use on eu-west (Stable)")


@needs_browser
def test_configuration_has_origins_and_no_secrets_and_jobs_say_why(page, served):
    open_view(page, served, "configuration")
    page.says("sync.group.offsets.enabled")
    page.says(f"configuration {MAIN}.topics")
    assert "default" not in page.text(".config")
    page.click('input[type="checkbox"]')
    page.says("default (MM2: 60)")
    assert "s3cret" not in page.driver.page_source
    assert "[hidden]" in page.text()
    page.go("/jobs")
    page.says("Describe on ACLs is missing on us-east: kafka-acls --add")
    page.go("/topics")
    page.says("us-east.payments.settled")


#: What can be pressed, and is beside the screen. Heads of tables are only read out there.
OUTSIDE = """
  return [...document.querySelectorAll("a:not(.skip), button, input, select, .arrow")]
    .filter((one) => one.checkVisibility() && !one.closest("thead"))
    .filter((one) => {
      const { left, right, width } = one.getBoundingClientRect();
      return width && (left < 0 || right > innerWidth + 0.5);
    })
    .map((one) => one.textContent || one.outerHTML);
"""


@needs_browser
def test_a_small_screen_shows_every_view_without_scrolling_sideways(page, served):
    wide = "return [document.documentElement.scrollWidth, innerWidth]"
    page.screen(360, 800)
    for view in VIEWS:
        open_view(page, served, view)
        page.find("main .card tr, main .event, main .arrow")
        for width in (360, 720, 900):
            page.screen(width, 800)
            page.until(lambda width=width: page.run("return innerWidth") == width, "its width")
            assert page.run(wide) == [width, width], view
            assert page.run(OUTSIDE) == [], (view, width)


@needs_browser
def test_no_tile_breaks_a_line(page, served):
    lines = """
      return [...document.querySelectorAll(".tile b, .tile span")]
        .filter((one) => one.getClientRects().length > 1 || one.offsetHeight > 34)
        .map((one) => one.textContent);
    """
    open_view(page, served)
    for width in (1400, 1280, 1180, 1024, 760, 390):
        page.screen(width, 900)
        page.says("Lag in records", ".tiles")
        assert page.run(lines) == [], width


CONTRASTS = """
  const of = (colour) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return parts[0] * 0.2126 + parts[1] * 0.7152 + parts[2] * 0.0722;
  };
  const styles = getComputedStyle(document.documentElement);
  const light = (name) => of(styles.getPropertyValue(`--${name}`).trim());
  const found = {};
  for (const ink of ["ink", "muted", "accent", "ok", "warn", "bad", "quiet", "busy"])
    for (const ground of ["ground", "card", "soft"]) {
      const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
      found[`${ink} on ${ground}`] = (a + 0.05) / (b + 0.05);
    }
  return found;
"""


@needs_browser
def test_light_and_dark_follow_the_system_can_be_chosen_and_are_readable(page, served):
    def ground():
        return page.run("return getComputedStyle(document.body).backgroundColor")

    colours = {}
    for scheme in ("light", "dark"):
        page.prefers(scheme)
        open_view(page, served)
        colours[scheme] = ground()
        weak = {pair: ratio for pair, ratio in page.run(CONTRASTS).items() if ratio < 4.5}
        assert weak == {}, scheme
    assert colours["light"] != colours["dark"]
    page.click("#theme")
    page.until(lambda: ground() == colours["light"], "light is chosen")
    page.driver.refresh()
    page.find(".arrow")
    assert ground() == colours["light"]


@needs_browser
def test_a_keyboard_is_enough(page, served):
    open_view(page, served)
    page.find(".arrow")
    page.press(Keys.TAB)
    assert page.run("return document.activeElement.id") == "skip"
    page.press(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "main"
    page.tab_to(f"one.dataset.flow === {json.dumps(BACK)}")
    page.press(Keys.ENTER)
    page.says("All flows", ".crumb")
    page.tab_to("one.dataset.command === 'restart'")
    page.press(Keys.ENTER)
    page.find("dialog[open]")
    # It begins with the way out.
    assert page.driver.switch_to.active_element.text == "Cancel"
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"), "the dialog is gone")
    assert page.run("return document.activeElement.dataset.command") == "restart"
    page.tab_to("one.matches('.tabs a') && one.textContent === 'Topics'")
    page.press(Keys.ENTER)
    page.find("#tab .opener", "returns")
    assert page.run("return document.activeElement.textContent") == "Topics"
    page.tab_to("one.matches('.opener')")
    page.press(Keys.SPACE)
    page.find('#tab [data-command="pause"]')


@needs_browser
def test_a_page_that_nobody_sees_costs_nothing(page, served):
    def followed():
        return any(thread.name == "rest flows" for thread in threading.enumerate())

    open_view(page, served)
    page.find("#connection.ok")
    assert followed()
    shown = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        wait_until(lambda: not followed(), "the streams of the hidden page end")
    finally:
        page.driver.close()
        page.driver.switch_to.window(shown)
    # Whoever looks again sees what is new.
    wait_until(followed, "the page follows again")
    page.find("#connection.ok")


@needs_browser
def test_says_that_the_mirror_is_gone(page):
    page.may_say = ("net::ERR_", "Failed to load resource")
    with synthetic_server(SyntheticMirror(partitions=50, groups=1)) as gone:
        open_view(page, gone)
        page.find("#connection.ok")
    page.find("#connection.warn, #connection.bad")
    # What was known stays.
    assert page.all(".arrow")


_SAID = """
  const [changes, engine, done] = arguments;
  const flow = {
    flow: "A->B", life: { state: "running" }, parts: {}, states: { idle: 3 }, lag_records: 0,
    lag_seconds: 0, canary: null, failing_jobs: 0, paused_topics: {}, ...changes,
  };
  import("/dashboard/app/health.js").then(({ sentenceOf }) => {
    const { kind, text } = sentenceOf([flow], engine);
    done([kind, text]);
  });
"""


@needs_browser
@pytest.mark.parametrize(
    ("changes", "engine", "said"),
    [
        ({}, "ready", ["ok", "The flow is in step"]),
        # One was lost once, and those after it came.
        ({"canary": {"lost": 1, "overdue": False}}, "ready", ["ok", "The flow is in step"]),
        ({"canary": {"lost": 1, "overdue": True}}, "ready",
         ["warn", "1 of 1 flows has something to say: A → B canary lost"]),
        ({"paused_topics": {"t": "paused"}, "states": {"waiting": 1}}, "ready",
         ["quiet", "A → B topic t paused"]),
        ({}, "starting", ["busy", "Spark is starting; The flow is in step"]),
        ({}, "failed", ["bad", "Spark is failed; The flow is in step"]),
        ({"states": {"stalled": 2}}, "starting",
         ["bad", "Spark is starting; A → B needs attention: 2 stalled partitions"]),
    ],
)  # fmt: skip
def test_the_sentence_is_that_of_status(page, served, changes, engine, said):
    open_view(page, served)
    asked = {"state": engine}
    assert page.driver.execute_async_script(_SAID, changes, asked) == said
