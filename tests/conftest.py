"""Real clusters for the tests. Brokers die with this process (see heliograph.lab.process)."""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from heliograph.lab import Lab

LabFactory = Callable[..., Lab]


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
