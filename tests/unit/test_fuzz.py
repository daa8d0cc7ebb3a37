"""A short run of the fuzzer over every decoder; `make chaos` has the long one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="atheris has no wheel for this Python")

FUZZ = Path(__file__).parents[1] / "fuzz" / "fuzz.py"


@pytest.mark.parametrize(
    "runs", [20_000, pytest.param(3_000_000, marks=[pytest.mark.full, pytest.mark.timeout(7200)])]
)
def test_no_decoder_falls_over(runs):
    done = subprocess.run(
        [sys.executable, str(FUZZ), str(runs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    counts = dict(re.findall(r"^(.+): (\d+) executions$", done.stdout, re.MULTILINE))
    assert sum(map(int, counts.values())) == runs
    assert all(int(count) > 20 for count in counts.values()), counts
    print(done.stdout)
