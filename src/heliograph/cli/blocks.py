"""Lists whose names stay whole: blocks on a terminal, one row a line in a pipe."""

from __future__ import annotations

import shutil
import textwrap

import click

from heliograph.shown import shown

__all__ = ["echo_block", "echo_row"]


def echo_row(*cells: str) -> None:
    """One line for programs, with tabs."""
    click.echo("\t".join(shown(cell) for cell in cells))


def echo_block(head: str, *facts: str) -> None:
    """A line that stays whole, to be searched for, and what is to be said about it."""
    width = shutil.get_terminal_size().columns
    line, rest = f"  {shown(head)}", [shown(fact) for fact in facts if fact]
    beside = ""
    if rest and len(line) + 2 + len(rest[0]) <= width:
        beside = f"  {click.style(rest.pop(0), dim=True)}"
    click.echo(line + beside)
    for fact in rest:
        lines = textwrap.wrap(fact, max(width - 6, 20), break_on_hyphens=False)
        click.echo("\n".join(f"      {click.style(line, dim=True)}" for line in lines))
