"""The workers of one ``group.id``: who is there, and who runs which connector. In the driver.

Kafka's group coordinator decides who is a member and who leads. The leader reads all connectors
from the config topic and assigns them (`heliograph.connect.assignment`). Workers go on with what
they have while a new generation of the group is formed, so a rebalance stops nothing. A connector
that moves is given up by its old worker first; until then the new one stands by (claims). So two
workers that run one connector for a moment, or one that was frozen, do no harm.

A worker that was killed is found by its address (`heliograph.connect.watch`): the leader watches
all others, and one of these watches the leader. Whoever finds one dead asks the coordinator to
remove it. The leader of the next generation tells all workers which processes were members and are
not any more. Their claims need not be waited for again (`WorkerGroup.silent`). A worker that stops
in order says so first, by joining once more: its claims end by themselves.

The group has the protocol type of Connect's own workers but another protocol: a real Connect worker
and ours cannot be in one group, and each is told so by the coordinator.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s

from heliograph.claims.log import Process
from heliograph.claims.process_identity import this_process
from heliograph.connect.assignment import assign
from heliograph.connect.watch import Watch
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError, WireError, is_retriable
from heliograph.wire.membership import INCONSISTENT_PROTOCOL, GroupMember, Removed

__all__ = ["Assignment", "WorkerGroup"]

log = logging.getLogger(__name__)

_PROTOCOL_TYPE, _PROTOCOL = "connect", "heliograph"
#: The least that brokers allow by default (group.min.session.timeout.ms).
_SESSION_SECONDS = 6.0
_REBALANCE_SECONDS = 6.0
#: A tenth of the session; also how soon a member hears of a rebalance.
_HEARTBEAT_SECONDS = 0.5
_PAUSE_SECONDS = 1.0
#: Workers that are gone and that others are told of: the newest. Each has claims for seconds only.
_MOST_LOST = 32


@dataclass(frozen=True, slots=True)
class Assignment:
    """What this worker runs.

    Attributes:
        generation: of the group; -1 while this worker is no member.
        connectors: its own.
        leader: the URL of the worker that leads.
        workers: the URLs of all.
        processes: of all members, by `name_of`, but for those that are stopping.
        lost: processes that were members and are not any more, without having stopped in order; by
            the generation that missed them first.
    """

    generation: int = -1
    connectors: frozenset[str] = frozenset()
    leader: str = ""
    workers: tuple[str, ...] = ()
    processes: frozenset[str] = frozenset()
    lost: Mapping[str, int] = field(default_factory=dict)


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
        self._process = name_of(this_process())
        self._watch = Watch(self._remove)
        #: Processes that this worker has removed from the group. If one of them is a member again,
        #: its address proves nothing.
        self._removed: set[str] = set()
        #: URL and process of those that are watched, by member id.
        self._watched: Mapping[str, tuple[str, str]] = {}
        self.assignment = Assignment()
        #: Why this worker is no member; empty if it is, or has not tried yet.
        self.problem = ""
        self._assigned: frozenset[str] = frozenset()
        #: What this worker has, in the order in which it was given.
        self._order: list[str] = []
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

    def silent(self, process: Process) -> bool:
        """Whether the group has lost a process: nobody need wait for its claims to fall silent.

        It may be alive all the same. A worker that has not heard from the coordinator lately knows
        nothing: the process may be a member again. May be called by any thread.
        """
        heard = time.monotonic() - self._heard_at
        return name_of(process) in self.assignment.lost and heard <= _SESSION_SECONDS

    def close(self) -> None:
        """Leave; others take over at once. The second time nothing happens."""
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
            except Removed as removed:
                joined = False
                self._lose(str(removed))
            except WireError as error:
                joined = False
                self._fail(error)
                self._wake.wait(_PAUSE_SECONDS)
                self._wake.clear()
        self._watch.close()
        self._part()
        self._member.leave()

    def _join(self) -> None:
        joined = self._member.join(_encode(self._about()), self._assign)
        self._leads = joined.leads
        share = _decode(joined.assignment)
        self.problem = ""
        self._heard_at = time.monotonic()
        self.assignment = Assignment(
            joined.generation, frozenset(map(str, _listed(share, "connectors"))),
            str(share.get("leader", "")), tuple(map(str, _listed(share, "workers"))),
            frozenset(map(str, _listed(share, "processes"))), _lost(share),
        )  # fmt: skip
        self._order = self._in_order(self.assignment.connectors)
        self._watch_over(share)
        self._changed()

    def _part(self) -> None:
        """Say that this worker stops, so that the others do not take it for dead."""
        if len(self.assignment.workers) > 1:
            about = {**self._about(), "connectors": [], "stopping": True}
            try:
                self._member.join(_encode(about), self._assign)
            except WireError as error:
                log.debug("the others could not be told that this worker stops: %s", error)

    def _about(self) -> dict[str, object]:
        """What this worker says of itself, and what it knows of the others."""
        known = self.assignment
        return {
            "url": self._url,
            "process": self._process,
            "connectors": self._in_order(known.connectors),
            "generation": known.generation,
            "processes": sorted(known.processes),
            "lost": known.lost,
        }

    def _in_order(self, connectors: Collection[str]) -> list[str]:
        """Those that this worker has had longest first; what is new comes last, by name."""
        known = [c for c in self._order if c in connectors]
        return known + sorted(set(connectors) - set(known))

    def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As the leader of a new generation."""
        said = {member: _decode(data) for member, data in members.items()}
        staying = {m: s for m, s in said.items() if not s.get("stopping")}
        everything = frozenset(self._connectors())
        shares: Mapping[str, Collection[str]] = {}
        if staying:
            owned = {m: map(str, _listed(s, "connectors")) for m, s in staying.items()}
            shares = assign(everything, owned)
        self._assigned = everything
        common = {
            "leader": self._url,
            "workers": sorted(str(s.get("url", "")) for s in said.values()),
            "processes": sorted(p for s in staying.values() if (p := _process(s))),
            "lost": lost_processes(said.values()),
        }
        watch = _watchers(self._member.member_id, staying)
        return {
            m: _encode({"connectors": shares.get(m, ()), "watch": watch.get(m, {}), **common})
            for m in members
        }

    # -- who is dead --------------------------------------------------------------------------

    def _watch_over(self, share: Mapping[str, object]) -> None:
        """Watch those whom the leader has told this worker to watch."""
        told = share.get("watch")
        self._watched = {
            str(member): (str(what.get("url", "")), _process(what))
            for member, what in (told.items() if isinstance(told, dict) else ())
            if isinstance(what, dict)
        }
        self._watch.watch(
            {m: url for m, (url, process) in self._watched.items() if process not in self._removed}
        )

    def _remove(self, member: str) -> None:
        """Have a dead worker removed from the group. In a thread of the watch; raises WireError."""
        self._member.remove(member)
        url, process = self._watched.get(member, ("", ""))
        if process:
            self._removed.add(process)
        log.warning("worker %s refuses connections; it was removed from the group", shown(url))

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
            # It must not ask for them again: others have them now, and they would move twice.
            self.assignment = Assignment()
            self._order = []
            self._leads = False
            self._watch.watch({})
            self._changed()


