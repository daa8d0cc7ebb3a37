"""The workers of one ``group.id``: who is there, and who runs which connector. In the driver.

Kafka's group coordinator decides who is a member and who leads. The leader reads all connectors
from the config topic and assigns them (`heliograph.connect.assignment`). Workers go on with what
they have while a new generation of the group is formed, so a rebalance stops nothing. A connector
that moves is given up by its old worker first; until then the new one stands by (claims). So two
workers that run one connector for a moment, or one that was frozen, do no harm.

The group has the protocol type of Connect's own workers but another protocol: a real Connect worker
and ours cannot be in one group, and each is told so by the coordinator.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from heliograph.connect.assignment import assign
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, WireError, is_retriable
from heliograph.wire.membership import INCONSISTENT_PROTOCOL, GroupMember

__all__ = ["Assignment", "WorkerGroup"]

log = logging.getLogger(__name__)

_PROTOCOL_TYPE, _PROTOCOL = "connect", "heliograph"
#: The least that brokers allow by default (group.min.session.timeout.ms).
_SESSION_SECONDS = 6.0
_REBALANCE_SECONDS = 6.0
#: A tenth of the session; also how soon a member hears of a rebalance.
_HEARTBEAT_SECONDS = 0.5
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """What this worker runs.

    Attributes:
        generation: of the group; -1 while this worker is no member.
        connectors: its own.
        leader: the URL of the worker that leads.
        workers: the URLs of all.
    """

    generation: int = -1
    connectors: frozenset[str] = frozenset()
    leader: str = ""
    workers: tuple[str, ...] = ()


class WorkerGroup:
    """Keeps this worker in its group, in a thread of its own.

    ``assignment`` is replaced as a whole; ``changed`` is called after that. A worker that was
    removed (frozen, cut off) has no connectors until it is a member again.
    """

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        url: str,
        connectors: Callable[[], Collection[str]],
        changed: Callable[[], None],
    ) -> None:
        """Describe the worker.

        Args:
            client: for this alone; the group closes it.
            group: ``group.id``.
            url: where this worker is reached; also who it is.
            connectors: all that there are now, read to the end of the config topic.
            changed: called in the group's thread.
        """
        self._client = client
        self._group = group
        self._url = url
        self._connectors = connectors
        self._changed = changed
        self._member = GroupMember(
            client, group, protocol_type=_PROTOCOL_TYPE, protocol=_PROTOCOL,
            session_seconds=_SESSION_SECONDS, rebalance_seconds=_REBALANCE_SECONDS,
        )  # fmt: skip
        self.assignment = Assignment()
        #: Why this worker is no member; empty if it is, or has not tried yet.
        self.problem = ""
        self._assigned: frozenset[str] = frozenset()
        self._leads = False
        self._heard_at = 0.0
        self._again = threading.Event()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="worker group", daemon=True)

    def start(self) -> None:
        """Begin to be a member."""
        self._thread.start()

    def connectors_changed(self, connectors: Collection[str]) -> None:
        """There are others than before: the leader assigns anew, the others wait for it."""
        if self._leads and frozenset(connectors) != self._assigned:
            self._again.set()
            self._wake.set()

    def close(self) -> None:
        """Leave; others take over at once."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_SESSION_SECONDS)
        self._client.close()

    # -- in the group's thread ----------------------------------------------------------------

    def _live(self) -> None:
        joined = False
        while not self._stopping.is_set():
            try:
                if not joined or self._again.is_set():
                    self._again.clear()
                    self._join()
                    joined = True
                self._wake.wait(_HEARTBEAT_SECONDS)
                self._wake.clear()
                if self._stopping.is_set():
                    break
                joined = self._member.heartbeat()
                if self._member.removed:
                    self._lose("the group's coordinator has removed this worker")
                else:
                    self._heard_at = time.monotonic()
            except WireError as error:
                joined = False
                self._fail(error)
                self._wake.wait(_PAUSE_SECONDS)
                self._wake.clear()
        self._member.leave()

    def _join(self) -> None:
        about = {"url": self._url, "connectors": sorted(self.assignment.connectors)}
        joined = self._member.join(_encode(about), self._assign)
        self._leads = joined.leads
        share = _decode(joined.assignment)
        self.problem = ""
        self._heard_at = time.monotonic()
        self.assignment = Assignment(
            joined.generation, frozenset(map(str, _listed(share, "connectors"))),
            str(share.get("leader", "")), tuple(map(str, _listed(share, "workers"))),
        )  # fmt: skip
        self._changed()

    def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As the leader of a new generation."""
        said = {member: _decode(data) for member, data in members.items()}
        everything = frozenset(self._connectors())
        shares = assign(
            everything, {m: map(str, _listed(s, "connectors")) for m, s in said.items()}
        )
        self._assigned = everything
        workers = sorted(str(s.get("url", "")) for s in said.values())
        common = {"leader": self._url, "workers": workers}
        return {m: _encode({"connectors": shares[m], **common}) for m in members}

    def _fail(self, error: WireError) -> None:
        told = str(error)
        if isinstance(error, BrokerError) and error.code == INCONSISTENT_PROTOCOL:
            told = (
                f"group {shown(self._group)} has members that are Kafka Connect's own workers; stop"
                " them first: this worker joins as soon as they are gone"
            )
        if told != self.problem:
            # Coordinators move, and take a moment to know their groups: that is no news.
            passing = is_retriable(error) and not self.problem
            log.log(logging.INFO if passing else logging.WARNING, "%s", told)
            self.problem = told
        if time.monotonic() - self._heard_at > _SESSION_SECONDS:
            self._lose("the group's coordinator has not answered for so long that it must have"
                       " removed this worker")  # fmt: skip

    def _lose(self, why: str) -> None:
        if self.assignment.generation >= 0:
            log.warning("%s; its connectors stop here until it is a member again", why)
            self.assignment = Assignment()
            self._leads = False
            self._changed()


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _listed(value: Mapping[str, object], name: str) -> list[object]:
    found = value.get(name)
    return found if isinstance(found, list) else []
