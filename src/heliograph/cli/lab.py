"""``heliograph lab``: real Kafka clusters on this machine, for trying things out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from heliograph.cli.flows import output_option
from heliograph.errors import LabError
from heliograph.lab import DEFAULT_KAFKA_VERSION, Lab, state
from heliograph.lab.broker import stop_file
from heliograph.lab.lab import tool_command

__all__ = ["lab_group"]

# In the working directory, where its data is seen and is easily thrown away.
_DEFAULT_FOLDER = "heliograph-lab"
_DONE = {"stop": "stopped", "kill": "killed", "start": "started", "restart": "restarted"}
_BROKER_SECONDS = 180.0
_folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULT_FOLDER,
    show_default=True,
    help="Data, logs, lab.json and mm2.properties of the lab.",
)


@click.group("lab")
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
    aliases = [alias.strip() for alias in clusters.split(",")]
    if detach:
        command = ["up", "--clusters", clusters, "--brokers", str(brokers)]
        _detach([*command, "--kafka-version", kafka_version, "--folder", str(folder)], folder)
        _show(_read(folder))
        click.echo("It runs until `heliograph lab down`. To try it, one after the other:")
        _next_steps(folder, aliases)
        return
    lab = Lab(folder, aliases, brokers=brokers, kafka_version=kafka_version)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        lab.start()
        for cluster in lab.clusters.values():
            for broker in cluster.brokers:
                stop_file(cluster.folder, broker.node_id).unlink(missing_ok=True)
        _show(_read(folder))
        click.echo("Ctrl-C stops everything. In another terminal, one after the other:")
        _next_steps(folder, aliases)
        _supervise(lab)
    except KeyboardInterrupt:
        click.echo("stopping ...", err=True)
    finally:
        lab.stop()


@lab_group.command()
@_folder_option
@output_option("table", "json")
def status(folder: Path, output: str) -> None:
    """Show what runs in a folder.

    Exits with 1 when a broker or the lab is down.
    """
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
    """Stop the lab of a folder.

    From any terminal, also after a crash.
    """
    folder = folder.resolve()
    lab = _read(folder)
    count = state.stop(lab)
    click.echo(f"stopped {count} broker{'' if count == 1 else 's'}" if count else "nothing ran")
    if delete:
        shutil.rmtree(folder)
        click.echo(f"deleted {folder}")


_TOOLS = {
    "topics": ("TopicCommand", "Create, list, describe or delete topics: Kafka's own tool.",
               "--create --topic orders --partitions 3"),
    "produce": ("ConsoleProducer", "Write each line of the input as a record: Kafka's own tool.",
                "--topic orders"),
    "consume": ("consumer.ConsoleConsumer", "Print records until Ctrl-C: Kafka's own tool.",
                "--topic orders --group me --from-beginning"),
    "groups": ("consumer.group.ConsumerGroupCommand",
               "List, describe or reset consumer groups: Kafka's own tool.",
               "--describe --group me"),
}  # fmt: skip


def _add_tool(name: str, main: str, doc: str, example: str) -> None:
    @lab_group.command(
        name,
        help=f"{doc}\n\nALIAS is a cluster of the lab, ARGS are the tool's, for example:"
        f"\n\n\b\n  heliograph lab {name} A {example}",
        context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    )
    @_folder_option
    @click.argument("alias")
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    def tool(folder: Path, alias: str, args: tuple[str, ...]) -> None:
        cluster = _cluster(_read(folder.resolve()), alias)
        server = ("--bootstrap-server", cluster.bootstrap)
        command = tool_command(
            cluster.kafka_version, Path(cluster.folder), f"org.apache.kafka.tools.{main}",
            (*server, *args),
        )  # fmt: skip
        os.execv(command[0], command)  # noqa: S606 - the tool has this terminal, and its exit code


for _name, _facts in _TOOLS.items():
    _add_tool(_name, *_facts)


@lab_group.command()
@click.argument("action", type=click.Choice(list(_DONE)), metavar="ACTION")
@click.argument("alias")
@click.argument("broker_id", type=click.IntRange(1), metavar="BROKER", default=1)
@_folder_option
def broker(action: str, alias: str, broker_id: int, folder: Path) -> None:
    """Stop or start one broker.

    ACTION is stop, kill (-9), start or restart; ALIAS is its cluster, BROKER 1, 2, ... Returns when
    it is done: the broker is gone, or serves.
    """
    lab = _read(folder.resolve())
    cluster = _cluster(lab, alias)
    if broker_id > len(cluster.nodes):
        hint = f"It has {len(cluster.nodes)}."
        raise LabError("lab.no-broker", f"Cluster {alias} has no broker {broker_id}.", hint)
    if not lab.supervisor_alive:
        raise LabError("lab.none", "The lab does not run.", "Start it with `heliograph lab up`.")
    wish = stop_file(Path(cluster.folder), broker_id)
    if action in {"stop", "kill", "restart"}:
        node = _node(lab.folder, alias, broker_id)
        wish.touch()
        if action == "kill" and node.alive(lab.folder):
            os.kill(node.pid, signal.SIGKILL)
        _await(lab, alias, broker_id, alive=False)
    if action in {"start", "restart"}:
        wish.unlink(missing_ok=True)
        _await(lab, alias, broker_id, alive=True)
    click.echo(f"{alias}, broker {broker_id}: {_DONE[action]}")


def _await(lab: state.LabState, alias: str, broker_id: int, *, alive: bool) -> None:
    deadline = time.monotonic() + _BROKER_SECONDS
    while _serves(_node(lab.folder, alias, broker_id), lab.folder) is not alive:
        if time.monotonic() > deadline:
            text = f"Broker {broker_id} of {alias} did not {'start' if alive else 'stop'}."
            raise LabError("lab.timeout", text, f"See the logs in {lab.folder / alias / 'logs'}.")
        time.sleep(0.1)


def _serves(node: state.NodeState, folder: Path) -> bool | None:
    """Whether the broker runs and listens; None if it does one of them only."""
    host, _, port = node.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError:
        return None if node.alive(folder) else False
    return True


def _node(folder: Path, alias: str, broker_id: int) -> state.NodeState:
    return _cluster(_read(folder), alias).nodes[broker_id - 1]


def _cluster(lab: state.LabState, alias: str) -> state.ClusterState:
    found = {cluster.alias: cluster for cluster in lab.clusters}
    if alias not in found:
        hint = f"It has {', '.join(found)}."
        raise LabError("lab.no-cluster", f"The lab has no cluster {alias}.", hint)
    return found[alias]


def _next_steps(folder: Path, aliases: Sequence[str]) -> None:
    """Commands that work as they are, from a topic to a consumer on the other side."""
    default = folder == Path(_DEFAULT_FOLDER).resolve()
    where = "" if default else f" --folder {folder}"
    first = aliases[0]
    steps = [
        f"lab topics{where} {first} --create --topic orders --partitions 3",
        f"lab produce{where} {first} --topic orders      # type lines; Ctrl-D ends",
    ]
    if len(aliases) > 1:
        config = Path(_DEFAULT_FOLDER if default else folder) / "mm2.properties"
        steps += [
            f"run {config} --once",
            f"lab consume{where} {aliases[1]} --topic {first}.orders --group me --from-beginning",
            f"lab groups{where} {aliases[1]} --describe --group me",
        ]
    steps += [f"lab broker{where} restart {first} 1", f"lab status{where}"]
    for step in steps:
        click.echo(f"  heliograph {step}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _supervise(lab: Lab) -> None:
    """Watches until interrupted; a broker that dies is reported once, and left dead."""
    reported: set[int] = set()
    while True:
        time.sleep(0.5)
        for cluster in lab.clusters.values():
            for broker in cluster.brokers:
                wanted = broker.obey_stop_file()
                if wanted and not broker.running and broker.pid not in reported:
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
            [sys.executable, "-m", "heliograph", "lab", *arguments],
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
