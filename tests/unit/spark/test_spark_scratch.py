"""What a mirror has on disk goes with it, or with the next one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from heliograph.spark.scratch import Scratch


def test_folders_of_killed_mirrors_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = {
        "killed": f"heliograph-{ended.pid}-x", "alive": f"heliograph-{os.getpid()}-x",
        "other": "heliograph-tls-x", "others": "spark-1-x",
    }  # fmt: skip
    for name in names.values():
        (tmp_path / name / "deep").mkdir(parents=True)
    scratch = Scratch()
    made = scratch.path
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert {p.name for p in tmp_path.iterdir()} == {*names.values(), made.name} - {names["killed"]}
    (made / "file").write_text("x")
    scratch.remove()
    assert not made.exists()
    assert scratch.path == made
    assert not made.exists(), "a thread that is late does not make it again"


def test_f08_a_folder_that_was_removed_is_made_again_in_the_same_place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch = Scratch()
    made = scratch.path
    made.rmdir()
    assert scratch.path == made
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    (made / "file").write_text("x")
    assert scratch.path == made
    assert (made / "file").exists()


def test_a_place_that_somebody_else_has_taken_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scratch = Scratch()
    made = scratch.path
    made.rmdir()
    (tmp_path / "theirs").mkdir()
    made.symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="not ours"):
        scratch.path  # noqa: B018
    made.unlink()
    made.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: made.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="not ours"):
        scratch.path  # noqa: B018
