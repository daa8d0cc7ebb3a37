"""Is that process gone? Only where that is certain."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.claims.process_identity import is_gone, this_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells boots apart")


@pytest.fixture
def here():
    return this_process()


def test_this_process_is_not_gone(here):
    assert here.pid == os.getpid()
    assert here.boot
    assert here.namespace
    assert here.started > 0
    assert not is_gone(here, here)
    assert this_process() == here


def test_a_process_that_ended_is_gone(here):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_gone(here._replace(pid=child.pid), here)


def test_a_process_that_nobody_has_reaped_is_gone(here):
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout.read() == b""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    started = int(stat.rpartition(")")[2].split()[19])
    assert is_gone(here._replace(pid=child.pid, started=started), here)
    child.stdout.close()
    child.wait()


def test_another_process_with_its_number_is_not_it(here):
    assert is_gone(here._replace(started=here.started - 1), here)


@pytest.mark.parametrize(
    "elsewhere", [{"host": "db7"}, {"boot": "another"}, {"namespace": "pid:[1]"}]
)
def test_elsewhere_nothing_is_certain(here, elsewhere):
    assert not is_gone(here._replace(started=1, **elsewhere), here)


@pytest.mark.parametrize("unknown", ["boot", "namespace"])
def test_a_host_that_does_not_say_proves_nothing(here, unknown):
    blind = here._replace(**{unknown: ""})
    assert not is_gone(blind._replace(started=1), blind)
