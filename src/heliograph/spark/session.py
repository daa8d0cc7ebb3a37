"""The Spark session of a mirror: small, quiet, quick to start. Runs in the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
from py4j.clientserver import ClientServer
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from heliograph.errors import StartError
from heliograph.lab.java import find_java
from heliograph.spark.archive import archive_path, load_flag, write_flag
from heliograph.spark.rounds import warm_up

#: A task that loses its worker is given to another one this often before its round is planned anew.
_TASK_FAILURES = 4
_QUIET = Path(__file__).with_name("log4j2.properties")
#: The JVM only schedules: the first compiler tier and the simplest collector start fastest and
#: take the least from the cores that copy.
_JVM_FLAGS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k -XX:MaxMetaspaceSize=256m"
)
_JVM_MEMORY = "512m"
_JVM_EXIT_SECONDS = 2.0
_LOG_PREFIX = "heliograph-spark-"
_ARCHIVE_SECONDS = 120.0


class SparkEngine:
    """A running Spark session with the log file that its JVM and workers write to."""

    def __init__(self, session: SparkSession, log: Path, gateway: ClientServer) -> None:
        self.session = session
        self.log = log
        self._gateway = gateway
        # None if the JVM was there before us, as under spark-submit.
        self._jvm: subprocess.Popen[bytes] | None = gateway.proc

    @property
    def parallelism(self) -> int:
        """How many tasks Spark wants to run at once."""
        return int(self.session.sparkContext.defaultParallelism)

    @property
    def driver_hosts(self) -> tuple[str, str]:
        """The address of the driver as executors know it, and the one that it listens on."""
        conf = self.session.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1")
        return host, conf.get("spark.driver.bindAddress", host)

    @property
    def alive(self) -> bool:
        """Whether the JVM is still there."""
        return self._jvm is None or self._jvm.poll() is None

    def cancel(self) -> None:
        """Cancel every round; workers in the middle of one are killed."""
        with suppress(Exception):
            self.session.sparkContext.cancelAllJobs()

    def stop(self, patience_seconds: float = _JVM_EXIT_SECONDS) -> None:
        """Cancel every round and end the JVM; workers die with it. Works on a dead JVM too."""
        self.cancel()
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
        # pyspark forgets these only if the JVM says goodbye, which one that was killed does not.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        with suppress(OSError):
            self.log.unlink()


def _forget_old_logs() -> None:
    """Delete the logs of mirrors that were killed and could not do it themselves."""
    for log in Path(tempfile.gettempdir()).glob(f"{_LOG_PREFIX}*.log"):
        owner = log.name.removeprefix(_LOG_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with suppress(OSError):
                log.unlink()


def build_archive() -> Path:
    """Start Spark once, with its first empty tasks, and keep its classes for later starts."""
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    engine = start(None, 1, jvm_flags=write_flag(path))
    engine.stop(_ARCHIVE_SECONDS)
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


def start(master: str | None, flows: int, *, jvm_flags: str | None = None) -> SparkEngine:
    """Start Spark; raises StartError if Java is missing, too old, or Spark does not come up.

    Without ``master`` it runs in this machine with slots for two rounds of every flow.
    ``jvm_flags`` replaces the use of the class archive.
    """
    java = find_java()
    cores = os.cpu_count() or 2
    slots = max(8, 4 * cores * max(flows, 1))
    conf = SparkConf()
    archive = load_flag() if jvm_flags is None else jvm_flags
    quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
    settings = {
        "spark.master": master or f"local[{slots},{_TASK_FAILURES}]",
        "spark.app.name": "heliograph",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _JVM_MEMORY,
        "spark.driver.extraJavaOptions": f"{_JVM_FLAGS} {quiet} {archive}".strip(),
        "spark.python.daemon.module": "heliograph.spark.daemon",
        "spark.python.task.killTimeout": "200ms",
        # The round that ends leaves as many workers as the next but one will want.
        "spark.python.factory.idleWorkerMaxPoolSize": str(cores * max(flows, 1)),
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
    }
    if master is None:
        # In one process there is nothing to talk to beyond loopback.
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                     "spark.default.parallelism": str(cores)}  # fmt: skip
    for key, value in settings.items():
        conf.set(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("JAVA_HOME", str(java.parent.parent))
    _forget_old_logs()
    descriptor, name = tempfile.mkstemp(prefix=f"{_LOG_PREFIX}{os.getpid()}-", suffix=".log")
    log = Path(name)
    try:
        output = {"stdout": descriptor, "stderr": descriptor}
        gateway = launch_gateway(conf, popen_kwargs=output)
        session = SparkSession(SparkContext(gateway=gateway, conf=conf))
    except (PySparkException, OSError) as error:
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise StartError(
            "spark.start",
            f"Spark did not start with master {settings['spark.master']}: {error}",
            "its last words: " + (" | ".join(tail) or "none") + f" (log: {log})",
        ) from error
    finally:
        os.close(descriptor)
    # Its server prints a traceback when the JVM hangs up first, as it does when it is killed.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None
    engine = SparkEngine(session, log, gateway)
    warm_up(session, engine.parallelism)
    return engine