def name_of(process: Process) -> str:
    """A short name: assignments of large groups have to fit into one record of the coordinator."""
    return blake2s(json.dumps(process).encode(), digest_size=8).hexdigest()


def lost_processes(said: Collection[Mapping[str, object]]) -> dict[str, int]:
    """Processes that were members and are not any more, by the generation that missed them first.

    ``said`` is what all members of a new generation say. Only those that were in the latest one
    before know who was a member: one that missed a generation may not know who stopped in order.
    """
    latest = max((_whole(s.get("generation")) for s in said), default=-1)
    present = {_process(s) for s in said}
    lost: dict[str, int] = {}
    for one in said:
        if 0 <= _whole(one.get("generation")) == latest:
            lost.update(_lost(one))
            for process in map(str, _listed(one, "processes")):
                lost.setdefault(process, latest + 1)
    newest = sorted((-since, process) for process, since in lost.items() if process not in present)
    return {process: -since for since, process in newest[:_MOST_LOST]}


def _watchers(
    leader: str, members: Mapping[str, Mapping[str, object]]
) -> Mapping[str, Mapping[str, object]]:
    """Who watches whom: the leader all others, and the first of these the leader."""
    described = {
        member: {"url": s.get("url", ""), "process": _process(s)} for member, s in members.items()
    }
    others = sorted(described.keys() - {leader})
    found: dict[str, Mapping[str, object]] = {leader: {m: described[m] for m in others}}
    if others and leader in described:
        found[others[0]] = {leader: described[leader]}
    return found


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


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1


def _process(value: Mapping[str, object]) -> str:
    """Empty if a member does not tell it, as those of an older version."""
    return str(value.get("process", ""))


def _lost(value: Mapping[str, object]) -> dict[str, int]:
    found = value.get("lost")
    return {str(p): _whole(g) for p, g in found.items()} if isinstance(found, dict) else {}
