"""The command line: one module per command group."""

from __future__ import annotations

import os
import resource
import sys
import threading
from importlib import import_module

import click

from heliograph import __version__
from heliograph.cli import daemon
from heliograph.cli.errors import as_shown, show_error, show_thread_defect
from heliograph.cli.stopping import StopRequested, stop_on_signals

_COMMANDS = {
    "run": ("heliograph.cli.run", "run_command", "Mirror the flows of an mm2.properties file."),
    "connect": (
        "heliograph.cli.connect",
        "connect_command",
        "Run MM2's connectors in place of Kafka Connect's workers.",
    ),
    "status": ("heliograph.cli.status", "status_command", "Is a running mirror healthy? One look."),
    "top": (
        "heliograph.cli.top",
        "top_command",
        "Watch a running mirror: flows, topics, partitions.",
    ),
    "events": ("heliograph.cli.events", "events_command", "What happened in a running mirror."),
    "pause": ("heliograph.cli.commanding", "pause_command", "Let a flow, a part or topics rest."),
    "resume": ("heliograph.cli.commanding", "resume_command", "Let what is paused go on."),
    "restart": (
        "heliograph.cli.commanding",
        "restart_command",
        "Start a flow or parts of it anew.",
    ),
    "failover": (
        "heliograph.cli.failover",
        "failover_command",
        "The source is gone: let clients go on at the target.",
    ),
    "switchover": (
        "heliograph.cli.switchover",
        "switchover_command",
        "Change the direction: clients go on at the target, without loss.",
    ),
    "failback": (
        "heliograph.cli.failback",
        "failback_command",
        "The source is back: make it the standby of the cluster that took over.",
    ),
    "drill": (
        "heliograph.cli.drill",
        "drill_command",
        "Rehearse a failover on copies of the groups; nothing in production changes.",
    ),
    "health": (
        "heliograph.cli.health",
        "health_command",
        "Whether a running mirror is alive, for probes.",
    ),
    "translate": (
        "heliograph.cli.translate",
        "translate_command",
        "An offset of one cluster as an offset of the other.",
    ),
    "verify": (
        "heliograph.cli.verify",
        "verify_command",
        "Prove that the target holds what the source holds.",
    ),
    "doctor": (
        "heliograph.cli.doctor",
        "doctor_command",
        "Find what would keep a mirror from working.",
    ),
    "topics": ("heliograph.cli.topics", "topics_group", "What is done about remote topics."),
    "groups": (
        "heliograph.cli.groups",
        "groups_command",
        "Consumer groups, and where they stand on the target.",
    ),
    "offsets": (
        "heliograph.cli.offsets",
        "offsets_command",
        "Where consumer groups start on the target; put them there.",
    ),
    "acls": ("heliograph.cli.acls", "acls_group", "What is copied of the source's ACLs."),
    "client": (
        "heliograph.cli.client",
        "client_group",
        "Ask a cluster about those that are mirrored to it.",
    ),
    "config": ("heliograph.cli.config", "config_group", "Look at a configuration and its keys."),
    "rest": (
        "heliograph.cli.rest",
        "rest_group",
        "Make users and tokens of the REST API.",
    ),
    "lab": ("heliograph.cli.lab", "lab_group", "Real Kafka clusters on this machine, to try with."),
    "prepare": ("heliograph.cli.prepare", "prepare_command", "Make later starts quicker."),
    "demo": (
        "heliograph.cli.demo",
        "demo_command",
        "Watch a mirror survive a kill -9, with proof.",
    ),
}
#: They mirror until they are stopped.
_MIRRORING = frozenset({"run", "connect"})
_INTERRUPTED = 130
_READER_GONE = 141
#: MM2's exit code for bad arguments (-1).
_BAD_ARGUMENTS = 255


class _LazyGroup(click.Group):
    """Imports a command's module only when it is used: ``--help`` must not start with Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _MIRRORING:
            daemon.begin(args[1:])
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # Click looks for similar names among commands that are loaded: there are none.
            raise click.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=ctx) from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _MIRRORING:
            # Before its modules are imported, which takes seconds: SIGTERM is a clean stop there.
            stop_on_signals()
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, doc) for name, (_, _, doc) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="heliograph")
def cli() -> None:
    """Heliograph mirrors Apache Kafka clusters: MirrorMaker 2's files, exactly once, many times
    faster.

    \b
    New here?      heliograph demo
    Your clusters: heliograph run mm2.properties
    """  # noqa: D205, D301 - click prints it; \b keeps its lines


def main() -> None:
    """Entry point; turns errors into a message and the exit codes of docs/commands.md."""
    # Secrets are in memory: a crash must not write them to a disk. Spark and workers inherit this.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.excepthook = show_thread_defect
    try:
        _run()
    except SystemExit as ended:
        daemon.end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise


def _run() -> None:
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        sys.exit(_BAD_ARGUMENTS)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # Whoever reads our output has enough (`| head`). Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_READER_GONE)
    except StopRequested:
        # Before there was anything to stop.
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - nobody shall read a traceback
        shown = as_shown(error)
        show_error(shown)
        sys.exit(shown.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
