"""``heliograph offsets``: where groups start on the target, and putting them there."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from heliograph.cli.flows import (
    Command,
    asking_clusters,
    file_argument,
    flow_of,
    flow_option,
    output_option,
)
from heliograph.cli.offsets_view import Shown, echo_csv, echo_export, show, show_moved
from heliograph.config import FlowConfig
from heliograph.control.groups.offsets_csv import parse_offsets
from heliograph.control.groups.source_positions import mirrored_topics
from heliograph.control.groups.start_rules import counted
from heliograph.control.groups.starts import (
    AtTime,
    Earliest,
    FromFile,
    GroupStart,
    GroupStarts,
    Latest,
    SinceLastHeartbeat,
    Strategy,
    Translated,
)
from heliograph.errors import ConfigError
from heliograph.wire.cluster import ClusterClient

__all__ = ["iso_duration", "iso_moment", "offsets_command"]

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII | re.IGNORECASE
)
_SECONDS = (86_400, 3600, 60, 1)


def iso_duration(text: str) -> float:
    """Seconds of an ISO 8601 duration, as Kafka's tools take it; raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration such as PT1H, PT90S or P1DT12H")
    return sum(float(n) * unit for n, unit in zip(found.groups(), _SECONDS, strict=True) if n)


def iso_moment(text: str) -> int:
    """Milliseconds of an ISO 8601 time, of UTC if it names no zone; raises ValueError."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-11-17T03:12:07.250Z") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _read(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """For click: an option's value is what a function makes of the text."""

    def convert(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except (ValueError, OverflowError) as error:
            raise click.BadParameter(str(error)) from None

    return convert


def _strategies(command: Command) -> Command:
    options = (
        click.option("--translated", is_flag=True,
                     help="At the very record that each would have read next. The default."),
        click.option("--to-earliest", is_flag=True, help="At the target's first record."),
        click.option("--to-latest", is_flag=True, help="At the target's end."),
        click.option("--to-datetime", metavar="TIME", callback=_read(iso_moment),
                     help="At the first record of that time or later; UTC, if it names no zone."),
        click.option("--by-duration", metavar="DURATION", callback=_read(iso_duration),
                     help="The same, so long ago: PT1H."),
        click.option("--since-last-heartbeat", is_flag=True,
                     help="The same, with the last heartbeat of the source that the target has."),
        click.option("--margin", metavar="DURATION", callback=_read(iso_duration),
                     help="So much before the last heartbeat."),
        click.option("--from-file", "offsets_file", metavar="CSV",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="At offsets of the target, in the CSV of kafka-consumer-groups.sh."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command("offsets")
@file_argument
@flow_option
@click.option("--groups", metavar="REGEX", help="Only groups whose whole id it matches.")
@click.option("--group", "named", multiple=True, metavar="ID",
              help="Only this group, also one that nobody knows; may be repeated.")  # fmt: skip
@click.option("--topics", metavar="REGEX", help="Only source topics whose whole name it matches.")
@_strategies
@click.option("--without-source", is_flag=True,
              help="Do not ask the source: spares the wait for one that is cut off.")  # fmt: skip
@click.option("--rewind", is_flag=True, help="Set back offsets that are ahead on the target, too.")
@click.option("--export", is_flag=True, help="Print what kafka-consumer-groups.sh --from-file"
              " takes, for all groups that have a start.")  # fmt: skip
@click.option("--execute", is_flag=True, help="Write it; without, this is a preview.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-v", "--verbose", is_flag=True, help="Every partition.")
@output_option("table", "json", "yaml", "csv")
def offsets_command(file: Path, flow: str | None, **given: Any) -> None:
    """Say where consumer groups start on the target, and with --execute put them there.

    For each group: the offsets that it would skip (not read, and never read), those that it would
    repeat, and partitions without an offset. Works while the source is gone: positions are then
    those of the checkpoints. Groups that are in use on the target are not touched, and an offset
    that is ahead there is kept, unless --rewind.

    \b
      heliograph offsets mm2.properties --flow 'A->B'
      heliograph offsets mm2.properties --flow 'A->B' --execute
      heliograph offsets mm2.properties --flow 'A->B' --export > offsets.csv
      kafka-consumer-groups.sh --reset-offsets --all-groups \\
        --from-file offsets.csv --execute

    Exits with 1 if a group was not moved, or cannot be exported.
    """  # noqa: D301 - click prints it; \b keeps its lines
    config = flow_of(file, flow)
    execute, export, output = given["execute"], given["export"], given["output"]
    if execute and export:
        raise click.UsageError("--export prints, --execute writes: choose one")
    if execute and not given["yes"] and not sys.stdin.isatty():
        raise ConfigError("command.unconfirmed", "--execute: nobody can be asked", "add --yes")
    strategy = _strategy(given)
    with ExitStack() as stack, asking_clusters():
        starts = _starts(config, stack, given)
        found = starts.look(strategy)
        seen = Shown(config.flow, strategy, found, starts.notes, rewind=given["rewind"])
        if export:
            sys.exit(0 if echo_export(seen) else 1)
        if not execute:
            _preview(seen, output, verbose=given["verbose"])
            return
        if not given["yes"]:
            show(seen, verbose=given["verbose"])
            _confirm(config, found, rewind=given["rewind"])
        moved = starts.write(found, rewind=given["rewind"])
    show_moved(seen, moved, output)
    if any(m.reason for m in moved.values()):
        sys.exit(1)


def _preview(seen: Shown, output: str, *, verbose: bool) -> None:
    if output == "csv":
        echo_csv(seen)
    elif output == "table":
        show(seen, verbose=verbose)
    else:
        show_moved(seen, None, output)


def _confirm(config: FlowConfig, found: Mapping[str, GroupStart], *, rewind: bool) -> None:
    writes = [
        [s for s in group.starts.values() if s.committed != s.offset and (rewind or not s.ahead)]
        for group in found.values()
        if not group.reason
    ]
    groups = sum(map(bool, writes))
    of = "1 group" if groups == 1 else f"{groups} groups"
    what = f"commit {counted(sum(map(len, writes)))} of {of} on {config.flow.target}"
    click.confirm(f"{what}?", abort=True, err=True)


def _starts(config: FlowConfig, stack: ExitStack, given: Mapping[str, Any]) -> GroupStarts:
    def client(side: str) -> ClusterClient:
        settings = config.source_admin if side == "source" else config.target_admin
        return stack.enter_context(ClusterClient(settings, f"{config.flow}|offsets-{side}-admin"))

    target = client("target")
    source = None if given["without_source"] else client("source")
    try:
        pattern = given["topics"]
        topics = None if pattern is None else mirrored_topics(config, target, pattern)
        return GroupStarts(
            config, target, source, groups=given["groups"], named=given["named"], topics=topics
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _strategy(given: Mapping[str, Any]) -> Strategy:
    """The one that was chosen; raises UsageError if several were, ConfigError for a bad file."""
    chosen: list[Strategy] = []
    if given["translated"]:
        chosen.append(Translated())
    if given["to_earliest"]:
        chosen.append(Earliest())
    if given["to_latest"]:
        chosen.append(Latest())
    if given["to_datetime"] is not None:
        chosen.append(AtTime(given["to_datetime"]))
    if given["by_duration"] is not None:
        chosen.append(AtTime.ago(given["by_duration"], time.time()))
    if given["since_last_heartbeat"]:
        chosen.append(SinceLastHeartbeat(given["margin"] or 0.0))
    if given["offsets_file"] is not None:
        chosen.append(_from_file(given["offsets_file"], given["named"]))
    if len(chosen) > 1:
        raise click.UsageError("choose one place to start")
    if given["margin"] is not None and not given["since_last_heartbeat"]:
        raise click.UsageError("--margin goes with --since-last-heartbeat")
    return chosen[0] if chosen else Translated()


def _from_file(file: Path, named: tuple[str, ...]) -> FromFile:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("offsets.file", f"{file} cannot be read: {error}") from error
    return FromFile(parse_offsets(text, str(file), named[0] if len(named) == 1 else None))
