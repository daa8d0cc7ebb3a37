"""``heliograph lab``: real Kafka clusters on this machine, for trying things out."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from heliograph.errors import HeliographError, LabError
from heliograph.lab import DEFAULT_KAFKA_VERSION, Lab, state

__all__ = ["lab_group"]

# In the working directory, where its data is seen and is easily thrown away.
_DEFAULT_FOLDER = "heliograph-lab"
_folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULT_FOLDER,
    show_default=True,
    help="Data, logs, lab.json and mm2.properties of the lab.",
)


class _Group(click.Group):
    """Shows Heliograph's errors without a traceback, with their own exit code."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HeliographError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group("lab", cls=_Group)
def lab_group() -> None:
    """Start and stop real Kafka clusters on this machine."""


@lab_group.command()
@click.option("--clusters", default="A,B", show_default=True, help="Aliases, comma separated.")
@click.option("--brokers", default=1, show_default=True, help="Brokers per cluster, 1 to 9.")
@click.option("--kafka-version", default=DEFAULT_KAFKA_VERSION, show_default=True)
@click.option("--detach", is_flag=True, help="Return once the clusters serve; stop: lab down.")
@_folder_option
def up(clusters: str, brokers: int, kafka_version: str, detach: bool, folder: Path) -> None:
    """Start clusters and keep them running until Ctrl-C.

    Kafka is fetched once, about 45 MB. A folder that was used before goes on with its data.
    """
    folder = folder.resolve()
    if detach:
        command = ["up", "--clusters", clusters, "--brokers", str(brokers)]
        _detach([*command, "--kafka-version", kafka_version, "--folder", str(folder)], folder)
        _show(_read(folder))
        click.echo(f"Stop it with: heliograph lab down --folder {folder}")
        return
    aliases = [alias.strip() for alias in clusters.split(",")]
    lab = Lab(folder, aliases, brokers=brokers, kafka_version=kafka_version)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        lab.start()
        _show(_read(folder))
        click.echo(f"Mirror {aliases[0]} with: heliograph run {lab.config_path}")
        click.echo("Ctrl-C stops everything; in another terminal:")
        click.echo(f"  heliograph lab status --folder {folder}")
        _supervise(lab)
    except KeyboardInterrupt:
        click.echo("stopping ...", err=True)
    finally:
        lab.stop()


@lab_group.command()
@_folder_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def status(folder: Path, output: str) -> None:
    """Show what runs in a folder; exit code 1 when a broker or the lab is down."""
    lab = _read(folder.resolve())
    if output == "json":
        click.echo(json.dumps(state.describe(lab), indent=2))
    else:
        _show(lab)
    if len(lab.live_nodes) < sum(len(cluster.nodes) for cluster in lab.clusters):
        sys.exit(1)


@lab_group.command()
@_folder_option
@click.option("--delete", is_flag=True, help="Also delete the folder with all data.")
def down(folder: Path, delete: bool) -> None:
    """Stop the lab of a folder, from any terminal, also after a crash."""
    folder = folder.resolve()
    lab = _read(folder)
    count = state.stop(lab)
    click.echo(f"stopped {count} broker{'' if count == 1 else 's'}" if count else "nothing ran")
    if delete:
        shutil.rmtree(folder)
        click.echo(f"deleted {folder}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _supervise(lab: Lab) -> None:
    """Watches until interrupted; a broker that dies is reported once, and left dead."""
    reported: set[int] = set()
    while True:
        time.sleep(0.5)
        for cluster in lab.clusters.values():
            for broker in cluster.brokers:
                if not broker.running and broker.pid not in reported:
                    reported.add(broker.pid)
                    name = f"{cluster.alias}/{broker.name}"
                    click.echo(f"{name} ended with {broker.exit_code}: {broker.log_path}", err=True)


def _detach(arguments: list[str], folder: Path) -> None:
    """Runs ``up`` in a session of its own and waits until its clusters serve.

    Raises:
        LabError: ``lab.detach``, with what the process said before it ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / "supervisor.log"
    with log_path.open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  this program itself
            [sys.executable, "-m", "heliograph.cli.lab", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while child.poll() is None:
            lab = state.read(folder)
            if lab is not None and lab.supervisor_pid == child.pid and lab.status == "running":
                return
            time.sleep(0.1)
    except KeyboardInterrupt:
        child.terminate()
        raise
    said = log_path.read_text(encoding="utf-8", errors="replace").strip()
    raise LabError("lab.detach", f"The lab did not start. It said:\n{said}")


def _read(folder: Path) -> state.LabState:
    lab = state.read(folder)
    if lab is None:
        hint = "Start one with `heliograph lab up`, or name its folder with --folder."
        raise LabError("lab.none", f"There is no lab in {folder}.", hint)
    return lab


def _show(lab: state.LabState) -> None:
    table = Table("alias", "bootstrap servers", "kafka", "brokers up", "folder")
    for cluster in lab.clusters:
        alive = sum(node.alive(lab.folder) for node in cluster.nodes)
        count = f"{alive}/{len(cluster.nodes)}"
        table.add_row(
            cluster.alias, cluster.bootstrap, cluster.kafka_version, count, cluster.folder
        )
    # Piped output is for programs and logs: no wrapping at an assumed 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=240)
    console.print(table)


if __name__ == "__main__":
    lab_group()
