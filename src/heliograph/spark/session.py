"""The Spark session of a mirror: small, quiet, quick to start. Runs in the driver."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from heliograph.errors import StartError
from heliograph.jvm.archive import load_flags, writing
from heliograph.jvm.java import find_java
from heliograph.spark.archive import archive_path
from heliograph.spark.rounds import warm_up
from heliograph.spark.scratch import Scratch

#: A task that loses its worker is given to another one this often before its round is planned anew.
_TASK_FAILURES = 4
_LOCAL_SLOTS = 1024
#: Workers of rounds that have ended are kept for rounds to come.
_IDLE_WORKERS_PER_CORE = 2
_QUIET = Path(__file__).with_name("log4j2.properties")
#: The JVM only schedules: the first compiler tier and the simplest collector start fastest and
#: take the least from the cores that copy. A small nursery: it is filled before it is collected.
_JVM_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k -XX:MaxMetaspaceSize=256m -Xmn24m"
_JVM_MEMORY = "512m"
_JVM_EXIT_SECONDS = 2.0
#: Java writes it when it ends, which takes 5 s, and minutes on a machine that does a lot else.
_ARCHIVE_SECONDS = 600.0
_MASTER_CONNECT_SECONDS = 5.0
#: Spark's log is copied and emptied beyond that.
_LOG_BYTES = 20 << 20
#: Within this a master that is there has accepted us; Spark alone would take a minute.
_MASTER_SECONDS = 30.0
#: What py4j says in its first line tells nothing, and is never the same.
_PY4J = "An error occurred while calling"
_SAFE_PATH = "PYTHONSAFEPATH"


@dataclass(frozen=True, slots=True)
class SparkLog:
    """What Spark's JVM and the workers of this machine log, and where.

    Attributes:
        level: as log4j names it.
        file: None: a file in the folder of the session, which is removed with it.
    """

    level: str = "ERROR"
    file: Path | None = None


class SparkEngine:
    """A running Spark session with the log file that its JVM and workers write to.

    What is known of it was asked at the start: it can be read when the JVM is gone.

    Attributes:
        parallelism: how many tasks Spark wants to run at once.
        driver_hosts: the address of the driver as executors know it, and the one it listens on.
        encrypted: whether what Spark says on its network is authenticated and encrypted.
    """

    def __init__(
        self, session: SparkSession, log: Path, gateway: ClientServer, *, keep_log: bool
    ) -> None:
        self.session = session
        self.log = log
        self._keep_log = keep_log
        self._gateway = gateway
        # Finding the class takes several calls, asking it one.
        self._clock = gateway.jvm.java.lang.System
        # None if the JVM was there before us, as under spark-submit.
        self._jvm: subprocess.Popen[bytes] | None = gateway.proc
        self.parallelism = int(session.sparkContext.defaultParallelism)
        conf = session.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        self.driver_hosts: tuple[str, str] = host, conf.get("spark.driver.bindAddress", host)
        secure = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
        self.encrypted = conf.get("spark.authenticate", "") == "true" and any(
            conf.get(key, "") == "true" for key in secure
        )

    @property
    def pid(self) -> int | None:
        """The JVM's process, if it is ours."""
        return self._jvm.pid if self._jvm is not None else None

    @property
    def alive(self) -> bool:
        """Whether the JVM is still there."""
        return self._jvm is None or self._jvm.poll() is None

    def ping(self) -> None:
        """Have the JVM answer; waits for as long as it does not. Raises if it is gone."""
        self._clock.nanoTime()

    def set_log_level(self, level: str) -> None:
        """Of the JVM, and of executors on other machines. Waits for the JVM."""
        self.session.sparkContext.setLogLevel(level)

    def bound_log(self) -> None:
        """Keep the log small: one that has grown becomes its own predecessor.

        Those who write it have it open, so it is copied and emptied; lines in between are lost.
        """
        with suppress(OSError):
            if self.log.stat().st_size > _LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
                os.truncate(self.log, 0)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with a tag; workers in the middle of one are killed.

        A job that a thread is about to start is not among them.
        """
        with suppress(Exception):
            self.session.sparkContext.cancelJobsWithTag(tag)

    def stop(self, patience_seconds: float = _JVM_EXIT_SECONDS) -> None:
        """Cancel every job and end the JVM; workers die with it. Works on a dead JVM too."""
        with suppress(Exception):
            self.session.sparkContext.cancelAllJobs()
        with suppress(Exception):
            self.session.stop()
        with suppress(Exception):
            self._gateway.shutdown()
        if self._jvm is not None:
            if self._jvm.stdin is not None:
                self._jvm.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._jvm.wait(patience_seconds)
            self._jvm.kill()
            self._jvm.wait()
        _forget_session()
        if not self._keep_log:
            with suppress(OSError):
                self.log.unlink()


def build_archive() -> Path:
    """Start Spark once, with its first empty tasks, and keep its classes for later starts."""
    path = archive_path()
    with writing(path) as flag:
        folder = Scratch()
        engine = start(None, folder.path, jvm_flags=flag)
        engine.stop(_ARCHIVE_SECONDS)
        folder.remove()
    if not path.is_file():
        raise StartError(
            "spark.archive",
            f"Java did not write {path}",
            "mirrors start slower without it, and work all the same",
        )
    return path


def abandon_start() -> None:
    """Kill what a `start` in another thread has launched so far; it then fails."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def _forget_session() -> None:
    # pyspark forgets these only if the JVM says goodbye, which one that was killed does not.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def check_master(master: str) -> None:
    """Raises StartError if nothing listens where ``master`` should be.

    Spark itself tries for a minute and then ends with an error that does not name the cause.
    """
    if is_local(master):
        return
    addresses = re.findall(r"(\[[^\]]+\]|[^/,:\[\]]+):(\d+)", master.partition("://")[2])
    failures = []
    for host, port in addresses:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _MASTER_CONNECT_SECONDS):
                return
        except (OSError, OverflowError) as error:
            failures.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    if failures:
        raise StartError(
            "spark.unreachable",
            f"no Spark master answers at {master} ({'; '.join(failures)})",
            "check --master, and that the master runs; without --master, Spark runs here",
        )


