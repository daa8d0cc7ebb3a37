"""``heliograph translate``: an offset of one cluster as an offset of the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from heliograph.cli.flows import asking_clusters, flow_of, flow_option, output_option
from heliograph.client.offsets import FlowOffsets

__all__ = ["translate_command"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default="mm2.properties")
@flow_option
@click.option("--topic", required=True, help="As it is named on the source.")
@click.option("--partition", required=True, type=click.IntRange(0))
@click.option("--offset", "offsets", required=True, type=click.IntRange(0), multiple=True,
              help="May be repeated.")  # fmt: skip
@click.option("--reverse", is_flag=True, help="The offset is the target's; say the source's.")
@output_option("text", "json")
def translate_command(
    file: Path,
    flow: str | None,
    topic: str,
    partition: int,
    offsets: tuple[int, ...],
    reverse: bool,
    output: str,
) -> None:
    """Translate offsets of a partition between the clusters of a flow of FILE, exactly.

    An offset is where a consumer goes on: the answer is the same record on the other side, or the
    next one that was mirrored. Asks the target only, so it works while the source is down. Where
    both clusters have the topic under one name, and a flow goes in the opposite direction, the
    source is asked for that flow's ledger; without it the answer says what it takes for granted.

    Exits with 1 if an offset cannot be translated.
    """
    config = flow_of(file, flow)
    with asking_clusters(), FlowOffsets(config) as translator:
        across = translator.to_source if reverse else translator.to_target
        found = {offset: across(topic, partition, offset) for offset in offsets}
        remote = translator.remote_topic(topic)
    here, there = (config.flow.target, config.flow.source) if reverse else (
        config.flow.source, config.flow.target)  # fmt: skip
    names = (remote, topic) if reverse else (topic, remote)
    for offset, answer in found.items():
        if output == "json":
            click.echo(json.dumps({
                "flow": str(config.flow), "topic": topic, "remote_topic": remote,
                "partition": partition, "from": here, "to": there, "offset": offset,
                "translated": answer.offset, "exact": answer.exact, "note": answer.note,
            }))  # fmt: skip
            continue
        asked = f"{names[0]}-{partition} on {here}: {offset}"
        if answer.offset is None:
            click.echo(f"{asked} cannot be translated: {answer.note}", err=True)
        else:
            note = f" ({answer.note})" if answer.note else ""
            click.echo(f"{asked} is {answer.offset} on {there}, {names[1]}-{partition}{note}")
    if any(answer.offset is None for answer in found.values()):
        sys.exit(1)
