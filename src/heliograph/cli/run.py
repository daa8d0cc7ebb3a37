"""``heliograph run``: MM2's driver, drop-in."""

from __future__ import annotations

import logging
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heliograph.cli.daemon import daemon_options, ready
from heliograph.cli.logs import LogSettings, log_options, more_on_signal
from heliograph.cli.manager import Manager
from heliograph.cli.reporting import Reporter, reporter, status_options
from heliograph.cli.stopping import StopRequested, already_stopping
from heliograph.config import MirrorMakerConfig, load
from heliograph.connect.loggers import Loggers
from heliograph.errors import HeliographError
from heliograph.jvm.java import find_java

if TYPE_CHECKING:
    from heliograph.rest.server import RestServer
    from heliograph.service.mirror import Mirror

#: How often ``--watch`` looks at the file, and signals are noticed at the latest.
_WATCH_SECONDS = 1.0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--clusters", multiple=True, metavar="B ...",
              help="Only flows into these clusters: --clusters B C, as in MM2.")  # fmt: skip
@click.argument("more_clusters", nargs=-1, metavar="")
@click.option("--master", help="Spark master; this machine's cores by default.")
@click.option(
    "--once",
    is_flag=True,
    help="Copy all that is there now, then exit with 0; with 2 if some could not be"
    " copied, and which.",
)
@click.option(
    "--watch", is_flag=True, help="Take FILE over whenever it changes; SIGHUP does it once."
)
@click.option("--listen", metavar="HOST:PORT",
              help="Serve the status, events and Connect's read routes over HTTP; on 127.0.0.1"
              " without further ado, elsewhere as docs/rest.md says.")  # fmt: skip
@status_options
@log_options
@daemon_options
def run_command(
    file: Path,
    clusters: tuple[str, ...],
    more_clusters: tuple[str, ...],
    master: str | None,
    once: bool,
    watch: bool,
    listen: str | None,
    output: str,
    status_interval: float,
    log: LogSettings,
    daemon: bool,
) -> None:
    """Mirror the flows of FILE, an mm2.properties as MirrorMaker 2 reads it.

    Runs until SIGTERM or Ctrl-C. Whatever is killed, and however often, no record is lost and none
    is copied twice. Exit codes are MM2's: 2 for a wrong configuration, 3 if no flow can start. A
    flow that cannot start is tried again while the others run.

    SIGHUP, or --watch, takes a changed FILE over: new, removed and changed flows, topics, intervals
    and credentials. What did not change is not disturbed. A file with errors is refused, and the
    mirror goes on as before.

    Each flow has one mirror at a time: a second one stands by until the first is gone.
    """
    if more_clusters and not clusters:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(more_clusters)})")
    if once and watch:
        raise click.UsageError("--once and --watch exclude each other")
    hang_up = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: hang_up.set())
    source = _ConfigFile(file, (*clusters, *more_clusters))
    config = source.load()
    if any(f.enabled for f in config.flows):
        find_java()
    # Its modules take half a second to import. A file with errors is refused sooner.
    from heliograph.service.mirror import Mirror  # noqa: PLC0415

    mirror = Mirror(config, master, once=once, spark_log=log.spark)
    loggers = Loggers(mirror)
    more_on_signal(loggers)
    server = _server(config, listen, mirror, loggers)
    shown = reporter(
        "none" if daemon else output, mirror.snapshot, mirror.events, status_interval, log
    )
    with shown as report, Manager(mirror.pulse.stuck) as manager:
        try:
            _greet(report, config)
            if server is not None:
                server.start()
                mirror.rest = server.reached_at()
                report.say(f"REST on {', '.join(map(str, server.addresses))}")
            started = time.monotonic()
            mirror.start()
            manager.ready(_flows(config))
            ready()
            if once:
                mirror.run_once()
                took = time.monotonic() - started
                report.say(f"all that was there at the start is copied, in {took:.1f} s")
            else:
                _run(mirror, source, report, hang_up, watch=watch)
        except StopRequested:
            report.say("stopping ...")
            manager.stopping()
        finally:
            already_stopping()
            if server is not None:
                server.close()
            mirror.close()


def _server(
    config: MirrorMakerConfig, listen: str | None, mirror: Mirror, loggers: Loggers
) -> RestServer | None:
    if listen is None:
        return None
    # Its modules take a second to import.
    from heliograph.cli.serving import serve_flows  # noqa: PLC0415

    return serve_flows(config, listen, mirror, loggers)


def _greet(report: Reporter, config: MirrorMakerConfig) -> None:
    for warning in config.warnings:
        report.say(str(warning), logging.WARNING)
    report.say(f"{_flows(config)}; starting ...")


def _flows(config: MirrorMakerConfig) -> str:
    flows = [str(f.flow) for f in config.flows if f.enabled]
    return f"mirroring {', '.join(flows) or 'nothing, only heartbeats'}"


class _ConfigFile:
    """The file and what it last held."""

    def __init__(self, path: Path, clusters: tuple[str, ...]) -> None:
        self._path = path
        self._clusters = clusters
        self._seen = self._stamp()

    def load(self) -> MirrorMakerConfig:
        """Read it; raises ConfigError."""
        self._seen = self._stamp()
        return load(self._path, clusters=self._clusters)

    def changed(self) -> bool:
        """Whether it was written since it was last read; False while it is away."""
        stamp = self._stamp()
        return stamp is not None and stamp != self._seen

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _run(
    mirror: Mirror, source: _ConfigFile, report: Reporter, hang_up: threading.Event, *, watch: bool
) -> None:
    """Wait for signals, and take over the file when it is asked for or has changed."""
    while True:
        hung_up = hang_up.wait(_WATCH_SECONDS if watch else None)
        if hung_up or (watch and source.changed()):
            hang_up.clear()
            _reload(mirror, source, report)


def _reload(mirror: Mirror, source: _ConfigFile, report: Reporter) -> None:
    try:
        config = source.load()
        if any(f.enabled for f in config.flows):
            find_java()
    except HeliographError as error:
        text = f"the changed file is refused, the mirror goes on as before:\n{error}"
        report.say(text, logging.ERROR)
        return
    for warning in config.warnings:
        report.say(str(warning), logging.WARNING)
    changes = mirror.reconfigure(config)
    for line in changes or ["nothing has changed"]:
        report.say(f"configuration: {line}")
