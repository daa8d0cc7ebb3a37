"""How fast ``heliograph verify`` compares what a mirror has copied, while that mirror stands by."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.bench import MeasureError

__all__ = ["measure"]

_SECONDS = 600


def measure(properties: Path, topic: str) -> float:
    """Compares a topic; returns MB of the source per second, Spark's start left out.

    Raises:
        MeasureError: source and target are not identical, or could not be compared.
    """
    # The console script that pip put beside this interpreter: what a user would call.
    program = Path(sys.executable).with_name("heliograph")
    command = [
        str(program),
        "verify",
        str(properties),
        "--topic",
        topic,
        "--complete",
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if not done.stdout:
        raise MeasureError(f"heliograph verify ended with {done.returncode}: {done.stderr[-500:]}")
    [flow] = json.loads(done.stdout)["flows"]
    if done.returncode:
        raise MeasureError(f"heliograph verify: {flow['verdict']}")
    return float(flow["totals"]["bytes"] / max(flow["seconds"], 1e-3) / 1e6)
