"""Workers of a Connect cluster, ours or the real ones, and their REST API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import psutil

from benchmarks.bench import TARGET, MeasureError
from heliograph.lab import Lab
from heliograph.lab.connect_worker import ConnectWorker

__all__ = ["PATIENCE_SECONDS", "STOP_SECONDS", "Cluster", "Worker", "id_of", "wait_for"]

#: For a machine that has a lot to do.
PATIENCE_SECONDS = 300.0
STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 100.0
#: A rebalance of the real Connect; its clients ask again.
_BUSY = 409


class _Ours:
    """``heliograph connect`` with the file of a described worker; all its processes are meant."""

    def __init__(self, described: ConnectWorker) -> None:
        self.url = described.url
        self._file = described.properties_path
        self._log = described.log_path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "heliograph", "connect", str(self._file), "-o", "plain"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log,
                                             start_new_session=True)  # fmt: skip

    def require_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise MeasureError(self._log.read_text(encoding="utf-8", errors="replace")[-3000:])

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self, grace_s: float = STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL to what is left of its processes after ``grace_s``."""
        self.resume()
        self.terminate()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self.kill()

    def _signal(self, number: int) -> None:
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _tree(self) -> list[psutil.Process]:
        """By session: Spark's workers have process groups of their own, orphans no parents."""
        found = []
        for process in psutil.process_iter():
            with suppress(OSError):  # ended meanwhile
                if self._process is not None and os.getsid(process.pid) == self._process.pid:
                    found.append(process)
        return found


Worker: TypeAlias = ConnectWorker | _Ours


class Cluster:
    """The workers of one contender, and what they say."""

    def __init__(self, contender: str, lab: Lab, folder: Path, delay_ms: int) -> None:
        self._contender, self._lab, self._folder = contender, lab, folder
        self._delay_ms = delay_ms
        self.delay_seconds = delay_ms / 1000 if contender == "connect" else 0.0
        self.all: list[Worker] = []
        #: Those that answer.
        self.live: list[Worker] = []

    def add(self) -> Worker:
        """Start one more; `await_ready` waits for it."""
        name = f"worker-{len(self.all) + 1}"
        # The lab stores positions every second, for tests. Connect's own default is a minute.
        settings = {"offset.flush.interval.ms": "60000",
                    "scheduled.rebalance.max.delay.ms": f"{self._delay_ms}"}  # fmt: skip
        described = ConnectWorker(
            self._lab[TARGET].client_properties(), self._folder, settings, heap="1g", name=name,
            jvm_flags=(),
        )  # fmt: skip
        worker: Worker = described if self._contender == "connect" else _Ours(described)
        self.all.append(worker)
        worker.start()
        return worker

    def await_ready(self, worker: Worker) -> None:
        """Until it is a member of its group."""

        def healthy() -> bool:
            worker.require_running()
            return _request("GET", f"{worker.url}/health")[0] == 200

        wait_for(healthy, "a worker")
        self.live.append(worker)

    def ask(self, path: str) -> Any:
        """What a worker that lives answers; again while it is busy."""
        answer: Any = None

        def answered() -> bool:
            nonlocal answer
            status, answer = _request("GET", self.live[-1].url + path)
            return status == 200

        wait_for(answered, path)
        return answer

    def put(self, name: str, config: Mapping[str, str], turn: int = 0) -> bool:
        """Change a config; False if the cluster is busy, as Connect is while it rebalances."""
        url = self.live[turn % len(self.live)].url
        status, answer = _request("PUT", f"{url}/connectors/{name}/config", config)
        if status not in {0, 200, 201, _BUSY, 500, 504}:
            raise MeasureError(f"PUT of {name}: {status} {answer}")
        return status in {200, 201}

    def owners(self) -> dict[str, str]:
        """{connector: worker}: where its only task runs, which is what copies."""
        found = self.ask("/connectors?expand=status")
        return {
            name: task["worker_id"] for name, said in found.items()
            for task in said.get("status", {}).get("tasks", []) if task["state"] == "RUNNING"
        }  # fmt: skip

    def close(self) -> None:
        """Stop all, those that were frozen too."""
        for worker in self.all:
            worker.resume()
            worker.terminate()
        for worker in self.all:
            worker.stop(STOP_SECONDS)


def id_of(worker: Worker) -> str:
    """Its ``worker_id`` in statuses."""
    return worker.url.removeprefix("http://")


def _request(method: str, url: str, body: object = None) -> tuple[int, Any]:
    """(status, parsed body); status 0 when nothing answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        return 0, str(error)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Raises MeasureError if it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise MeasureError(f"{what}: not within {PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
