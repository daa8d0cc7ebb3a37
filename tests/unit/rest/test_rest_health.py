"""/health/live and /health/ready: open, cheap, and with the name of what is wrong."""

from __future__ import annotations

import socket
import threading

import pytest
from click.testing import CliRunner
from serving import ScriptedHerder, serving

from heliograph.cli import cli
from heliograph.errors import HeliographError
from heliograph.rest.credentials import new_token
from heliograph.rest.health import Health
from heliograph.rest.settings import Limits, Role
from heliograph.service.mirror import Unready
from heliograph.service.pulse import Stuck


class State:
    def __init__(self):
        self.stuck = []
        self.unready = []

    @property
    def health(self):
        return Health(lambda: self.stuck, lambda: self.unready)


@pytest.fixture
def state():
    return State()


def test_live_names_what_is_stuck(state):
    with serving(health=state.health) as ask:
        assert (ask.get("/health/live").status, ask.get("/health/live").json) == (
            200, {"status": "live", "stuck": []},
        )  # fmt: skip
        state.stuck = [Stuck("flow A->B", 123.456)]
        answer = ask.get("/health/live")
        assert (answer.status, answer.json) == (
            503, {"status": "stuck", "stuck": [{"part": "flow A->B", "seconds": 123.5}]},
        )  # fmt: skip
        assert ask("HEAD", "/health/live").status == 503
        ready = ask.get("/health/ready").json
        assert ready["reasons"] == [
            {"what": "flow A->B", "state": "stuck", "code": "", "reason": ""}
        ]


def test_ready_says_why_not_and_live_does_not_care(state):
    state.unready = [Unready("A->B", "failed", "flow.start", "no broker of A at h:1\x1b[2J")]
    with serving(health=state.health) as ask:
        answer = ask.get("/health/ready")
        assert answer.status == 503
        assert answer.json == {
            "status": "unready",
            "reasons": [{"what": "A->B", "state": "failed", "code": "flow.start",
                         "reason": "no broker of A at h:1\\x1b[2J"}],
        }  # fmt: skip
        assert ask.get("/health/live").status == 200
        state.unready = []
        assert ask.get("/health/ready").json == {"status": "ready", "reasons": []}


def test_probes_need_no_credentials_and_strangers_learn_no_hosts(state, tmp_path):
    state.unready = [Unready("A->B", "failed", "flow.start", "no broker of A at secret.host:1")]
    _, line = new_token("ci", Role.ADMIN)
    (tmp_path / "tokens").write_text(line)
    with serving(health=state.health, tokens_file=tmp_path / "tokens") as ask:
        assert ask.get("/connectors").status == 401
        assert ask.get("/health/live").status == 200
        answer = ask.get("/health/ready")
        assert answer.status == 503
        assert answer.json["reasons"][0] == {
            "what": "A->B", "state": "failed", "code": "flow.start", "reason": "",
        }  # fmt: skip


def test_probes_do_not_wait_for_calls_that_hang(state):
    herder = ScriptedHerder()
    free, begun = threading.Event(), threading.Event()

    def hang():
        begun.set()
        free.wait(60)
        return []

    herder.connectors = hang
    with serving(herder, health=state.health, limits=Limits(calls=1)) as ask:
        asking = threading.Thread(target=ask.get, args=("/connectors",))
        asking.start()
        try:
            assert begun.wait(60)
            assert ask.get("/health/live").status == 200
            assert ask.get("/health/ready").status == 200
        finally:
            free.set()
            asking.join()


# -- the command ----------------------------------------------------------------------------------


def asked(*args):
    done = CliRunner().invoke(cli, ["health", *args])
    return done.exit_code, done.output


def test_the_exit_code_says_whether_it_is_alive_or_ready():
    stuck, unready = [], [Unready("A->B", "failed", "flow.start", "nobody answers")]
    with serving(health=Health(lambda: stuck, lambda: unready)) as ask:
        url = f"http://127.0.0.1:{ask.listener.port}"
        assert asked(url) == (0, '{"status": "live", "stuck": []}\n')
        code, said = asked(url, "--ready")
        assert code == 1
        assert "nobody answers" in said
        stuck.append(Stuck("Spark", 200.0))
        code, said = asked(url.removeprefix("http://"))
        assert code == 1
        assert '"part": "Spark"' in said


def test_nobody_there_is_no():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        done = CliRunner().invoke(cli, ["health", url])
    assert isinstance(done.exception, HeliographError)
    assert done.exception.exit_code == 1
    assert "no mirror answers at" in str(done.exception)


@pytest.mark.parametrize("url", ["http://h:port", "http://", "nonsense:x"])
def test_nonsense_is_no(url):
    done = CliRunner().invoke(cli, ["health", url])
    assert isinstance(done.exception, HeliographError)
