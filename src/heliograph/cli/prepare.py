"""``heliograph prepare``: what can be done once, so that every later start is quicker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from heliograph.lab.cluster import build_kafka_archive
from heliograph.spark.session import build_archive


@click.command()
@click.option("--lab", is_flag=True, help="Kafka's classes too, for labs, the demo and the tests.")
def prepare_command(lab: bool) -> None:
    """Make later starts quicker: keep Spark's classes ready to be mapped into its JVM.

    Takes half a minute and 150 MB in the cache folder. Do it once per machine or image, and
    again after an update of Java or Heliograph; without it everything works, seconds slower.
    """
    _collect("Spark", build_archive)
    if lab:
        _collect("a broker", build_kafka_archive)


def _collect(program: str, build: Callable[[], Path]) -> None:
    started = time.monotonic()
    click.echo(f"starting {program} once to collect its classes ...")
    path = build()
    size = path.stat().st_size / 1e6
    click.echo(f"wrote {path}, {size:.0f} MB, in {time.monotonic() - started:.0f} s")
