"""``heliograph status``, ``events``, ``pause``, ``resume``, ``restart`` of a mirror with REST."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console
from synthetic import BACK, MAIN, SyntheticMirror, synthetic_server

from heliograph.cli import cli, events
from heliograph.cli.events import _all
from heliograph.cli.kafka_view import KafkaView
from heliograph.cli.read_back import flow_of
from heliograph.cli.rest_client import Login, RestClient, url_of
from heliograph.cli.status import problems_of, status_table
from heliograph.cli.watched import Watched
from heliograph.errors import ConfigError, HeliographError, StartError
from heliograph.model import PartitionState
from heliograph.service.at_risk import risk_words
from heliograph.service.events import FlowEvent
from heliograph.service.snapshot import (
    COPYING,
    HEARTBEATS,
    CanarySnapshot,
    FlowSnapshot,
    FlowState,
    Life,
    PartitionSnapshot,
    RiskSnapshot,
    summary,
    to_json,
)

EVIL = "x\x1b]0;owned\x07\nFORGED \x9b2J\u202e\r"


class Healthy(SyntheticMirror):
    def snapshot(self):
        found = super().snapshot()
        return replace(found, flows=tuple(flow for flow in found.flows if flow.flow == BACK))


@pytest.fixture(scope="module")
def served():
    with synthetic_server(SyntheticMirror(100), logins=True, sample=False) as made:
        yield made


@pytest.fixture(scope="module")
def open_to_all():
    with synthetic_server(Healthy(100), sample=False) as made:
        yield made


def run(*args, text=None, env=None):
    return CliRunner().invoke(cli, args, input=text, env=env)


def token(served, folder, role):
    path = folder / "token"
    path.write_text(served.tokens[role] + "\n", encoding="utf-8")
    return str(path)


# -- status ---------------------------------------------------------------------------------------


def test_the_exit_code_says_healthy_not_healthy_or_nothing_there(served, open_to_all, tmp_path):
    done = run("status", open_to_all.url)
    assert (done.exit_code, done.stdout.splitlines()[-1].strip()) == (0, "healthy")
    done = run("status", served.url, "--token-file", token(served, tmp_path, "viewer"))
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1].startswith("not healthy: 3 problems")
    assert "payments.settled-7 stalled since" in done.stdout
    done = run("status", "http://127.0.0.1:1")
    assert isinstance(done.exception, StartError)
    assert (done.exception.code, done.exception.exit_code) == ("rest.unreachable", 3)


def test_machines_read_the_same_as_json_and_yaml(open_to_all):
    told = json.loads(run("status", open_to_all.url, "-o", "json").stdout)
    assert (told["healthy"], told["running"], told["problems"]) == (True, True, [])
    assert told["mirror"]["url"] == open_to_all.url
    assert [flow["flow"] for flow in told["flows"]] == [BACK]
    again = yaml.safe_load(run("status", open_to_all.url, "-o", "yaml").stdout)
    assert again.keys() == told.keys()


RUNNING = Life(FlowState.RUNNING)
FLOW = FlowSnapshot("A->B", "A", "B", RUNNING, {COPYING: RUNNING}, measured_at=1.0, lag_records=0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"life": Life(FlowState.STANDING_BY), "lag_records": None}, []),
        ({"life": Life(FlowState.STARTING, "waiting for A")}, ["starting: waiting for A"]),
        ({"parts": {COPYING: Life(FlowState.PAUSED, "paused by x")}},
         ["copying paused: paused by x"]),
        ({"states": {"failed": 2, "idle": 5}}, ["2 partitions failed"]),
        ({"states": {"waiting": 2, "throttled": 1}}, []),
        ({"measured_at": 0.0}, ["its lag was not measured yet"]),
        ({"unmeasured": 1}, ["the lag of 1 partition is not known"]),
        ({"paused_topics": {"t": "paused by x"}}, ["topic t paused by x"]),
        ({"canary": CanarySnapshot(44.0, None, 1, 1.0, overdue=True)},
         ["canary lost: a probe has been on its way for 44 s"]),
        # It was lost, and those after it came.
        ({"canary": CanarySnapshot(0.1, None, 1, 1.0)}, []),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_flow(changes, expected):
    assert problems_of(replace(FLOW, **changes), []) == expected


def test_status_says_what_would_be_lost_as_the_mirror_does_whose_rest_api_it_asks():
    risk = RiskSnapshot(1204, 3, 0.4, 0, 1e9)
    known = replace(FLOW, at_risk=risk, rto_seconds=7.2, rto_measured_at=1e9)
    plain = json.loads(json.dumps(summary(known)))
    assert flow_of(plain).at_risk == risk
    older = {k: v for k, v in plain.items() if not k.startswith(("at_risk", "rto"))}
    assert flow_of(older).at_risk is None, "it may be of an older version"
    heartbeats = summary(replace(FLOW, parts={HEARTBEATS: Life(FlowState.RUNNING)}))
    status = {
        "mirror": {"url": "http://x", "note": ""}, "healthy": True, "problems": [],
        "at": "2001-09-09T01:46:42.000Z", "flows": [plain, older, heartbeats],
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=300).print(status_table(status, 300))
    lines = [line.strip() for line in out.getvalue().splitlines() if "died now" in line]
    assert lines == [
        "A->B if A died now: 1,204 records in 3 topics, 0.4 s; recovery took 7.2 s at"
        " 2001-09-09T01:46:40.000Z",
        "A->B if A died now: what would be lost is not known; recovery was never rehearsed",
    ]


@pytest.mark.parametrize(
    ("risk", "now", "expected"),
    [
        (RiskSnapshot(0, 0, 0.0, 0, 100.0), 101, "0 records"),
        (RiskSnapshot(1, 1, 0.04, 0, 100.0), 101, "1 record in 1 topic, 0.0 s"),
        (RiskSnapshot(5, 2, None, 0, 100.0), 101, "5 records in 2 topics, not known for how long"),
        (RiskSnapshot(0, 0, None, 4, 100.0), 101,
         "0 records; what 4 partitions would lose is not known"),
        (RiskSnapshot(None, 0, None, 9, 100.0), 101, "what would be lost is not known"),
        (RiskSnapshot(5, 1, 44.0, 1, 0.25), 34,
         "5 records in 1 topic, 44 s; what 1 partition would lose is not known; A last answered at"
         " 1970-01-01T00:00:00.250Z"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_never_0(risk, now, expected):
    assert risk_words(replace(FLOW, at_risk=risk), now) == f"if A died now: {expected}"


def table_lines(*flows):
    """What status prints below its table."""
    plain = []
    for flow in flows:
        troubled = [to_json(p) for p in flow.troubled]
        plain.append({**summary(flow), "troubled": troubled})
    problems = [f"{f.flow}: {text}" for f in flows for text in problems_of(f, [])]
    status = {
        "mirror": {"url": "http://x", "note": ""}, "healthy": not problems, "problems": problems,
        "at": "2001-09-09T01:46:42.000Z", "flows": json.loads(json.dumps(plain)),
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=300).print(status_table(status, 300))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    # Behind the title, the head, the rule and a row a flow.
    return [line for line in lines[4 + len(flows) : -1] if line and "died now" not in line]


@pytest.mark.parametrize(
    ("canary", "expected"),
    [
        (CanarySnapshot(0.003, -0.002, 0, 1.0), ["canary 3 ms, clock skew -2 ms"]),
        (CanarySnapshot(0.85, -0.0001, 0, 1.0), ["canary 850 ms, clock skew 0 ms"]),
        (CanarySnapshot(1.25, -75.0, 4, 1.0), ["canary 1.2 s, clock skew -75 s"]),
        (CanarySnapshot(0.003, None, 0, 1.0), ["canary 3 ms"]),
        (CanarySnapshot(None, None, 0, 0.0), []),
        (None, []),
        (CanarySnapshot(44.0, 0.005, 1, 1.0, overdue=True),
         ["canary lost: a probe has been on its way for 44 s, clock skew 5 ms"]),
    ],
)  # fmt: skip
def test_the_table_has_the_latency_of_the_canary_and_how_far_clocks_differ(canary, expected):
    found = table_lines(replace(FLOW, canary=canary))
    assert found == [f"A->B {text}" for text in expected]


def _partition(number, state, reason=""):
    return PartitionSnapshot("t", number, "A.t", state, reason, since=1.0, lag_records=1)


def test_the_table_lists_each_problem_once():
    why = "paused by ops: B is moved"
    at, failed = 1e9, PartitionState.FAILED
    bad = Life(FlowState.FAILED, "[cluster.unreachable] B is away", "cluster.unreachable", 1.0, at)
    paused = Life(FlowState.PAUSED, why)
    waiting = [_partition(n, PartitionState.WAITING, f"1 record(s) wait: {why}") for n in range(9)]
    for flow, expected in (
        (replace(FLOW, life=bad, parts=dict.fromkeys(FLOW.parts, bad)),
         ["failed, tried again at 2001-09-09T01:46:40.000Z: [cluster.unreachable] B is away"]),
        (replace(FLOW, states={"failed": 1}, partitions=(_partition(0, failed, "too large"),)),
         ["t-0 failed since 1970-01-01T00:00:01.000Z: too large"]),
        (replace(FLOW, life=paused, parts={COPYING: paused}, states={"waiting": 9},
                 partitions=tuple(waiting)),
         [f"paused: {why}"]),
        (replace(FLOW, paused_topics={"t": why}, states={"waiting": 1},
                 partitions=(_partition(0, PartitionState.WAITING, why),)),
         [f"topic t {why}"]),
        (replace(FLOW, paused_topics={f"t{n}": why for n in range(5)}),
         [*(f"topic t{n} {why}" for n in range(3)),
          "2 more topics are paused; -o json lists them"]),
        # The row says so.
        (replace(FLOW, life=Life(FlowState.PAUSED)), []),
        # It does not say so of a flow that stands by.
        (replace(FLOW, life=Life(FlowState.STANDING_BY),
                 parts={COPYING: Life(FlowState.STANDING_BY), HEARTBEATS: Life(FlowState.PAUSED)}),
         ["heartbeats paused"]),
    ):  # fmt: skip
        assert problems_of(flow, [])
        assert [line.removeprefix("A->B").lstrip(": ") for line in table_lines(flow)] == expected


def test_a_failing_job_is_a_problem():
    failing = [{"description": "syncing ACLs", "error": "no right"}]
    assert problems_of(FLOW, failing) == ["syncing ACLs: no right"]


def test_other_people_s_text_does_nothing_to_the_terminal():
    flow = replace(FLOW, flow=EVIL, source=EVIL, life=Life(FlowState.FAILED, EVIL))
    status = {
        "mirror": {"from": "kafka", "url": None, "note": EVIL}, "healthy": False,
        "problems": [f"{EVIL}: {EVIL}"], "at": "2026-11-17T03:12:07.250Z",
        "flows": [{**summary(flow), "owner": {"host": EVIL, "pid": 1, "since": "now"}}],
    }  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=300).print(status_table(status, 300))
    text = out.getvalue()
    assert "FORGED" in text
    bad = [c for c in text if not c.isprintable() and c != "\n"]
    assert not bad, ascii(text)


@pytest.mark.parametrize("command", ["status", "top", "events", "pause", "resume", "restart"])
def test_every_command_prints_a_table_json_and_yaml(open_to_all, command):
    commands = command in {"pause", "resume", "restart"}
    about = ("--flow", BACK, "--yes", "--dry-run") if commands else ()
    told = {}
    for form in ("table", "json", "yaml"):
        done = run(command, open_to_all.url, *about, "-o", form)
        assert (done.exit_code, done.stderr) == (0, ""), done.exception
        told[form] = done.stdout
    assert BACK in told["table"]
    # Events are one document each.
    many = command == "events"
    as_json = [json.loads(x) for x in (told["json"].splitlines() if many else [told["json"]])]
    as_yaml = list(yaml.safe_load_all(told["yaml"]))
    assert [found.keys() for found in as_yaml] == [found.keys() for found in as_json]


# -- logging in -----------------------------------------------------------------------------------


def test_one_logs_in_by_options_or_environment_and_never_by_the_address(served, tmp_path):
    name, password = served.users["viewer"]
    file = token(served, tmp_path, "viewer")
    url = served.url
    refused = run("status", url)
    assert refused.exception.code == "rest.login"
    for args, text, env in (
        (["--user", name], None, {"HELIOGRAPH_PASSWORD": password}),
        ([], None, {"HELIOGRAPH_USER": name, "HELIOGRAPH_PASSWORD": password}),
        (["--user", name, "--password-stdin"], f"{password}\n", None),
        (["--user", name], f"{password}\n", None),
        (["--token-file", file], None, None),
        ([], None, {"HELIOGRAPH_TOKEN_FILE": file}),
    ):
        done = run("status", url, *args, text=text, env=env)
        assert done.exit_code == 1, (args, done.output, done.exception)
        assert password not in done.output
    wrong = run("status", url, "--user", name, env={"HELIOGRAPH_PASSWORD": "no"})
    assert wrong.exception.code == "rest.login"
    inside = run("status", url.replace("//", f"//{name}:secret@"))
    assert inside.exception.code == "rest.url"
    assert "--user" in inside.exception.hint
    both = run("status", url, "--user", name, "--token-file", file)
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
    assert "needs --user" in run("status", url, "--password-stdin").stderr


@pytest.mark.parametrize("content", [b"", b"a\nb", b"\xff\xfe", None])
def test_a_file_without_a_token_is_refused(content, tmp_path):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    done = run("status", "http://127.0.0.1:1", "--token-file", str(path))
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "rest.token"


def test_an_address_from_a_claim_gets_no_password_in_the_clear():
    login = Login("Basic x")
    assert repr(login) == "Login(...)"
    assert RestClient("http://127.0.0.1:1", login, told=False)._header
    assert RestClient("https://db7:1", login, told=False)._header
    assert RestClient("http://db7:1", login)._header, "a person named it"
    assert not RestClient("http://db7:1", login, told=False)._header


def test_tls_that_does_not_come_about_names_the_option(open_to_all, tmp_path):
    done = run("status", open_to_all.url.replace("http", "https"))
    assert done.exception.code == "rest.unreachable"
    assert "--cacert" in done.exception.hint
    done = run("status", "https://127.0.0.1:1", "--cacert", str(tmp_path / "none.pem"))
    assert done.exception.code == "rest.certificate"


@pytest.mark.parametrize("url", ["http://", "http://h:x", "http://h:99999"])
def test_what_is_no_address_is_refused(url):
    assert run("status", url).exception.code == "rest.url"


def test_an_address_needs_no_scheme(tmp_path, monkeypatch):
    assert url_of("db7:8083") == "http://db7:8083"
    assert url_of("[::1]:8083") == "http://[::1]:8083"
    for name in ("mm2.properties", "C:\\mm2.properties", "a/b:1", "db7:", "http:x"):
        assert url_of(name) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "db7:8083").touch()
    assert url_of("db7:8083") is None, "that is a file"
    assert "127.0.0.1:1 does not answer" in str(run("status", "127.0.0.1:1").exception)


# -- events ---------------------------------------------------------------------------------------


def test_events_as_table_json_and_yaml(served, tmp_path):
    at = (served.url, "--token-file", token(served, tmp_path, "viewer"))
    text = run("events", *at).stdout
    assert run("events", *at, "-o", "table").stdout == text
    assert run("events", *at, "-o", "text").stdout == text, "as it was called before"
    assert "WARNING us-east->eu-west payments.settled-7 [partition.stalled]" in text
    told = [json.loads(line) for line in run("events", *at, "-o", "json").stdout.splitlines()]
    numbers = [event["sequence"] for event in told]
    assert numbers == sorted(numbers)
    assert list(yaml.safe_load_all(run("events", *at, "-o", "yaml").stdout)) == told
    behind = run("events", *at, "--after", str(numbers[1]), "-o", "json").stdout.splitlines()
    assert [json.loads(line)["sequence"] for line in behind] == numbers[2:]
    worse = run("events", *at, "--level", "warning", "--flow", MAIN, "-o", "json").stdout
    chosen = [json.loads(line) for line in worse.splitlines()]
    assert chosen
    assert {(event["flow"], event["level"]) for event in chosen} <= {
        (MAIN, "warning"), (MAIN, "error"),
    }  # fmt: skip


def test_whoever_follows_without_a_rest_api_looks_again_and_again(monkeypatch):
    monkeypatch.setattr(events, "_EVERY_SECONDS", 0.0)
    view = KafkaView([])
    following = _all(Watched(None, view), 0, follow=True)
    view._bus.publish(FlowEvent(BACK, "flow.paused", "first", "copying", at=1.0))
    assert next(following)["text"] == "first"
    view._bus.publish(FlowEvent(BACK, "flow.resumed", "second", "copying", at=2.0))
    assert next(following)["text"] == "second"
    following.close()
    view.close()


def test_whoever_follows_sees_what_happens_next(open_to_all):
    client = RestClient(open_to_all.url, Login())
    kept = len(list(_all(Watched(client), 0, follow=False)))
    following = _all(Watched(client), 0, follow=True)
    assert len(list(itertools.islice(following, kept))) == kept
    open_to_all.mirror.events.publish(FlowEvent(BACK, "flow.paused", "now", "copying", at=1.0))
    assert next(following)["text"] == "now"
    following.close()


# -- commands -------------------------------------------------------------------------------------


def test_commands_do_what_they_say_and_a_dry_run_does_nothing(open_to_all):
    url, flow = open_to_all.url, open_to_all.mirror.supervisor(BACK)
    about = (url, "--flow", "eu-west -> us-east", "--yes")
    dry = json.loads(run("pause", *about, "--dry-run", "-o", "json").stdout)
    assert (dry["dry_run"], dry["through"], flow.paused) == (True, "rest", {})
    parts = ("--part", "copying", "--part", "heartbeats")
    done = run("pause", *about, *parts, "--why", "B is moved")
    assert done.stdout == f"{BACK}\tpause\tcopying,heartbeats\trest\tthe mirror at {url} will\n"
    assert set(flow.paused) == {"copying", "heartbeats"}
    seen = run("status", url)
    assert seen.exit_code == 1
    assert f"{BACK} paused: paused through REST: B is moved" in seen.stdout
    assert run("resume", *about).exit_code == 0
    assert not flow.paused
    assert run("pause", *about, "--topic", "returns").exit_code == 0
    assert set(flow.paused_topics) == {"returns"}
    assert run("resume", *about, "--topic", "returns").exit_code == 0
    assert not flow.paused_topics
    assert run("restart", *about, "--part", "copying").exit_code == 0
    assert flow.restarts == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--flow", "no->such", "--yes"], "flow.unknown"),
        (["--flow", BACK, "--topic", "nope", "--yes"], "rest.refused"),
        (["--flow", BACK], "command.unconfirmed"),
    ],
)
def test_what_cannot_be_done_is_refused(open_to_all, args, code):
    done = run("pause", open_to_all.url, *args)
    assert isinstance(done.exception, HeliographError)
    assert done.exception.code == code
    assert not open_to_all.mirror.supervisor(BACK).paused


@pytest.mark.parametrize(
    ("word", "args", "text"),
    [
        ("pause", [], "Missing option '--flow'"),
        ("pause", ["--flow", BACK, "--part", "all"], "'all' is not one of"),
        ("pause", ["--flow", BACK, "--part", "copying", "--topic", "t"], "not both"),
        ("restart", ["--flow", BACK, "--topic", "t"], "No such option"),
        ("resume", ["--flow", BACK, "--why", "x"], "No such option"),
    ],
)
def test_bad_arguments_are_named(word, args, text):
    done = run(word, "http://127.0.0.1:1", *args)
    assert done.exit_code == 2
    assert text in done.stderr


def test_only_operators_command(served, tmp_path):
    args = ("pause", served.url, "--flow", BACK, "--yes", "--token-file")
    done = run(*args, token(served, tmp_path, "viewer"))
    assert done.exception.code == "rest.forbidden"
    assert not served.mirror.supervisor(BACK).paused
    assert run(*args, token(served, tmp_path, "operator")).exit_code == 0
    assert served.mirror.supervisor(BACK).paused
