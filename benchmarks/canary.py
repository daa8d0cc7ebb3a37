"""Does the canary tell the truth? Its latency beside what a producer and a consumer measured.

``python -m benchmarks --mirrors heliograph-canary --only latency`` runs the latency scenario, asks
the mirror twice a second what its canary measured, and prints the canary's percentiles above those
of the records themselves: of the same 30 seconds, without the warm-up.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.contenders import CONTENDERS, HeliographProcess, Situation
from benchmarks.latency import Duration
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
        #: By when a probe arrived: when that was heard of, and the latency.
        self._seen: dict[str, tuple[float, float]] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        """Starts both; what the mirror says is collected as soon as it listens."""
        super().start()
        self._listener.start()

    def stop(self, grace_s: float = 5.0) -> None:
        """Says the percentiles of the probes while it was measured, then stops the mirror."""
        since = time.monotonic() - Duration().measure_s
        self._ended.set()
        self._listener.join(grace_s)
        super().stop(grace_s)
        if latencies := sorted(1000 * took for heard, took in self._seen.values() if heard > since):
            least, p50, p90 = (latencies[int(len(latencies) * x)] for x in (0.0, 0.5, 0.9))
            said = f"least {least:.1f} ms, p50 {p50:.1f} ms, p90 {p90:.1f} ms"
            said += f" of {len(latencies)} probes"
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
                    taken = time.monotonic(), canary["latency_seconds"]
                    self._seen.setdefault(canary["seen_at"], taken)


def _each_second(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    return {"heliograph.canary.interval.seconds": "1"}


CANARY = replace(
    CONTENDERS["heliograph"],
    key="heliograph-canary",
    label="Heliograph, canary each second",
    make=CanaryHeliograph,
    tuning=_each_second,
)
