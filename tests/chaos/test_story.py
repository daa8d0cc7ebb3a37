"""All views of a mirror tell the same story; three faults of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.full
def test_a_short_story_is_told_alike_by_all_views(tmp_path):
    # With the root: Spark, started by a test before this one, may have set PYTHONSAFEPATH.
    folders = [HERE, HERE.parent / "integration", HERE.parent / "browser", HERE.parents[1]]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            sys.executable, "-m", "story", "--minutes", "0", "--folder", str(tmp_path / "lab"),
            "--faults", "target broker stopped,flow paused,record too large",
            "--output", str(tmp_path / "story.md"),
        ],
        cwd=HERE.parents[1], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["agree", "yes", "yes", "yes"]
    assert "All views agree." in (tmp_path / "story.md").read_text()
