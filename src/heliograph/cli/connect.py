"""``heliograph connect``: a worker of a Kafka Connect cluster, for MM2's connectors."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import click

from heliograph.cli.daemon import daemon_options, ready
from heliograph.cli.logs import LogSettings, log_options, more_on_signal
from heliograph.cli.manager import Manager
from heliograph.cli.reporting import Reporter, reporter, status_options
from heliograph.cli.serving import serve_worker
from heliograph.cli.stopping import StopRequested, already_stopping
from heliograph.connect.worker import ConnectWorker
from heliograph.connect.worker_config import WorkerConfig
from heliograph.jvm.java import find_java


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--master", help="Spark master; this machine's cores by default.")
@status_options
@log_options
@daemon_options
def connect_command(
    file: Path,
    master: str | None,
    output: str,
    status_interval: float,
    log: LogSettings,
    daemon: bool,
) -> None:
    """Run the MirrorMaker 2 connectors of a Kafka Connect cluster.

    FILE is the connect-distributed.properties of Connect's own workers. Stop those first; then
    connectors, states and positions are taken over from their topics, and the REST API answers as
    Connect's does. Runs until SIGTERM or Ctrl-C. Several workers with one group.id share the
    connectors.

    The way back: stop this, and start Connect's workers again.
    """
    config = WorkerConfig.from_file(file)
    find_java()
    worker = ConnectWorker(config, master, log.spark)
    mirror = worker.mirror
    more_on_signal(worker.loggers)
    server = serve_worker(config, worker.herder, mirror)
    shown = reporter(
        "none" if daemon else output, mirror.snapshot, mirror.events, status_interval, log
    )
    with shown as report, Manager(mirror.pulse.stuck) as manager:
        try:
            _greet(report, config)
            server.start()
            addresses = server.addresses
            mirror.rest = server.reached_at(config.rest_advertised_host_name)
            report.say(f"REST on {', '.join(map(str, addresses))}")
            worker.start(config.served_on(addresses[0].port).worker_id)
            report.say(f"joining group {config.group_id} ...")
            manager.ready(f"worker of Connect cluster {config.group_id}")
            ready()
            threading.Event().wait()
        except StopRequested:
            report.say("stopping ...")
            manager.stopping()
        finally:
            already_stopping()
            worker.leave()
            server.close()
            worker.close()


def _greet(report: Reporter, config: WorkerConfig) -> None:
    for warning in config.warnings:
        report.say(str(warning), logging.WARNING)
    report.say(f"worker of Connect cluster {config.group_id}; starting ...")
