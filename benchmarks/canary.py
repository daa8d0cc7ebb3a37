"""Does the canary tell the truth? Its latency beside what a producer and a consumer measured.

``python -m benchmarks --mirrors heliograph-canary --only latency`` runs the latency scenario, asks
the mirror twice a second what its canary measured, and prints the canary's percentiles at the end,
under those of the records themselves.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders import CONTENDERS, HeliographProcess, Situation
from heliograph.lab.broker import HOST, free_ports

__all__ = ["CANARY"]

_EVERY_SECONDS = 0.5


class CanaryHeliograph(HeliographProcess):
    """``heliograph run FILE --listen``, and a thread that collects what the canary says."""

    def __init__(self, properties_path: Path, folder: Path) -> None:
        super().__init__(properties_path, folder)
        (self._port,) = free_ports(1)
        self._command += ["--listen", f"{HOST}:{self._port}"]
        self._ended = threading.Event()
        self._seen: dict[str, float] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        """Starts both; what the mirror says is collected as soon as it listens."""
        super().start()
        self._listener.start()

    def stop(self, grace_s: float = 5.0) -> None:
        """Says the percentiles of all probes, then stops the mirror."""
        self._ended.set()
        self._listener.join(grace_s)
        super().stop(grace_s)
        if latencies := sorted(self._seen.values()):
            p50, p90 = (1000 * latencies[int(len(latencies) * x)] for x in (0.5, 0.9))
            said = f"p50 {p50:.1f} ms, p90 {p90:.1f} ms of {len(latencies)} probes"
        else:
            said = "no probe was seen"
        print(f"  canary: {said}", file=sys.stderr)

    def _listen(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            try:
                url = f"http://{HOST}:{self._port}/heliograph/v1/flows"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    flows = json.load(answer)
            except OSError:  # not listening yet
                continue
            for canary in (flow["canary"] for flow in flows if flow["canary"]):
                if canary["latency_seconds"] is not None:
                    self._seen[canary["seen_at"]] = canary["latency_seconds"]


def _each_second(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    return {"heliograph.canary.interval.seconds": "1"}


CANARY = replace(
    CONTENDERS["heliograph"],
    key="heliograph-canary",
    label="Heliograph, canary each second",
    make=CanaryHeliograph,
    tuning=_each_second,
)
