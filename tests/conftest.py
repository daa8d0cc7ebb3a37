"""Real clusters for the tests. Brokers die with this process (see heliograph.lab.process)."""

from __future__ import annotations

import functools
import logging
import os
import re
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from heliograph.lab import Lab

# Here, because the chaos tests import them before the integration tests are looked at.
pytest.register_assert_rewrite("mirroring", "pairs", "failing_back")

LabFactory = Callable[..., Lab]

_STARTED = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the run cost: ``make test`` has a budget (TESTING.md)."""
    # Workers and brokers have ended and were waited for; orphans of killed mirrors do not count.
    cpu = sum(os.times()[:4]) / 60
    wall = (time.monotonic() - _STARTED) / 60
    terminalreporter.write_line(
        f"{cpu:.1f} CPU minutes of all processes, {wall:.1f} minutes of wall time"
        " (make test on 2 cores: at most 24 and 15)"
    )


#: Labs that live as long as a process, and how tests ask for them; all processes need ``lab``.
_STARTED_ONCE = {
    "guarded_lab": re.compile(r"[( ]guarded_lab[,):]"),
    "quick_lab": re.compile(r"[( ](quick|quick_lab)[,):]"),
    "behind_proxies": re.compile(r"[( ](net|behind_proxies)[,):]"),
}


class ByLab(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Files that share a lab stay in one process, and so do the tests of any other file.

    xdist's own ``loadgroup`` does not group with pytest 9.2: each test was a group of its own, and
    the labs of a file were started in every process.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


@functools.cache
def _group(file: str) -> str:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    return next((lab for lab, used in _STARTED_ONCE.items() if used.search(text)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByLab:
    """How ``-n`` distributes the tests."""
    return ByLab(config, log)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Clusters A and B of one broker each, shared by the whole session: use ``topic_name``."""
    shared = Lab(tmp_path_factory.mktemp("lab"))
    shared.start()
    yield shared
    shared.stop(grace_s=0)


def _factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFactory]:
    made: list[Lab] = []

    def make(**arguments: Any) -> Lab:
        """Starts a lab with ``Lab``'s arguments, in a folder of its own unless one is given."""
        arguments.setdefault("folder", tmp_path_factory.mktemp("lab"))
        made.append(Lab(**arguments))
        made[-1].start()
        return made[-1]

    yield make
    for lab in made:
        lab.stop(grace_s=0)


@pytest.fixture
def lab_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFactory]:
    """Makes other labs (more brokers, security, versions); they end with the test."""
    yield from _factory(tmp_path_factory)


@pytest.fixture(scope="module")
def module_lab_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFactory]:
    """As ``lab_factory``; the labs end with the module."""
    yield from _factory(tmp_path_factory)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Commands that a test calls configure the package's logger; the next test has its own."""
    logger = logging.getLogger("heliograph")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers[:] = before


@pytest.fixture
def install_package(tmp_path: Path) -> Callable[..., Path]:
    """Leaves a package as an installer does, code and dist-info; returns the folder for a path."""

    def install(name: str, entry_points: Mapping[str, Mapping[str, str]], code: str = "") -> Path:
        site = tmp_path / f"site-{name}"
        module = name.replace("-", "_")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, entries in entry_points.items()
            for line in (f"[{group}]", *(f"{key} = {to}" for key, to in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (site / f"{module}.py").write_text(code)
        return site

    return install


@pytest.fixture
def example_package(install_package: Callable[..., Path]) -> Path:
    """The example of docs/extending.md, installed."""
    folder = Path(__file__).parents[1] / "docs" / "examples" / "heliograph-teams"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    code = (folder / "heliograph_teams.py").read_text()
    return install_package(project["name"], project["entry-points"], code)


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test and no earlier run has used."""
    stem = re.sub(r"[^A-Za-z0-9-]+", "-", request.node.name).strip("-")[:60]
    return f"{stem}-{uuid.uuid4().hex[:8]}"
