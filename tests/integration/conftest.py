"""The flow that the data path's tests copy with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("mirroring")

from mirroring import Mirroring  # noqa: E402

from heliograph.lab import Lab


@pytest.fixture
def mirroring(lab: Lab) -> Iterator[Mirroring]:
    """A new flow A->B of the shared lab, with a signature and a ledger of its own."""
    made = Mirroring.of(lab)
    yield made
    made.close()
