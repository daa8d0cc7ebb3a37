"""``heliograph health`` against a real server: the exit code is the answer."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from heliograph.cli import cli
from heliograph.errors import HeliographError
from heliograph.rest.health import Health
from heliograph.service.mirror import Unready
from heliograph.service.pulse import Stuck

sys.path.insert(0, str(Path(__file__).parents[1] / "rest"))

from serving import serving  # noqa: E402 - beside the tests of the server


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
