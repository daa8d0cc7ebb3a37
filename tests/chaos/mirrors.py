"""Mirrors under supervision: started, killed, frozen and started again, all in the same way."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
from mirror_process import MirrorProcess

from heliograph.lab import MirrorMaker2
from heliograph.lab.broker import free_ports

SOURCE, TARGET = "A", "B"
_INTERNAL = ("", "heartbeats.topic.", "offset-syncs.topic.", "checkpoints.topic.")
_STORAGE = ("config.storage.", "offset.storage.", "status.storage.")


def processes(root):
    """The live processes of the session that ``root`` led, orphans included."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == root and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def memory_mb(root):
    """Proportional set size of the tree: pages that forks share count once."""
    total = 0
    for process in processes(root):
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


class Supervised:
    """What a supervisor does for a mirror. ``deaths`` counts those that nobody asked for."""

    def __init__(self, name, alias, folder, lab, topics, replicas=3):
        self.name, self.alias, self.folder = name, alias, folder
        self.prefix = f"{alias}."
        self.deaths = 0
        self.wanted = False
        self._roots = []
        self.config = folder / f"{name}.properties"
        settings = {
            "clusters": f"{alias}, {TARGET}",
            f"{alias}.bootstrap.servers": lab[SOURCE].bootstrap,
            f"{TARGET}.bootstrap.servers": lab[TARGET].bootstrap,
            f"{alias}->{TARGET}.enabled": "true",
            f"{alias}->{TARGET}.topics": topics,
            **{f"{prefix}replication.factor": str(replicas) for prefix in _INTERNAL},
            **self.settings(replicas),
        }
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        self.config.write_text(text, encoding="utf-8")

    def settings(self, replicas):
        raise NotImplementedError

    def start(self):
        self.wanted = True
        self._roots.append(self._launch())

    @property
    def pid(self):
        return self._roots[-1]

    def supervise(self):
        """Start it again if it has ended by itself; returns whether it had."""
        if not self.wanted or self._running():
            return False
        self.deaths += 1
        self.start()
        return True

    def kill(self):
        """kill -9 of the process that leads the mirror; what else there is must notice."""
        self.wanted = False
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def freeze(self):
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._signal(signal.SIGCONT)

    def end(self, patience=20):
        """SIGTERM, and SIGKILL to what is left then."""
        self.wanted = False
        with suppress(ProcessLookupError, IndexError):
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while self._roots and time.monotonic() < deadline and processes(self.pid):
            self._reap(0.1)
        self.destroy()

    def destroy(self):
        """Leave nothing behind, of any start."""
        self.wanted = False
        for root in self._roots:
            for process in processes(root):
                with suppress(psutil.Error):
                    process.kill()
        self._reap()

    def memory_mb(self):
        return memory_mb(self.pid) if self._roots else 0.0

    def _signal(self, number):
        for process in processes(self.pid):
            with suppress(psutil.Error):
                process.send_signal(number)

    def _launch(self):
        raise NotImplementedError

    def _running(self):
        raise NotImplementedError

    def _reap(self, patience=5):
        raise NotImplementedError


#: Events that name offsets of a target partition where records are there a second time.
_NAMING = ("target.repeated", "target.hole", "target.truncated")
DEFAULT_LEASE_SECONDS = 30


class Heliograph(Supervised):
    """``heliograph run``, with its defaults but for the length of leases."""

    def __init__(self, folder, lab, topics, *, lease_seconds=DEFAULT_LEASE_SECONDS, **options):
        self.process = None
        self.lease_seconds = lease_seconds
        super().__init__("heliograph", SOURCE, folder, lab, topics, **options)
        self.log_path = folder / "heliograph.log"

    def settings(self, replicas):
        return {"heliograph.lease.seconds": self.lease_seconds}

    def _launch(self):
        self.process = MirrorProcess(self.config, self.log_path, "-o", "json")
        return self.process.pid

    def events(self):
        """What it told of partitions, in all of its lives."""
        found = []
        with self.log_path.open("rb") as log:
            for line in log:
                if b'"event":"partition"' in line:
                    with suppress(ValueError):  # killed in the middle of a line
                        found.append(json.loads(line))
        return found

    def named(self):
        """{(topic, partition): [(first, until)]} of target offsets that it named as repeated."""
        ranges = {}
        for event in self.events():
            if event["code"] in _NAMING:
                place = event["topic"], event["partition"]
                ranges.setdefault(place, []).append((event["first"], event["until"]))
        return ranges

    def verify(self, topics):
        """(exit code, report) of ``heliograph verify --complete``."""
        done = subprocess.run(
            [sys.executable, "-m", "heliograph", "verify", str(self.config), "--complete",
             "--topic", topics, "-o", "json"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        try:
            return done.returncode, json.loads(done.stdout)["flows"][0]
        except (ValueError, LookupError) as error:
            raise RuntimeError(f"heliograph verify said: {done.stdout}{done.stderr}") from error

    def _running(self):
        return self.process.running

    def _reap(self, patience=5):
        with suppress(subprocess.TimeoutExpired):
            if self.process is not None:
                self.process.wait(patience)

    def kill_part(self, victim, dice):
        """kill -9 of ``worker`` or ``jvm``; raises LookupError when there is none at the moment."""
        try:
            if victim == "worker":
                found = self.process.lease_holders()
                dice.choice(found).kill()
            else:
                self.process.tree()[1].kill()
        except (IndexError, AttributeError, psutil.Error) as error:
            raise LookupError(victim) from error


class Mm2(Supervised):
    """The real MM2 in a process of its own; only what must be set is set.

    It reads committed data, as Heliograph does by default and as exactly-once demands. It does not
    write heartbeats to the source, which would be a second worker for nothing.
    """

    def __init__(self, folder, lab, topics, *, exactly_once, **options):
        self._exactly_once = exactly_once
        name, alias = ("mm2-eos", "Eos") if exactly_once else ("mm2-alo", "Alo")
        super().__init__(name, alias, folder, lab, topics, **options)
        self._process = MirrorMaker2(self.config, folder, heap="1g", name=name)
        self.log_path = self._process.log_path

    def settings(self, replicas):
        common = {
            **{f"{prefix}replication.factor": str(replicas) for prefix in _STORAGE},
            f"{self.alias}.consumer.isolation.level": "read_committed",
            f"{TARGET}->{self.alias}.emit.heartbeats.enabled": "false",
            "refresh.topics.interval.seconds": "10",
        }
        if not self._exactly_once:
            return common
        [port] = free_ports(1)
        return common | {
            f"{TARGET}.exactly.once.source.support": "enabled",
            # Zombies are fenced through it (KIP-710).
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{port}",
        }

    def _launch(self):
        self._process.start()
        return self._process.pid

    def _running(self):
        return self._process.running

    def _reap(self, patience=5):
        self._process.join(patience)
