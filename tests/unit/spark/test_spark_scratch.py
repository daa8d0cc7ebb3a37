"""What a mirror has on disk goes with it, or with the next one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

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
