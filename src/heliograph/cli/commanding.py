"""``heliograph pause``, ``resume`` and ``restart``: a running mirror, by REST or through Kafka.

REST commands one mirror, until its process ends. Through Kafka a hold is written into the flow's
ledger (`heliograph.ledger.holds`): all mirrors of the flow obey it, later ones too.
"""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from heliograph.cli.blocks import echo_row
from heliograph.cli.documents import echo_document
from heliograph.cli.flows import Command, asking_clusters, output_option
from heliograph.cli.rest_client import RestClient
from heliograph.cli.watched import Watched, mirror_argument
from heliograph.errors import ConfigError, StartError
from heliograph.ledger.holds import Holds, Subject
from heliograph.service.snapshot import CHECKPOINTS, COPYING, HEARTBEATS
from heliograph.shown import shown

__all__ = ["pause_command", "restart_command", "resume_command"]

_PARTS = (COPYING, CHECKPOINTS, HEARTBEATS)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done: a word, and of which flow, parts and topics; no parts means all."""

    word: str
    flow: str
    parts: tuple[str, ...]
    topics: tuple[str, ...]
    why: str = ""

    def __str__(self) -> str:
        if self.topics:
            return f"{self.word} topic {', '.join(map(shown, self.topics))} of {shown(self.flow)}"
        of = f"{', '.join(self.parts)} of " if self.parts else ""
        return f"{self.word} {of}{shown(self.flow)}"


def _options(*, topics: bool, why: bool) -> Callable[[Command], Command]:
    options: list[Callable[[Command], Command]] = [
        click.option("--flow", required=True, help="The flow, e.g. 'A->B'."),
        click.option("--part", "parts", multiple=True, type=click.Choice(_PARTS),
                     help="Only this part; may be repeated."),
    ]  # fmt: skip
    if topics:
        options.append(click.option("--topic", "topics", multiple=True, metavar="TOPIC",
                                    help="Only this source topic; may be repeated."))  # fmt: skip
    if why:
        options.append(click.option("--why", default="", metavar="TEXT",
                                    help="The reason, shown by all who look."))  # fmt: skip
    options += [
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        output_option("table", "json", "yaml"),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command("pause")
@mirror_argument
@_options(topics=True, why=True)
def pause_command(
    find_mirror: Any, flow: str, parts: tuple[str, ...], topics: tuple[str, ...], why: str,
    **how: Any,
) -> None:  # fmt: skip
    """Let a flow rest, or parts of it, or source topics. Lag is measured on; nothing is lost.

    FILE is the mirror's mm2.properties, URL the address of its REST API; without either,
    http://127.0.0.1:8083. By URL the mirror there pauses, until it is resumed or ends. By FILE, if
    the mirror has no REST API or takes no commands there, the order is written to the flow's ledger
    on the target: every mirror of the flow obeys it within seconds, also one that is started later,
    until 'heliograph resume'.
    """
    _command(find_mirror, Order("pause", flow.replace(" ", ""), parts, topics, why), **how)


@click.command("resume")
@mirror_argument
@_options(topics=True, why=False)
def resume_command(
    find_mirror: Any, flow: str, parts: tuple[str, ...], topics: tuple[str, ...], **how: Any
) -> None:
    """Let go on what 'heliograph pause' lets rest: a flow, parts of it, or source topics.

    FILE or URL as for pause. What was paused through Kafka is lifted for all mirrors of the flow.
    Refused in the middle of a failover, switchover or failback: that goes first.
    """
    _command(find_mirror, Order("resume", flow.replace(" ", ""), parts, topics), **how)


@click.command("restart")
@mirror_argument
@_options(topics=False, why=False)
def restart_command(find_mirror: Any, flow: str, parts: tuple[str, ...], **how: Any) -> None:
    """Start a flow anew, with new connections, or parts of it. What it copied stays copied.

    FILE or URL as for pause. Through Kafka, the mirror that has the flow does it once.
    """
    _command(find_mirror, Order("restart", flow.replace(" ", ""), parts, ()), **how)


def _command(find_mirror: Any, order: Order, *, yes: bool, dry_run: bool, output: str) -> None:
    if order.parts and order.topics:
        raise click.UsageError("name parts or topics, not both")
    with find_mirror(order.flow) as watched, asking_clusters():
        rest = _commanded(watched)
        _check(watched, order, rest)
        if not dry_run and not yes:
            _confirm(order, rest)
        if rest is None:
            said = _through_kafka(watched, order, dry_run=dry_run)
        else:
            said = _by_rest(rest, order, dry_run=dry_run)
    through = "kafka" if rest is None else "rest"
    done = {
        "command": order.word, "flow": order.flow, "parts": list(order.parts),
        "topics": list(order.topics), "through": through, "dry_run": dry_run, "said": said,
    }  # fmt: skip
    if output != "table":
        echo_document(done, output)
    elif sys.stdout.isatty():
        click.echo(f"{'would ' if dry_run else ''}{order}: {shown(said)}")
    else:
        subjects = ",".join(order.topics or order.parts or ("all",))
        echo_row(order.flow, order.word, subjects, through, said)


def _commanded(watched: Watched) -> RestClient | None:
    """The API to command by; None: through Kafka.

    Where the API takes no commands, whoever has the file may write to the ledger.
    """
    rest = watched.rest
    if rest is None or watched.kafka is None:
        return rest
    me = rest.get("/me")
    return rest if me["changes"] and me["role"] != "viewer" else None


def _check(watched: Watched, order: Order, rest: RestClient | None) -> None:
    """Whether there is such a flow and such topics; raises HeliographError."""
    names = [flow["flow"] for flow in watched.get("/flows")]
    if order.flow not in names:
        known = ", ".join(map(shown, names)) or "none"
        raise ConfigError(
            "flow.unknown", f"there is no flow {shown(order.flow)}", f"there are: {known}"
        )
    if rest is None and watched.kafka is not None and order.word == "pause":
        # Only of topics that are mirrored: a name that is mistyped would rest unnoticed.
        watched.kafka.measure()
        for topic in order.topics:
            if not watched.get("/topics", flow=order.flow, topic=topic)["total"]:
                text = f"flow {order.flow} mirrors no topic {shown(topic)}"
                raise ConfigError("topic.unknown", text)


def _confirm(order: Order, rest: RestClient | None) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("command.unconfirmed", f"{order}: nobody can be asked", "add --yes")
    where = rest.url if rest is not None else "all its mirrors, through Kafka"
    click.confirm(f"{order} ({where})?", abort=True, err=True)


def _by_rest(rest: RestClient, order: Order, *, dry_run: bool) -> str:
    if not dry_run:
        rest.post(
            f"/flows/{order.flow}/{order.word}", part=",".join(order.parts),
            topic=",".join(order.topics), why=order.why,
        )  # fmt: skip
    return f"the mirror at {rest.url} will"


def _through_kafka(watched: Watched, order: Order, *, dry_run: bool) -> str:
    assert watched.kafka is not None  # noqa: S101 - a file was given
    survey = watched.kafka.surveys[order.flow]
    holds = survey.orders
    if holds is None:
        raise StartError(
            "flow.not-mirrored", f"flow {order.flow} has no ledger yet: nothing was ever mirrored",
            "'heliograph run' makes it",
        )  # fmt: skip
    subjects = _subjects(order)
    if order.word == "restart":
        if survey.owner is None:
            raise StartError("flow.nobody", f"no mirror runs flow {order.flow}")
        if not dry_run:
            holds.restart(order.parts, _who())
        return "the mirror that has the flow restarts it"
    held = [s for s in subjects if s in holds.held]
    if order.word == "pause":
        if not dry_run:
            holds.hold(subjects, _who(), order.why)
        fresh = len(subjects) - len(held)
        return "all mirrors of the flow obey" if fresh else _already(holds, held)
    survey.refuse_to_resume(subjects)
    waits = survey.config.standby and not holds.started and not order.topics
    if not dry_run:
        if waits:
            holds.start(_who())
        holds.lift(subjects)
    if held or waits:
        return "all mirrors of the flow go on"
    return "nothing of it was paused through Kafka"


def _subjects(order: Order) -> Sequence[Subject]:
    if order.topics:
        return [Subject.topic(topic) for topic in order.topics]
    return [Subject.part(part) for part in order.parts or _PARTS]


def _already(holds: Holds, held: Sequence[Subject]) -> str:
    return f"it was already: {holds.held[held[0]]}"


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
