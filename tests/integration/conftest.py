"""The flow that the data path's tests copy with."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from heliograph.copy import links
from heliograph.lab import Lab


@pytest.fixture(scope="session", autouse=True)
def close_links() -> Iterator[None]:
    """Leases leave their connections to the process, which here goes on to report leaks."""
    yield
    links.close()


@pytest.fixture
def mirroring(lab: Lab) -> Iterator[Any]:
    """A new flow A->B of the shared lab, with a signature and a ledger of its own."""
    # Only now: its assertions explain themselves.
    made = import_module("mirroring").Mirroring.of(lab)
    yield made
    made.close()


@pytest.fixture(scope="session")
def quick_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Both clean compacted topics at once; B forgets producers of old records at once."""
    cleaner = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "4194304"}
    settings = {
        "A": cleaner,
        "B": cleaner
        | {
            "producer.id.expiration.ms": "500",
            "producer.id.expiration.check.interval.ms": "100",
        },
    }
    shared = Lab(tmp_path_factory.mktemp("quick"), settings=settings)
    shared.start()
    yield shared
    shared.stop(grace_s=0)


@pytest.fixture
def quick(quick_lab: Lab) -> Iterator[Any]:
    """As ``mirroring``, in the quick lab."""
    made = import_module("mirroring").Mirroring.of(quick_lab)
    yield made
    made.close()


@pytest.fixture(scope="session")
def guarded_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A and B have authorizers: alice may do everything, bob, carol and dave nothing."""
    folder = tmp_path_factory.mktemp("guarded")
    shared = Lab(folder, security="SASL_PLAINTEXT", authorizer=True)
    shared.start()
    yield shared
    shared.stop(grace_s=0)


@pytest.fixture
def pair(lab: Lab, tmp_path: Path) -> Iterator[Any]:
    """Makes flows A->B of the shared lab from keys (see ``Pair``)."""
    made: list[Any] = []

    def make(**keys: str) -> Any:
        made.append(import_module("pairs").Pair(lab, tmp_path, **keys))
        return made[-1]

    yield make
    for one in made:
        one.close()
