"""Jars that are executed are the ones that were looked at."""

from __future__ import annotations

import pytest

from heliograph.errors import LabError
from heliograph.jvm import artifacts


def test_a_jar_that_was_changed_is_refused(tmp_path, monkeypatch, capsys):
    digests = tmp_path / "digests.txt"
    digests.write_text(f"{'0' * 64} known.jar\n")
    monkeypatch.setattr(artifacts, "_DIGESTS", digests)
    (tmp_path / "other.jar").write_bytes(b"x")
    artifacts._check_digests(tmp_path)
    assert "1 of these jars have no digest" in capsys.readouterr().err
    (tmp_path / "known.jar").write_bytes(b"x")
    with pytest.raises(LabError, match=r"known\.jar is not the file that it was"):
        artifacts._check_digests(tmp_path)
