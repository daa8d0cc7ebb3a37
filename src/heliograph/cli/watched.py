"""Finds the mirror that a command looks at: by its address, or from its file. Used by commands.

http(s)://host:port   its REST API
a file                the claims in Kafka name the REST API of the mirror that has the flows; if
                      there is none, or it does not answer, Kafka itself is asked
nothing               http://127.0.0.1:8083
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.claims.log import Claim
from heliograph.claims.process_identity import this_process
from heliograph.cli.flows import Command, asking_clusters, flows_of
from heliograph.cli.rest_client import Login, RestClient, login_options, url_of
from heliograph.config.mirror_maker import parse_file
from heliograph.errors import HeliographError, StartError
from heliograph.rest.settings import Listener
from heliograph.shown import shown

if TYPE_CHECKING:
    from heliograph.cli.kafka_view import KafkaView

__all__ = ["DEFAULT_URL", "Watched", "find", "mirror_argument"]

DEFAULT_URL = "http://127.0.0.1:8083"
_WORKER_KEYS = ("group.id", "config.storage.topic")


@dataclass(slots=True)
class Watched:
    """Where a command reads. One of ``rest`` and ``kafka`` is there; both if a file led to REST.

    ``note`` says why Kafka is asked although there is a file.
    """

    rest: RestClient | None
    kafka: KafkaView | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.rest is not None:
            return self.rest.url
        return "measured from Kafka, not told by a mirror"

    def get(self, path: str, **query: object) -> Any:
        """The answer of a route below /heliograph/v1."""
        if self.rest is not None:
            return self.rest.get(path, **query)
        assert self.kafka is not None  # noqa: S101 - see above
        return self.kafka.get(path, **query)

    def settle(self) -> None:
        """Have figures to read."""
        if self.rest is None and self.kafka is not None:
            self.kafka.settle()

    def refresh(self) -> None:
        """Have newer figures to read."""
        if self.rest is None and self.kafka is not None:
            self.kafka.measure()

    def tell(self) -> None:
        """Have newer events to read."""
        if self.rest is None and self.kafka is not None:
            self.kafka.tell()

    def source(self) -> dict[str, Any]:
        """For machines: where the figures come from."""
        if self.rest is not None:
            return {"from": "mirror", "url": self.rest.url}
        return {"from": "kafka", "url": None}


def mirror_argument(command: Command) -> Command:
    """The argument [FILE|URL] and the options of a login; the command takes ``find_mirror``."""

    @click.argument("mirror", required=False, metavar="[FILE|URL]")
    @login_options
    @wraps(command)
    def with_mirror(mirror: str | None, login: Login, **others: Any) -> Any:
        def find_mirror(flow: str | None = None) -> Any:
            return find(mirror, login, flow)

        return command(find_mirror=find_mirror, **others)

    return with_mirror


@contextmanager
def find(mirror: str | None, login: Login, flow: str | None = None) -> Iterator[Watched]:
    """The mirror that an argument means; raises HeliographError, StartError if there is none.

    ``flow``: only that one matters, of a file.
    """
    url = None if mirror is None else url_of(mirror)
    if mirror is None or url is not None:
        yield Watched(_answering(RestClient(url or DEFAULT_URL, login), named=mirror is not None))
        return
    path = Path(mirror)
    entries = parse_file(path).entries
    if "clusters" not in entries and all(key in entries for key in _WORKER_KEYS):
        yield Watched(_worker(path, login))
        return
    # Its modules take a second to import.
    from heliograph.cli.kafka_view import KafkaView  # noqa: PLC0415

    kafka = KafkaView(flows_of(path, flow))
    try:
        with asking_clusters():
            kafka.find_owners()
        rest, note = _rest_of(kafka, login)
        if rest is None:
            with asking_clusters():
                kafka.look()
        yield Watched(rest, kafka, note)
    finally:
        kafka.close()


def _answering(client: RestClient, *, named: bool) -> RestClient:
    try:
        client.get("/flows")
    except StartError as error:
        if not named and error.code == "rest.unreachable":
            error.hint = "name a file or an address: heliograph status mm2.properties"
        raise
    return client


def _worker(path: Path, login: Login) -> RestClient:
    """The REST API of the worker that this file is for; workers always have one."""
    from heliograph.connect.worker_config import WorkerConfig  # noqa: PLC0415

    config = WorkerConfig.from_file(path)
    last: StartError | None = None
    for text in config.listeners:
        address = Listener.parse(text).reached_at("127.0.0.1")
        try:
            return _answering(RestClient(str(address), login), named=True)
        except StartError as error:
            last = error
    raise last or StartError("rest.unreachable", f"{path} has no listeners")


def _rest_of(kafka: KafkaView, login: Login) -> tuple[RestClient | None, str]:
    """The REST API of the one mirror that has all these flows; else why there is none."""
    owners = {claim.process: claim for claim in kafka.owners().values() if claim is not None}
    if not owners:
        return None, "no mirror has claimed these flows"
    if len(owners) > 1:
        return None, f"{len(owners)} mirrors share these flows; name one by its address, or a flow"
    [claim] = owners.values()
    addresses = [text for text in claim.rest if _may_reach(text, claim)]
    note = "its mirror has no REST API that is reached from here"
    for address in addresses:
        try:
            client = RestClient(address, login, told=False)
            names = {flow["flow"] for flow in client.get("/flows")}
        except HeliographError as error:
            note = str(error.args[0])
            continue
        if names >= kafka.surveys.keys():
            return client, ""
        note = f"{shown(address)} is another mirror"
    return None, note


def _may_reach(address: str, claim: Claim) -> bool:
    """Whether an address means the same machine here as there: loopback does so on one host."""
    try:
        local = Listener.parse(address).is_local
    except HeliographError:
        return False
    here = this_process()
    same = (claim.process.host, claim.process.boot) == (here.host, here.boot)
    return same or not local
