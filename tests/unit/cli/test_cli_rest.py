"""``heliograph rest user`` and ``rest token``: lines that the REST server takes."""

from __future__ import annotations

import base64

import pytest
from click.testing import CliRunner

from heliograph.cli import cli
from heliograph.errors import ConfigError
from heliograph.rest.credentials import Credentials
from heliograph.rest.settings import RestSettings, Role


def run(*args, text=None):
    return CliRunner().invoke(cli, ["rest", *args], input=text)


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def users_of(line, folder):
    path = folder / "users"
    path.write_text(line, encoding="utf-8")
    return Credentials(RestSettings(users_file=path))


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_the_line_of_a_user_lets_them_in_with_their_role(tmp_path, role):
    done = run("user", "alice", "--role", role, "--password-stdin", text="pass:wörd \n")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"alice:{role}:scrypt$")
    assert done.stdout.count("\n") == 1
    assert "pass" not in done.output
    known = users_of(done.stdout, tmp_path)
    caller = known.slowly(basic("alice", "pass:wörd "))
    assert caller is not None
    assert (caller.name, caller.role) == ("alice", Role.named(role))
    assert known.slowly(basic("alice", "pass:wörd")) is None


def test_the_password_is_asked_for_twice_and_not_shown(tmp_path):
    done = run("user", "alice", "--role", "viewer", text="one\nanother\nsecret1\nsecret1\n")
    assert done.exit_code == 0, done.output
    assert "do not match" in done.stderr
    assert "secret1" not in done.output
    # Only the line is on the output, so that >> appends it to the file.
    assert done.stdout.startswith("alice:viewer:scrypt$")
    assert users_of(done.stdout, tmp_path).slowly(basic("alice", "secret1")) is not None


def test_no_two_lines_of_a_password_are_equal():
    lines = {
        run("user", "a", "--role", "admin", "--password-stdin", text="same\n").stdout
        for _ in range(2)
    }
    assert len(lines) == 2


@pytest.mark.parametrize("text", ["", "\n", "\r\n"])
def test_an_empty_password_is_refused(text):
    done = run("user", "alice", "--role", "viewer", "--password-stdin", text=text)
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "rest.password"
    assert done.stdout == ""


def test_the_line_of_a_token_lets_its_holder_in(tmp_path):
    done = run("token", "ci", "--role", "operator")
    assert done.exit_code == 0, done.output
    token = done.stderr.strip().rpartition(" ")[2]
    assert done.stdout.startswith("ci:operator:sha256$")
    assert token not in done.stdout
    path = tmp_path / "tokens"
    path.write_text(done.stdout, encoding="utf-8")
    known = Credentials(RestSettings(tokens_file=path))
    caller = known.at_once(f"Bearer {token}", None)
    assert caller is not None
    assert (caller.name, caller.role) == ("ci", Role.OPERATOR)
    assert known.at_once(f"Bearer {token}x", None) is None


@pytest.mark.parametrize("command", ["user", "token"])
@pytest.mark.parametrize("name", ["", " ", "a:b", "#a", " a", "a ", "a\nroot:admin:x", "a\x1b[31m"])
def test_a_name_that_makes_another_line_is_refused(command, name):
    done = run(command, name, "--role", "viewer", text="secret\nsecret\n")
    assert isinstance(done.exception, ConfigError)
    assert done.exception.code == "rest.name"
    assert "\x1b" not in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["user", "alice"], "Missing option '--role'"),
        (["user", "alice", "--role", "root"], "'root' is not one of"),
        (["token"], "Missing argument 'NAME'"),
    ],
)
def test_bad_arguments_are_named(args, text):
    done = run(*args)
    assert done.exit_code == 2
    assert text in done.stderr
