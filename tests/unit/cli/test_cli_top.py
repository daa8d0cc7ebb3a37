"""``heliograph top``: what is asked, what keys do, what is drawn; all of it in a real terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console
from synthetic import BACK, FAILED, MAIN, STALLED, SyntheticMirror, synthetic_server

from heliograph.cli import cli
from heliograph.cli.keyboard import keys_in
from heliograph.cli.rest_client import Login, RestClient
from heliograph.cli.top_pages import SORTS, Ask, Level, Page, Place, fetch
from heliograph.cli.top_screen import OTHER_LINES, grid, screen
from heliograph.cli.top_view import View
from heliograph.errors import HeliographError, StartError
from heliograph.shown import shown

TOPICS, ALL = Place(Level.TOPICS, MAIN), Place(Level.PARTITIONS, MAIN)


@pytest.fixture(scope="module")
def served():
    with synthetic_server(SyntheticMirror(2000), sample=False) as made:
        yield made


@pytest.fixture(scope="module")
def get(served):
    return RestClient(served.url, Login()).get


def run(served, *args):
    return CliRunner().invoke(cli, ["top", served.url, *args])


def document(served, *args):
    done = run(served, "-o", "json", *args)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# -- one look -------------------------------------------------------------------------------------


def test_one_look_at_each_level(served):
    flows = document(served)
    assert flows["flows"][0]["flow"] == MAIN, "the worst comes first"
    assert flows["total"] == 3
    assert flows["mirror"] == {"from": "mirror", "url": served.url, "note": ""}
    topics = document(served, "--flow", MAIN, "--limit", "2")
    assert (topics["total"], len(topics["topics"])) == (41, 2)
    lags = [topic["lag_records"] for topic in topics["topics"]]
    assert lags == sorted(lags, reverse=True)
    assert STALLED.topic in {topic["topic"] for topic in topics["topics"]}
    found = document(served, "--flow", MAIN, "--topic", STALLED.topic)
    assert found["total"] == 24
    assert found["partitions"][0]["partition"] == STALLED.partition
    both = document(served, "--flow", MAIN, "--topic", "*", "--filter", "stalled,fail")
    assert {(p["topic"], p["partition"]) for p in both["partitions"]} == {STALLED, FAILED}
    assert document(served, "--flow", MAIN, "--topic", "*", "--filter", "clicks")["total"] == 96


def test_it_sorts_and_filters(served):
    def names(*args):
        return [flow["flow"] for flow in document(served, *args)["flows"]]

    assert names("--sort", "name") == sorted(names())
    assert names("--sort", "rate")[0] == MAIN
    assert names("--filter", "EU-WEST->") == [BACK]
    by_name = document(served, "--flow", MAIN, "--sort", "name")["topics"]
    assert by_name[0]["topic"] == FAILED.topic


def test_yaml_and_a_table_without_a_terminal(served):
    made = yaml.safe_load(run(served, "--flow", MAIN, "-o", "yaml").stdout)
    assert made["flow"] == MAIN
    table = run(served, "--flow", MAIN, "--topic", "*", "--filter", "stalled").stdout
    assert "payments.settled-7" in table
    assert "broker 3) does not answer" in table
    assert "\x1b" not in table


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--topic", "t"], "--topic needs --flow"),
        (["--sort", "since"], "flows are sorted by state, lag"),
        (["--sort", "size"], "'size' is not one of"),
        (["--interval", "0"], "0"),
    ],
)
def test_bad_arguments_are_named(served, args, text):
    done = run(served, *args)
    assert done.exit_code == 2
    assert text in done.stderr


def test_what_cannot_be_asked_is_an_error(served):
    done = run(served, "--flow", "no->such")
    assert isinstance(done.exception, HeliographError)
    assert "no->such not found" in str(done.exception)
    done = CliRunner().invoke(cli, ["top", "http://127.0.0.1:1"])
    assert isinstance(done.exception, StartError)
    done = run(served, "--flow", MAIN, "--topic", "clicks", "--filter", "purple")
    assert done.exception.code == "top.filter"


def test_the_order_can_be_reversed():
    asked = []

    def answer(path, **query):
        asked.append((path, query["sort"]))
        return {"total": 0, "topics": [], "partitions": []}

    for backwards in (False, True):
        fetch(answer, Ask(TOPICS, "lag", backwards))
        fetch(answer, Ask(ALL, "since", backwards))
    assert [sort for _, sort in asked] == ["-lag", "since", "lag", "-since"]


# -- keys -----------------------------------------------------------------------------------------


def test_keys_as_terminals_send_them():
    assert keys_in("q\x1b[A\x1bOB\x1b[6~\x1b\r\x7f\x1b[15~é\x01\t") == [
        "q", "up", "down", "pgdn", "esc", "enter", "backspace", "é",
    ]  # fmt: skip


def page(view, total=1000, name="topic"):
    ask = view.ask()
    rows = [{"flow": MAIN, "topic": f"{name}-{n}"}
            for n in range(ask.offset, min(ask.offset + ask.limit, total))]  # fmt: skip
    return Page(ask, total, rows)


def press(view, *keys, total=1000):
    for key in keys:
        view.press(key, page(view, total))


def test_one_goes_down_and_back_and_finds_one_s_row_again():
    view = View(height=10)
    press(view, "down", "down", "enter")
    assert view.place == TOPICS
    press(view, "/", *"pay", "enter", *["j"] * 14)
    assert (view.ask().text, view.ask().offset) == ("pay", 5)
    assert page(view).rows[view.selected(page(view))]["topic"] == "topic-14"
    press(view, "enter")
    assert view.place == Place(Level.PARTITIONS, MAIN, "topic-14")
    press(view, "enter")
    assert view.place.level is Level.PARTITIONS, "there is nothing below it"
    press(view, "esc")
    assert (view.place, view.ask().text, view.ask().offset) == (TOPICS, "pay", 5)
    press(view, "esc")
    assert (view.place, view.ask().text) == (TOPICS, ""), "first the filter goes"
    press(view, "esc", "esc")
    assert view.place == Place()
    assert view.selected(page(view)) == 2
    press(view, "p")
    assert view.place == ALL


def test_one_who_began_inside_comes_out():
    view = View(Place(Level.PARTITIONS, MAIN, "clicks"))
    press(view, "esc")
    assert view.place == TOPICS
    press(view, "esc")
    assert view.place == Place()


def test_the_chosen_row_stays_in_sight_and_among_those_that_are_left():
    view = View(TOPICS, height=10)
    press(view, "end")
    assert view.ask().offset == 990
    press(view, "pgdn")
    assert view.selected(page(view)) == 9
    view.clamp(page(view, total=4))
    assert view.ask().offset == 0
    assert view.selected(page(view, total=4)) == 3
    view.clamp(page(view, total=0))
    assert view.selected(page(view, total=0)) is None
    press(view, "enter", total=0)
    assert view.place == TOPICS
    press(view, "pgdn", "home")
    assert view.selected(page(view)) == 0
    view.height = 1
    press(view, "down")
    assert view.ask().offset == 1


def test_sorting_the_pace_and_typing():
    view = View(height=10)
    names = [view.ask().sort]
    for _ in SORTS[Level.FLOWS]:
        press(view, "s")
        names.append(view.ask().sort)
    assert names == [*SORTS[Level.FLOWS], "state"]
    press(view, "r")
    assert view.ask().backwards
    press(view, "enter")
    assert not view.ask().backwards, "each level has an order of its own"
    press(view, "+")
    assert view.interval == 1
    press(view, *"---------")
    assert view.interval == 60
    press(view, "/", *"quxx", "backspace", "up")
    assert (view.typing, view.quit) == ("qux", False)
    press(view, "esc")
    assert (view.typing, view.ask().text) == (None, "")
    press(view, "q")
    assert view.quit


# -- what is drawn --------------------------------------------------------------------------------


def drawn(made, width=100, height=30):
    out = io.StringIO()
    Console(file=out, width=width, height=height, force_terminal=False).print(made)
    return out.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 50), (40, 9)])
@pytest.mark.parametrize("place", [Place(), TOPICS, ALL])
def test_the_screen_fills_the_terminal_and_never_more(get, width, height, place):
    view = View(place, height=max(height - OTHER_LINES, 1))
    found = fetch(get, view.ask())
    text = drawn(screen(view, found, "where", "", (width, height)), width, height)
    assert len(text.splitlines()) == max(height, OTHER_LINES + 1)
    assert max(map(len, text.splitlines())) <= width
    assert "q quit" in text


def test_the_chosen_partition_says_why_and_an_error_is_shown_instead(get):
    view = View(ALL, height=5)
    found = fetch(get, view.ask())
    text = drawn(screen(view, found, "w", "", (100, 13)))
    assert "audit.raw-3 failed since" in text
    assert "[target.refused]" in text
    text = drawn(screen(view, found, "w", "[rest.unreachable] gone\n  -> do", (100, 13)))
    assert "[rest.unreachable] gone" in text
    assert "failed since" not in text
    assert "..." in drawn(screen(View(TOPICS), found, "w", "", (100, 18))), "not what was asked"


def test_other_people_s_text_moves_no_cursor():
    evil = "x\x1b]0;owned\x07\nFORGED \x9b2J\u202e\r"
    row = {
        "topic": evil, "partition": 1, "target_topic": evil, "state": "failed", "reason": evil,
        "code": evil, "since": None, "next_try": None, "lag_records": None, "lag_seconds": None,
    }  # fmt: skip
    found = Page(Ask(ALL, "state"), 1, [row])
    view = View(ALL, height=5)
    size = (150, 15)
    for made in (screen(view, found, "w", shown(evil), size), screen(view, found, "w", "", size),
                 grid(found, 150)):  # fmt: skip
        text = drawn(made, 150)
        assert "FORGED" in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]|^FORGED", text, re.MULTILINE)


# -- a terminal -----------------------------------------------------------------------------------


#: Where a shell runs the tests in the background, SIGINT is ignored, and so it would be here.
_COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " from heliograph.cli import main; main()"
)


class Terminal:
    """A command in a pseudo terminal of 100 x 30."""

    def __init__(self, *args):
        self.here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.there = there
        self.before = termios.tcgetattr(there)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *args],
            stdin=there, stdout=there, stderr=there,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip

    def press(self, keys):
        self.text = ""
        os.write(self.here, keys.encode())

    def await_text(self, *wanted, seconds=30):
        deadline = time.monotonic() + seconds
        while not all(text in self.text for text in wanted):
            assert time.monotonic() < deadline, f"{wanted} did not come: {self.text[-3000:]!r}"
            self.pump(0.5)

    def pump(self, seconds):
        ready, _, _ = select.select([self.here], [], [], seconds)
        if ready:
            got = os.read(self.here, 65536).decode("utf-8", "replace")
            self.text += re.sub(r"\x1b\[[0-9;]*m", "", got)

    def end(self):
        deadline = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.pump(0.1)
        self.pump(0.1)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.here)
        os.close(self.there)


@pytest.fixture
def terminal():
    made = []

    def start(*args):
        made.append(Terminal(*args))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_in_a_terminal_one_finds_the_stalled_partition_and_leaves_it_as_it_was(served, terminal):
    it = terminal("top", served.url)
    it.await_text("\x1b[?1049h", MAIN, "1 failed, 1 stalled", "q quit", "3 flows, by state")
    it.press("\r")
    it.await_text(f"all flows > {MAIN}", "41 topics (1 to 20)", "by lag", STALLED.topic)
    it.press("s")
    it.await_text("by age")
    it.press("p")
    it.await_text("all partitions", "2,000 partitions")
    it.press("/stalled\r")
    it.await_text("1 partition, by", "filter: stalled", "payments.settled-7", "(broker 3) does")
    it.press("\x1b")
    it.await_text("2,000 partitions")
    it.press("\x1b[6~")
    it.await_text("(21 to 40)")
    it.press("q")
    assert it.end() == 0
    assert "\x1b[?1049l" in it.text
    assert termios.tcgetattr(it.there) == it.before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(served, terminal, number):
    it = terminal("top", served.url)
    it.await_text("q quit")
    assert termios.tcgetattr(it.there) != it.before
    it.process.send_signal(number)
    assert it.end() == (0 if number == signal.SIGINT else 143)
    assert "\x1b[?1049l" in it.text
    assert termios.tcgetattr(it.there) == it.before


def test_a_mirror_that_goes_away_is_told_and_one_that_comes_back_is_shown(terminal):
    with synthetic_server(SyntheticMirror(50), sample=False) as made:
        port = int(made.url.rpartition(":")[2])
        it = terminal("top", made.url, "--interval", "0.5")
        it.await_text("q quit")
    it.text = ""
    it.await_text("rest.unreachable")
    with synthetic_server(SyntheticMirror(50), sample=False, port=port):
        it.press("\r")
        it.await_text("topics", STALLED.topic)
    it.press("q")
    assert it.end() == 0
