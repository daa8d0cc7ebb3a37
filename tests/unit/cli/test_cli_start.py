"""The command line itself: quick, and with MM2's exit codes."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from heliograph import cli

HEAVY = ("pyspark", "pyarrow", "pandas", "kafka", "aiokafka")


def run(*args, code=None):
    command = [sys.executable, "-m", "heliograph"] if code is None else [sys.executable, "-c", code]
    return subprocess.run(
        [*command, *args], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def said(monkeypatch, capsys):
    """What a command says on stderr, and its exit code; in this process, which is cheaper."""
    # Handlers of signals and of defects belong to a process of its own.
    monkeypatch.setattr(cli, "stop_on_signals", lambda: None)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def run_here(*args):
        monkeypatch.setattr(sys, "argv", ["heliograph", *args])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    return run_here


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


@pytest.mark.parametrize("command", ["status", "top", "run"])
def test_a_command_imports_the_mirror_only_when_it_mirrors(command):
    code = (
        f"import sys\nimport heliograph.cli.{command}\n"
        "print([m for m in ('heliograph.service.mirror', 'numpy') if m in sys.modules])"
    )
    done = run(code=code)
    assert done.stdout == "[]\n", done.stdout + done.stderr


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
def test_bad_arguments_exit_as_in_mm2(args, text, said):
    code, told = said(*args)
    assert code == 255
    assert text in told
    assert "Traceback" not in told


def test_bad_arguments_in_a_process_of_its_own():
    done = run("run", "mm2.properties", "--frobnicate")
    assert (done.returncode, "--frobnicate" in done.stderr) == (255, True)


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["verfy"], "Did you mean 'verify'?"),
        (["config", "kyes"], "Did you mean 'keys'?"),
        (["lab", "stauts"], "Did you mean 'status'?"),
        (["run", "mm2.properties", "--onec"], "Did you mean '--once'?"),
    ],
)
def test_what_is_misspelt_gets_a_suggestion(args, meant, said):
    code, told = said(*args)
    assert (code, meant in " ".join(told.split())) == (255, True), told


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (["prepare"], "/proc/nowhere"),
        (["lab", "up", "--folder", "/proc/nowhere/lab"], "/proc/nowhere"),
        (["lab", "up", "--detach", "--folder", "/proc/nowhere/lab"], "/proc/nowhere"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named(args, path, monkeypatch, said):
    monkeypatch.setenv("HELIOGRAPH_CACHE", "/proc/nowhere")
    code, told = said(*args)
    assert code == 2, told
    assert told.startswith(f"error: [system.file] {path}")
    assert "Traceback" not in told


def test_a_defect_is_one_line_and_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import heliograph.cli as c\n"
        "def broken(*a, **k): raise LookupError('a surprise\\nand its second line')\n"
        "c.cli.main = broken\n"
        "c.main()"
    )
    done = run(code=code)
    assert done.returncode == 70
    [file] = tmp_path.iterdir()
    assert done.stderr.splitlines() == [
        "error: [internal] a defect of Heliograph: LookupError: a surprise",
        f"  -> details: {file}; please report it",
    ]
    assert "Traceback" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_defect_in_a_thread_is_told_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import threading, heliograph.cli as c\n"
        "def broken(): raise LookupError('a surprise')\n"
        "def start(**k):\n t = threading.Thread(target=broken); t.start(); t.join()\n"
        "c.cli.main = start\n"
        "c.main()"
    )
    done = run(code=code)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "[internal] a defect of Heliograph: LookupError: a surprise" in done.stderr


def test_a_reader_that_has_enough_is_no_error():
    command = f"{sys.executable} -m heliograph config keys -o json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cluster_that_is_not_there_is_exit_code_3(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\n"
        "A->B.enabled=true\nadmin.timeout.ms=1000\n"
    )
    translate = "translate", "--topic", "t", "--partition", "0", "--offset", "0"
    commands = [[*args, str(path)] for args in
                (["groups"], ["topics", "plan"], ["acls", "plan"], translate)]  # fmt: skip
    commands.append(["client", "upstream", "--bootstrap-server", "127.0.0.1:1"])
    # All at once: each waits for ten seconds.
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda args: run(*args), commands):
            assert done.returncode == 3, done.stderr
            assert "Traceback" not in done.stderr
            assert ".unreachable]" in done.stderr
