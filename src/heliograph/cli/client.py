"""``heliograph client``: what a cluster knows of the clusters that are mirrored to it."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.cli.flows import Command, output_option
from heliograph.client import MirrorClient, OffsetAndMetadata, TopicPartition
from heliograph.client.mirror import DEFAULT_TIMEOUT_SECONDS, NotMirrored
from heliograph.config.key import BoundedPattern, compile_pattern
from heliograph.config.mirror_maker import parse_file
from heliograph.shown import shown

__all__ = ["client_group"]

_Groups = Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]

_KINDS = ("heartbeats", "checkpoints", "remote")


def _cluster(command: Command) -> Command:
    """The options that say which cluster is asked."""
    options = (
        click.option("--bootstrap-server", metavar="HOST:PORT,...",
                     help="Brokers of the cluster that is mirrored to."),
        click.option("--command-config", metavar="FILE",
                     type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="Properties of Kafka's clients, and replication.policy.* as the mirror"
                     " has them."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.group("client")
def client_group() -> None:
    """Asks a cluster about the clusters that are mirrored to it: MM2's MirrorClient.

    Only that cluster is asked, and only what any mirror writes to it: it works while the sources
    are down, and on MM2's mirrors too.
    """


@client_group.command()
@click.argument("cluster")
@_cluster
@output_option("table", "json")
def hops(
    cluster: str, bootstrap_server: str | None, command_config: Path | None, output: str
) -> None:
    """How many mirrors away CLUSTER is.

    CLUSTER is an alias. Exits with 1 if no heartbeats of it arrive here.
    """
    with _client(bootstrap_server, command_config) as client:
        found = client.replication_hops(cluster)
    if output == "json":
        click.echo(json.dumps({"cluster": cluster, "hops": found}))
    elif found < 0:
        click.echo(f"{cluster}: no heartbeats of it arrive here")
    else:
        click.echo(f"{cluster}: {found} {'hop' if found == 1 else 'hops'}")
    if found < 0:
        sys.exit(1)


@client_group.command()
@_cluster
@output_option("table", "json")
def upstream(bootstrap_server: str | None, command_config: Path | None, output: str) -> None:
    """Clusters whose heartbeats arrive here."""
    with _client(bootstrap_server, command_config) as client:
        found = {c: client.replication_hops(c) for c in sorted(client.upstream_clusters())}
    if output == "json":
        click.echo(json.dumps(found))
    elif found:
        _print(("cluster", "hops"), ((cluster, str(n)) for cluster, n in found.items()))
    else:
        click.echo("no heartbeats of other clusters arrive here", err=True)


@client_group.command()
@click.argument("kinds", type=click.Choice(_KINDS), nargs=-1, metavar="[KIND]...")
@click.option("--source", metavar="ALIAS", help="Only remote topics that come from this cluster.")
@_cluster
@output_option("table", "json")
def topics(
    kinds: tuple[str, ...],
    source: str | None,
    bootstrap_server: str | None,
    command_config: Path | None,
    output: str,
) -> None:
    """Topics that mirrors have made here.

    KIND is heartbeats, checkpoints or remote; without one, all are shown.
    """
    wanted = kinds or (("remote",) if source else _KINDS)
    with _client(bootstrap_server, command_config) as client:
        asked: dict[str, Callable[[], set[str]]] = {
            "heartbeats": client.heartbeat_topics,
            "checkpoints": client.checkpoint_topics,
            "remote": lambda: client.remote_topics(source),
        }
        found = {kind: sorted(asked[kind]()) for kind in _KINDS if kind in wanted}
    if output == "json":
        click.echo(json.dumps(found))
    elif any(found.values()):
        _print(("topic", "kind"), ((name, kind) for kind in found for name in found[kind]))
    else:
        click.echo("there are none", err=True)


@client_group.command()
@click.argument("group", required=False)
@click.option("--regex", metavar="EXPRESSION", help="All groups whose whole id it matches.")
@click.option("--source", metavar="ALIAS",
              help="The cluster that the group consumes on; may be left out if it is the only one"
              " that is mirrored here.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              default=DEFAULT_TIMEOUT_SECONDS, show_default=True,
              help="For reading the checkpoints.")  # fmt: skip
@_cluster
@output_option("table", "json", "csv")
def offsets(
    group: str | None,
    regex: str | None,
    source: str | None,
    timeout: float,
    bootstrap_server: str | None,
    command_config: Path | None,
    output: str,
) -> None:
    """Where consumer groups of a source go on here.

    Shows the last checkpoints of GROUP, an id, or of all groups that --regex matches.

    \b
    csv is what Kafka's own tool takes: topic,partition,offset for one group,
    group,topic,partition,offset for several.
      heliograph client offsets my-group -o csv > offsets.csv
      kafka-consumer-groups.sh --reset-offsets --group my-group \\
        --from-file offsets.csv --execute

    Exits with 1 if there are none.
    """  # noqa: D301 - click prints it; \b keeps its lines
    pattern = _pattern(group, regex)
    with _client(bootstrap_server, command_config) as client:
        alias = source or _only_source(client)
        found = client.remote_consumer_offsets(pattern, alias, timeout)
    if output == "json":
        click.echo(json.dumps({"source": alias, "groups": _as_json(found)}))
    elif output == "csv":
        _write_csv(found)
    elif found:
        rows = ((g, p.topic, str(p.partition), str(o.offset), o.metadata)
                for g, p, o in _rows(found))  # fmt: skip
        _print(("group", "topic", "partition", "offset", "metadata"), rows)
    if not found:
        what = f"group {group}" if group is not None else f"groups that match {regex}"
        click.echo(f"no checkpoints of {what} of cluster {alias}", err=True)
        sys.exit(1)


def _pattern(group: str | None, regex: str | None) -> re.Pattern[str] | BoundedPattern:
    if (group is None) == (regex is None):
        raise click.UsageError("Give either a GROUP or --regex.")
    if group is not None:
        return re.compile(re.escape(group))
    try:
        return compile_pattern(regex or "")
    except ValueError as error:
        raise click.UsageError(f"--regex: {error}") from None


def _client(bootstrap_server: str | None, command_config: Path | None) -> MirrorClient:
    properties = parse_file(command_config).as_dict() if command_config else {}
    if bootstrap_server is not None:
        properties["bootstrap.servers"] = bootstrap_server
    if not properties.get("bootstrap.servers", "").strip():
        raise click.UsageError(
            "Give --bootstrap-server, or bootstrap.servers in the file of --command-config."
        )
    return MirrorClient(properties, origin=str(command_config or "--bootstrap-server"))


def _only_source(client: MirrorClient) -> str:
    """The cluster that checkpoints are of, if there is but one."""
    suffix = client.replication_policy.checkpoints_topic("")
    sources = sorted(topic.removesuffix(suffix) for topic in client.checkpoint_topics())
    if len(sources) != 1:
        what = f"of {', '.join(sources)}" if sources else "of no cluster"
        hint = "say which with --source" if sources else "does a mirror write to this cluster?"
        raise NotMirrored("client.which-source", f"there are checkpoints {what}", hint)
    return sources[0]


def _rows(found: _Groups) -> Iterable[tuple[str, TopicPartition, OffsetAndMetadata]]:
    return ((g, p, o) for g, offsets in sorted(found.items()) for p, o in sorted(offsets.items()))


def _as_json(found: _Groups) -> dict[str, list[dict[str, object]]]:
    groups: dict[str, list[dict[str, object]]] = {}
    for group, partition, position in _rows(found):
        row = {**partition._asdict(), **position._asdict()}
        groups.setdefault(group, []).append(row)
    return groups


def _write_csv(found: _Groups) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    for group, partition, position in _rows(found):
        # Whoever reads it in again needs the very name; a terminal must not see it.
        name = shown(group) if sys.stdout.isatty() else group
        prefix = () if len(found) == 1 else (name,)
        rows.writerow((*prefix, partition.topic, partition.partition, position.offset))


def _print(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    table = Table()
    for name in names:
        number = name in ("hops", "partition", "offset")
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(cell)) for cell in row))
    Console().print(table)


def _cell(text: str) -> str:
    # Some clients end metadata with a NUL.
    return shown(text.rstrip("\0"))
