"""``heliograph prepare``: what can be done once, so that every later start is quicker."""

from __future__ import annotations

import time

import click

from heliograph.spark.session import build_archive


@click.command()
def prepare_command() -> None:
    """Make later starts quicker: keep Spark's classes ready to be mapped into its JVM.

    Takes half a minute and 150 MB in the cache folder. Do it once per machine or image, and
    again after an update of Java or Heliograph; without it everything works, seconds slower.
    """
    started = time.monotonic()
    click.echo("starting Spark once to collect its classes ...")
    path = build_archive()
    size = path.stat().st_size / 1e6
    click.echo(f"wrote {path}, {size:.0f} MB, in {time.monotonic() - started:.0f} s")
