"""The command line itself: quick, and with MM2's exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "pyarrow", "pandas", "kafka", "aiokafka")


def run(*args, code=None):
    command = [sys.executable, "-m", "heliograph"] if code is None else [sys.executable, "-c", code]
    return subprocess.run(
        [*command, *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_names_the_commands():
    done = run("--help")
    assert done.returncode == 0, done.stderr
    for command in ("run", "config", "lab", "demo"):
        assert f"\n  {command} " in done.stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom heliograph.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        f"print('loaded:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = run(code=code)
    assert "loaded: []" in done.stdout, done.stdout + done.stderr


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "heliograph")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["run"], "Missing argument 'FILE'"),
        (["run", "mm2.properties", "--frobnicate"], "--frobnicate"),
        (["run", "mm2.properties", "-o", "xml"], "'xml' is not one of"),
        (["run", "mm2.properties", "surplus"], "surplus"),
        (["mirror"], "No such command 'mirror'"),
    ],
    ids=["no-file", "option", "choice", "surplus", "command"],
)
def test_bad_arguments_exit_as_in_mm2(args, text):
    done = run(*args)
    assert done.returncode == 255
    assert text in done.stderr
    assert "Traceback" not in done.stderr
