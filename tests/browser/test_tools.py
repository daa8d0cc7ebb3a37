"""Tests that need a tool are skipped without it, but not where it was installed."""

from __future__ import annotations

import pytest
from tools import REQUIRED, skip_without


def test_what_is_missing_is_skipped_unless_it_must_be_there(monkeypatch):
    monkeypatch.delenv(REQUIRED, raising=False)
    assert skip_without("needs a browser").mark.args == (True,)
    assert skip_without("").mark.args == (False,)
    monkeypatch.setenv(REQUIRED, "1")
    assert skip_without("").mark.args == (False,)
    with pytest.raises(RuntimeError, match="this test needs a browser"):
        skip_without("needs a browser")
