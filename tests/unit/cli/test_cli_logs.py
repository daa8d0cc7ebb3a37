"""The log: its levels, its two forms, its file, and what is never in it."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import time
from typing import Any

import pytest
from click.testing import CliRunner

from heliograph.cli import cli
from heliograph.cli.log_file import LogFile
from heliograph.cli.logs import LogSettings, more_on_signal
from heliograph.cli.reporting import reporter
from heliograph.config.secrets import redact_text
from heliograph.connect.loggers import Loggers
from heliograph.service.events import EventBus, FlowEvent
from heliograph.service.snapshot import MirrorSnapshot

LOG = logging.getLogger("heliograph.some.module")
LEVELS = ("debug", "info", "warning", "error")


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def levels():
    """Whoever changes a level changes that of every logger below, for good."""
    ours = [logging.getLogger(n) for n in logging.root.manager.loggerDict if "heliograph" in n]
    before = [(logger, logger.level) for logger in ours]
    yield
    for logger, level in before:
        logger.setLevel(level)


class Logged:
    """A reporter with a log file, for a mirror without flows."""

    def __init__(self, folder, form="text", level=logging.INFO, output="auto"):
        self.path = folder / "heliograph.log"
        self.bus = EventBus()
        settings = LogSettings(level, form, self.path)
        self.report = reporter(output, lambda: MirrorSnapshot(0.0, ()), self.bus, 3600.0, settings)

    def __enter__(self):
        self.report.__enter__()
        return self

    def __exit__(self, kind, error, where):
        self.report.__exit__(kind, error, where)

    @property
    def lines(self):
        return self.path.read_text().splitlines()

    @property
    def records(self):
        return [json.loads(line) for line in self.lines]


def say_all():
    for level in LEVELS:
        getattr(LOG, level)("it is %s", level)


# -- levels and forms -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_the_least_that_is_logged(tmp_path, level):
    number = logging.getLevelNamesMapping()[level.upper()]
    with Logged(tmp_path, "json", number) as logged:
        say_all()
        logged.report.say("hello")
        logged.bus.publish(FlowEvent("A->B", "flow.paused", "by hand"))
    told = [r["text"] for r in logged.records]
    expected = [f"it is {x}" for x in LEVELS[LEVELS.index(level) :]]
    assert [x for x in told if x.startswith("it is")] == expected
    assert ("hello" in told) == ("by hand" in told) == (number <= logging.INFO)


def test_events_and_log_records_have_one_shape(tmp_path):
    with Logged(tmp_path, "json") as logged:
        LOG.warning("a broker is %s", "away")
        logged.bus.publish(FlowEvent("A->B", "flow.paused", "by hand", at=1e9))
        LOG.error("%s: cannot go on", "A->B", exc_info=OSError(errno.ENOSPC, "no room"))
    notice, event, failure = logged.records
    shared = {"time", "event", "level", "logger", "sequence", "flow", "code", "text"}
    assert [set(r) - shared for r in logged.records] == [set(), {"part"}, {"error"}]
    assert all(shared <= set(r) for r in logged.records)
    assert (notice["event"], notice["logger"], notice["level"]) == ("notice", LOG.name, "warning")
    assert (event["event"], event["code"], event["flow"]) == ("flow", "flow.paused", "A->B")
    assert (failure["error"], failure["flow"], failure["level"]) == ("OSError", "A->B", "error")
    assert [r["sequence"] for r in logged.records] == [1, 2, 3]


def test_text_is_a_line_with_time_and_level(tmp_path):
    with Logged(tmp_path) as logged:
        LOG.warning("a broker is %s", "away")
    [line] = logged.lines
    assert re.fullmatch(r"20\d\d-\S+Z WARNING a broker is away", line)


def test_what_repeats_itself_is_counted(tmp_path):
    with Logged(tmp_path) as logged:
        for _ in range(500):
            LOG.warning("a broker is away")
        LOG.warning("another one, too")
    assert len(logged.lines) == 3
    assert "a broker is away (499 more times since " in logged.lines[2]


def test_why_it_ended_is_in_the_file(tmp_path):
    logged = Logged(tmp_path, "json")
    logged.__enter__()
    logged.__exit__(ValueError, ValueError("so it goes"), None)
    assert (logged.records[-1]["level"], logged.records[-1]["text"]) == ("error", "so it goes")


def test_with_a_file_the_output_is_quiet(tmp_path, capsys):
    with Logged(tmp_path) as logged:
        LOG.warning("a broker is away")
    assert capsys.readouterr().out == ""
    with Logged(tmp_path, output="plain"):
        LOG.warning("another one, too")
    assert capsys.readouterr().out.endswith("WARNING another one, too\n")
    assert len(logged.lines) == 2, "the second run has added to it"


def test_options_have_twins_in_the_environment_and_are_checked(tmp_path):
    done = CliRunner().invoke(cli, ["run", "x", "--log-file-size", "many"])
    assert "'many' is no size" in str(done.exception) + done.output
    done = CliRunner(env={"HELIOGRAPH_LOG_LEVEL": "loud"}).invoke(cli, ["run", "x"])
    assert "'loud' is not one of" in str(done.exception) + done.output


# -- at run time ----------------------------------------------------------------------------------


class SparkLike:
    """The part of a mirror that has a level."""

    spark_level = "ERROR"

    def set_spark_level(self, level):
        self.spark_level = level


def test_levels_can_be_changed_for_a_while(tmp_path):
    with Logged(tmp_path) as logged:
        loggers = Loggers()
        LOG.debug("one")
        assert LOG.name in loggers.set_level("heliograph.some", "DEBUG", seconds=0.2)
        LOG.debug("two")
        wait_for(lambda: not LOG.isEnabledFor(logging.DEBUG))
        assert loggers.one(LOG.name)["last_modified"] is None
        LOG.debug("three")
    assert [line[-3:] for line in logged.lines] == ["two"]


def test_the_signal_shows_everything_and_who_asked_for_it(tmp_path):
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with Logged(tmp_path) as logged:
            more_on_signal(Loggers())
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_for(lambda: LOG.isEnabledFor(logging.DEBUG))
            LOG.debug("a detail")
            wait_for(lambda: any("SIGUSR1" in line for line in logged.lines))
            Loggers().set_level("root", "INFO")
        assert any(line.endswith("a detail") for line in logged.lines)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_spark_has_a_level_of_its_own():
    mirror: Any = SparkLike()
    loggers = Loggers(mirror)
    assert loggers.one("org.apache.spark")["level"] == "ERROR"
    before = loggers.one("root")["level"]
    loggers.set_level("root", "WARN")
    loggers.set_level("root", before)
    assert mirror.spark_level == "ERROR", "root is ours"
    assert loggers.set_level("org.apache.spark", "info") == ["org.apache.spark"]
    assert (mirror.spark_level, loggers.one("org.apache.spark")["level"]) == ("INFO", "INFO")
    loggers.set_level("org.apache", "DEBUG", seconds=0.05)
    wait_for(lambda: mirror.spark_level == "INFO")


# -- the file -------------------------------------------------------------------------------------


def log_file(folder, most_bytes=0, keep=0):
    return LogFile(folder / "log", most_bytes, keep, lambda lines: f"{lines} lost")


def files(folder):
    return {p.name: p.read_text().split() for p in folder.iterdir()}


def test_a_file_is_rotated_before_it_is_too_large_and_so_many_are_kept(tmp_path):
    file = log_file(tmp_path, most_bytes=10, keep=2)
    for n in range(9):
        file.write(f"{n}234")
    file.close()
    assert files(tmp_path) == {
        "log.2": ["4234", "5234"], "log.1": ["6234", "7234"], "log": ["8234"],
    }  # fmt: skip
    assert all(p.stat().st_size <= 10 for p in tmp_path.iterdir())


def test_a_line_that_is_larger_than_a_file_is_written_whole(tmp_path):
    file = log_file(tmp_path, most_bytes=4, keep=1)
    for line in ("ab", "x" * 100, "cd"):
        file.write(line)
    file.close()
    assert files(tmp_path) == {"log.1": ["x" * 100], "log": ["cd"]}


def test_without_older_files_only_the_youngest_lines_stay(tmp_path):
    file = log_file(tmp_path, most_bytes=5)
    for line in ("one", "two"):
        file.write(line)
    file.close()
    assert files(tmp_path) == {"log": ["two"]}


@pytest.mark.parametrize("how", ["moved", "removed", "truncated"])
def test_others_may_rotate_it(tmp_path, how):
    """As logrotate does it, with create or copytruncate, and without a signal."""
    file = log_file(tmp_path)
    file.write("one")
    path = tmp_path / "log"
    if how == "moved":
        path.rename(tmp_path / "old")
    elif how == "removed":
        path.unlink()
    else:
        os.truncate(path, 0)
    file.write("two")
    file.close()
    assert path.read_bytes() == b"two\n"


def test_what_cannot_be_written_is_counted_and_holds_nothing_back(tmp_path, monkeypatch):
    file = log_file(tmp_path)
    file.write("one")
    real = os.write

    def full(*_):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "write", full)
    file.write("two")
    file.write("three")
    monkeypatch.setattr(os, "write", real)
    file.write("four")
    file.close()
    assert (tmp_path / "log").read_text() == "one\n2 lost\nfour\n"


def test_others_cannot_read_it(tmp_path):
    log_file(tmp_path).close()
    assert (tmp_path / "log").stat().st_mode & 0o007 == 0


# -- secrets --------------------------------------------------------------------------------------

SECRET = "hunter2-XyZ"
TEXTS = [
    f'PlainLoginModule required username="me" password="{SECRET}";',
    f"sasl.jaas.config: ... password='{SECRET}' ...",
    f"ssl.key.password={SECRET}, and so on",
    f"cannot fetch https://me:{SECRET}@h:1/token",
    f"client_secret={SECRET}&grant_type=x",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    f"-----BEGIN RSA PRIVATE KEY----- {SECRET}",
]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", TEXTS)
def test_secrets_that_got_into_a_message_do_not_get_into_the_log(tmp_path, text, form):
    with Logged(tmp_path, form) as logged:
        LOG.error("the broker says: %s", text)
        logged.bus.publish(FlowEvent("A->B", "flow.failed", text))
    said = logged.path.read_text()
    assert SECRET not in said
    assert said.count("[hidden]") == 2
    if form == "json":
        assert len(logged.records) == 2


@pytest.mark.parametrize(
    "text", ["the password is wrong", "password=${file:/etc/x:y}", "http://h:1/a?b=c", "a secret"]
)
def test_other_text_is_left_alone(text):
    assert redact_text(text) == text
