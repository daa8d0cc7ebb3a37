"""Real Kafka from Maven's central repository, fetched once by the Ivy that ships inside pyspark."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from heliograph.errors import LabError
from heliograph.jvm.java import find_java

__all__ = ["Artifact", "cache_folder", "classpath"]

# slf4j 1.7 arrives with Kafka, without a backend. Spark's own set (slf4j 2 over log4j 2, and the
# log4j 1 bridge that Kafka 3.x calls directly) is on this machine already and serves every version.
_LOGGING_JARS = ("slf4j-api-", "log4j-slf4j2-impl-", "log4j-api-", "log4j-core-", "log4j-1.2-api-")
# What matters in Ivy's output after a failure: ":: group#module;version: not found", and why.
_IVY_REASON = re.compile(
    r"^\s*:: \S+#\S+: |error|exception|refused|timed out|denied", re.IGNORECASE
)
# Ivy calls any failed request "not found", also one that would succeed a second later, and keeps
# what it has found: so asking again is cheap, and is what a person would do.
# Ivy itself waits for ever for a repository that stopped sending.
_NETWORK_TIMEOUTS = (
    "-Dsun.net.client.defaultConnectTimeout=20000",
    "-Dsun.net.client.defaultReadTimeout=60000",
)
_ATTEMPTS = 3
_DIGESTS = Path(__file__).with_name("digests.txt")


class Artifact(Enum):
    """What the lab runs; the value is the Maven artifact of group ``org.apache.kafka``."""

    KAFKA = "kafka_2.13"
    CONNECT_MIRROR = "connect-mirror"
    KAFKA_TOOLS = "kafka-tools"


def cache_folder() -> Path:
    """Where jars are kept: HELIOGRAPH_CACHE, else XDG_CACHE_HOME/heliograph, else ~/.cache."""
    own = os.environ.get("HELIOGRAPH_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "heliograph"


def classpath(version: str, *artifacts: Artifact) -> str:
    """A Java class path with a logging backend first; what is not cached yet is fetched.

    Safe to call from several processes at once: one fetches, the others wait for it.

    Raises:
        LabError: ``lab.no-artifact`` with Ivy's own last lines, ``lab.no-ivy``.
        StartError: there is no Java to run Ivy with.
    """
    if not re.fullmatch(r"\d+(\.\d+)+(-[A-Za-z0-9]+)*", version):
        message = f"{version!r} is not a Kafka version."
        raise LabError("lab.bad-version", message, "Give one such as 4.3.1.")
    jars = {jar.name: jar for jar in _logging_jars()}
    for artifact in artifacts:
        for jar in sorted(_folder_of(artifact, version).glob("*.jar")):
            jars.setdefault(jar.name, jar)
    return os.pathsep.join(str(jar) for jar in jars.values())


def _spark_jars() -> Path:
    spec = find_spec("pyspark")  # locates the package without importing it
    if spec is None or spec.origin is None:
        message = "pyspark is not installed, and with it Ivy, which fetches Kafka."
        raise LabError("lab.no-ivy", message, "Install Heliograph with its dependencies.")
    return Path(spec.origin).parent / "jars"


def _logging_jars() -> list[Path]:
    folder = _spark_jars()
    return [jar for name in _LOGGING_JARS for jar in sorted(folder.glob(f"{name}*.jar"))]


def _folder_of(artifact: Artifact, version: str) -> Path:
    folder = cache_folder() / "jars" / f"{artifact.value}-{version}"
    if not folder.is_dir():
        with _only_one_fetches():
            if not folder.is_dir():  # another process may have fetched it meanwhile
                _fetch(artifact, version, folder)
    return folder


@contextmanager
def _only_one_fetches() -> Iterator[None]:
    lock = cache_folder() / "fetch.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(artifact: Artifact, version: str, folder: Path) -> None:
    """Retrieves beside ``folder`` and renames at the end: ``folder`` is complete or absent."""
    ivy = next(iter(sorted(_spark_jars().glob("ivy-*.jar"))), None)
    if ivy is None:
        raise LabError("lab.no-ivy", f"There is no ivy-*.jar in {_spark_jars()}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
    pattern = f"{work}/[artifact]-[revision](-[classifier]).[ext]"
    cache = cache_folder() / "ivy"
    command = [
        str(find_java()),
        *_NETWORK_TIMEOUTS,
        "-jar",
        str(ivy),
        "-cache",
        str(cache),
        "-confs",
        "default",
    ]
    command += ["-dependency", "org.apache.kafka", artifact.value, version, "-retrieve", pattern]
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            code, lines = _run_ivy(command, f"{artifact.value} {version}")
            if code == 0 and any(work.glob("*.jar")):
                break
            if attempt == _ATTEMPTS:
                raise _failure(artifact, version, lines)
            time.sleep(attempt)
        _check_digests(work)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_digests(folder: Path) -> None:
    """Compare jars with the digests that are known of their names; raises LabError.

    What Ivy fetches is executed, and Maven's own digests come from where the jars come from.
    """
    known = dict(line.split()[::-1] for line in _DIGESTS.read_text().splitlines())
    unknown = 0
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        unknown += jar.name not in known
        if known.get(jar.name, found) != found:
            raise LabError(
                "lab.digest",
                f"{jar.name} is not the file that it was when its digest was taken.",
                "Somebody may have changed it on its way: check the repository that Ivy uses.",
            )
    if unknown:
        text = f"{unknown} of these jars have no digest in {_DIGESTS.name}: not compared"
        Console(stderr=True).print(text, highlight=False)


def _failure(artifact: Artifact, version: str, lines: list[str]) -> LabError:
    reasons = [line.strip() for line in lines if _IVY_REASON.search(line)] or lines
    said = "\n".join(f"    {line}" for line in reasons[-12:])
    if any(f"#{artifact.value};{version}: not found" in line for line in reasons):
        hint = f"check that Apache Kafka {version} was released; 4.3.1 and 3.9.1 are known to work"
    else:
        hint = "check that this machine reaches Maven's central repository, and try again"
    message = f"Ivy could not fetch {artifact.value} {version} from Maven's repository:\n{said}"
    return LabError("lab.no-artifact", message, hint)


def _run_ivy(command: list[str], what: str) -> tuple[int, list[str]]:
    """Runs Ivy, showing each file and the megabytes so far; returns exit code and output."""
    lines: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    live = sys.stderr.isatty()
    if not live:
        console.print(f"fetching {what} from Maven's repository (once) ...", highlight=False)
    megabytes = 0.0
    with (
        Progress(*columns, console=console, transient=True, disable=not live) as progress,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as ivy,
    ):
        task = progress.add_task(f"fetching {what}: resolving", total=None)
        assert ivy.stdout is not None  # noqa: S101  asked for with PIPE above
        for line in ivy.stdout:
            lines.append(line.rstrip())
            started = re.search(r"downloading (\S+)", line)
            if started:
                name = started[1].rpartition("/")[2]
                text = f"fetching {what}: {megabytes:.1f} MB, {name}"
                progress.update(task, description=text)
            # After a row of dots, one per block: "..... (4615kB)".
            if size := re.match(r"\s*\.+ \((\d+)kB\)", line):
                megabytes += int(size[1]) / 1000
    if ivy.returncode == 0:
        console.print(f"fetched {what}, {megabytes:.0f} MB new", highlight=False)
    return ivy.returncode, lines
