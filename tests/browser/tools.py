"""What tests need of Debian's packages: skipped without it, unless the tools must be there."""

from __future__ import annotations

import os

import pytest

#: Set where the tools were installed (.ci/run): a test that is skipped there tells nobody.
REQUIRED = "HELIOGRAPH_REQUIRE_TOOLS"


def skip_without(missing):
    """A mark that skips if ``missing`` says what is missing; raises if that must be there."""
    if missing and os.environ.get(REQUIRED) == "1":
        raise RuntimeError(f"{REQUIRED}=1, and this test {missing}")
    return pytest.mark.skipif(bool(missing), reason=missing or "everything is there")