@contextmanager
def _impatient(gateway: ClientServer, master: str | None) -> Iterator[None]:
    """Ends a JVM that cannot register with its master in time; what waits for it fails then."""
    if is_local(master) or gateway.proc is None:
        yield
        return
    timer = threading.Timer(_MASTER_SECONDS, gateway.proc.kill)
    timer.start()
    try:
        yield
    except Exception as error:
        if timer.finished.is_set():
            text = f"it accepted no application within {_MASTER_SECONDS:.0f} s"
            raise RuntimeError(text) from error
        raise
    finally:
        timer.cancel()


def first_line(error: BaseException) -> str:
    """What an error says, in one line; of Java's, what Java said."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    told = [line for line in lines if not line.startswith(_PY4J)]
    return told[0] if told else type(error).__name__


def _encryption(master: str | None) -> dict[str, str]:
    """Settings for a network that nobody else can read or join, where Spark can do that alone."""
    if master is None or master.startswith(("local[", "spark://")) or master == "local":
        # Nothing leaves one process; and a standalone cluster has one secret for all, its owner's.
        return {}
    settings = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    if master.startswith("local-cluster"):
        settings["spark.authenticate.secret"] = secrets.token_urlsafe(24)
    return settings


def is_local(master: str | None) -> bool:
    """Whether all of Spark runs on this machine."""
    return master is None or master.startswith("local")


def start(
    master: str | None, folder: Path, *, jvm_flags: str | None = None, log: SparkLog | None = None
) -> SparkEngine:
    """Start Spark; raises StartError if Java is missing, too old, or Spark does not come up.

    Without ``master`` it runs on this machine, with slots for two rounds of more flows than anybody
    has: flows may be added while it runs, and a slot is a thread that is made when it is needed.
    What Spark writes goes to ``folder``, its log to where ``log`` says. ``jvm_flags`` replaces the
    use of the class archive.
    """
    java = find_java()
    log = log if log is not None else SparkLog()
    if master is not None:
        check_master(master)
    cores = os.cpu_count() or 2
    conf = SparkConf()
    archive = " ".join(load_flags(archive_path())) if jvm_flags is None else jvm_flags
    quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
    temporary = f"-Djava.io.tmpdir={folder}"
    settings = {
        "spark.master": master or f"local[{_LOCAL_SLOTS},{_TASK_FAILURES}]",
        "spark.app.name": "heliograph",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _JVM_MEMORY,
        "spark.driver.extraJavaOptions": f"{_JVM_FLAGS} {quiet} {temporary} {archive}".strip(),
        "spark.local.dir": str(folder),
        "spark.python.daemon.module": "heliograph.spark.daemon",
        "spark.python.task.killTimeout": "200ms",
        "spark.python.factory.idleWorkerMaxPoolSize": str(_IDLE_WORKERS_PER_CORE * cores),
        "spark.sql.adaptive.enabled": "false",
        # A round is a range and a Python call: compiling Java for it costs a second at the start.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.speculation": "false",
        "spark.log.level": log.level,
        # Levels that are set while it runs reach executors elsewhere, too.
        "spark.executor.syncLogLevel.enabled": "true",
        # Workers are started with `python -m`, which would import from the working directory.
        f"spark.executorEnv.{_SAFE_PATH}": "1",
    }
    if master is None:
        # In one process there is nothing to talk to beyond loopback.
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                     "spark.default.parallelism": str(cores),
                     # A thread for every slot otherwise, all of them at the start.
                     "spark.rpc.netty.dispatcher.numThreads": "2"}  # fmt: skip
    for key, value in settings.items():
        conf.set(key, value)
    for key, value in _encryption(master).items():
        conf.setIfMissing(key, value)
    os.environ[_SAFE_PATH] = "1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("JAVA_HOME", str(java.parent.parent))
    path, descriptor = _opened(log, folder)
    gateway: ClientServer | None = None
    try:
        output = {"stdout": descriptor, "stderr": descriptor}
        gateway = launch_gateway(conf, popen_kwargs=output)
        with _impatient(gateway, master):
            session = SparkSession(SparkContext(gateway=gateway, conf=conf))
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        tail = path.read_text(errors="replace").strip().splitlines()[-3:]
        if gateway is not None and gateway.proc is not None:
            gateway.proc.kill()
            gateway.proc.wait()
        _forget_session()
        raise StartError(
            "spark.start",
            f"Spark did not start with master {settings['spark.master']}: {first_line(error)}",
            f"Spark's log ends with: {' | '.join(tail)}" if tail else "Spark's log is empty",
        ) from error
    finally:
        os.close(descriptor)
    # Its server prints a traceback when the JVM hangs up first, as it does when it is killed.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    engine = SparkEngine(session, path, gateway, keep_log=log.file is not None)
    warm_up(session, engine.parallelism)
    return engine


def _opened(log: SparkLog, folder: Path) -> tuple[Path, int]:
    """The file of the log, and a descriptor that appends, wherever somebody cuts the file."""
    path = log.file
    if path is None:
        made, name = tempfile.mkstemp(prefix="spark-", suffix=".log", dir=folder)
        os.close(made)
        path = Path(name)
    return path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
