"""The command line: one module per command group."""

from __future__ import annotations

import sys
from importlib import import_module

import click
from rich.console import Console
from rich.text import Text

from heliograph import __version__
from heliograph.errors import HeliographError

_COMMANDS = {
    "run": ("heliograph.cli.run", "run_command", "Mirror the flows of an mm2.properties file."),
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
    "topics": ("heliograph.cli.topics", "topics_group", "What is done about remote topics."),
    "groups": (
        "heliograph.cli.groups",
        "groups_command",
        "Consumer groups, and where they stand on the target.",
    ),
    "acls": ("heliograph.cli.acls", "acls_group", "What is copied of the source's ACLs."),
    "client": (
        "heliograph.cli.client",
        "client_group",
        "Ask a cluster about those that are mirrored to it.",
    ),
    "config": ("heliograph.cli.config", "config_group", "Look at a configuration and its keys."),
    "lab": ("heliograph.cli.lab", "lab_group", "Real Kafka clusters on this machine, to try with."),
    "prepare": ("heliograph.cli.prepare", "prepare_command", "Make later starts quicker."),
    "demo": (
        "heliograph.cli.demo",
        "demo_command",
        "Watch a mirror survive a kill -9, with proof.",
    ),
}
#: MM2's exit code for bad arguments (-1).
_BAD_ARGUMENTS = 255


class _LazyGroup(click.Group):
    """Imports a command's module only when it is used: ``--help`` must not start with Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
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
    """Entry point; turns errors into a message and MM2's exit codes."""
    try:
        code = cli.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(_BAD_ARGUMENTS)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except HeliographError as error:
        show_error(error)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def show_error(error: HeliographError) -> None:
    """Print an error as a person wants to read it: what, and what to do next."""
    text = Text("error: ", style="bold red") + Text(str(error), style="default")
    Console(stderr=True, soft_wrap=True).print(text)
