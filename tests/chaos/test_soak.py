"""The soak itself runs, judges and cleans up; a minute of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.full
def test_a_short_soak_loses_and_repeats_nothing(tmp_path):
    # With the root: Spark, started by a test before this one, may have set PYTHONSAFEPATH.
    path = f"{HERE}:{HERE.parent / 'integration'}:{HERE.parents[1]}"
    faults = "killed,cut,lost,duplicated,shuffled"
    done = subprocess.run(
        [
            sys.executable, "-m", "soak", "--minutes", "1", "--rate", "3000", "--seed", "7",
            "--no-mm2", "--faults", faults, "--output", str(tmp_path / "soak.md"),
            "--folder", str(tmp_path / "lab"),
        ],
        cwd=HERE.parents[1], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(
        r"heliograph: \d+ faults of \d+ kinds survived, [\d,]+ records checked, 0 lost, 0 repeated,"
        r" 0 out of order, 0 aborted visible, memory .*\n"
        r"heliograph verify: exit code 0: IDENTICAL AND COMPLETE.*\n",
        done.stdout,
    )
    assert "| heliograph | " in (tmp_path / "soak.md").read_text()
