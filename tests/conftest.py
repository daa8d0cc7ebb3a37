"""Real clusters for the tests. Brokers die with this process (see heliograph.lab.process)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
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
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test and no earlier run has used."""
    stem = re.sub(r"[^A-Za-z0-9-]+", "-", request.node.name).strip("-")[:60]
    return f"{stem}-{uuid.uuid4().hex[:8]}"
