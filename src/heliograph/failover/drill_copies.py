"""Copies of consumer groups for a drill, on the target only, and how they are removed again.

    heliograph-drill.<id>.<group>

Offsets are committed without being a member, so nobody is disturbed. The id says when and by which
process the copies were made: those that a killed drill left are removed by the next one. Runs in
commands and in the driver.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from heliograph.claims.log import Process
from heliograph.claims.process_identity import is_gone, this_process
from heliograph.control.groups.start_rules import GroupStart, Moved
from heliograph.control.groups.start_writes import write_starts
from heliograph.control.groups.translated import explain
from heliograph.failover.drill_rules import where_it_starts
from heliograph.policy import DRILL_GROUPS
from heliograph.wire.errors import WireError, is_retriable
from heliograph.wire.groups import GroupClient

__all__ = ["Copies", "drill_running", "left_over"]

#: <ms in hex>-<host>-<pid>-<started in hex>-<any>
_ID = re.compile(r"([0-9a-f]{1,12})-([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{1,16})-[0-9a-f]{4}")
#: Of a drill on another host nothing is known; none lasts that long.
_LONGEST_SECONDS = 3600.0
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.1

_running: set[str] = set()
_changing = threading.Lock()


@contextmanager
def drill_running() -> Iterator[str]:
    """A drill of this process; the value is its id. Its copies are nobody's leftovers meanwhile."""
    here = this_process()
    name = (
        f"{int(time.time() * 1000):x}-{_host(here)}-{here.pid}-{here.started:x}"
        f"-{secrets.token_hex(2)}"
    )
    with _changing:
        _running.add(name)
    try:
        yield name
    finally:
        with _changing:
            _running.discard(name)


class Copies:
    """The copies of one drill on one cluster. One thread at a time."""

    def __init__(self, target: GroupClient, drill: str) -> None:
        self._target = target
        self._prefix = f"{DRILL_GROUPS}{drill}."
        self._made: set[str] = set()

    def write(self, groups: Mapping[str, GroupStart]) -> dict[str, Moved]:
        """Commit for each copy what a failover would leave its group with, and read it back.

        Returns what became of each, by the group's own name.
        """
        wanted = {
            self._prefix + name: replace(start, group=self._prefix + name, starts={
                p: replace(s, offset=where_it_starts(s), committed=-1)
                for p, s in start.starts.items()
            })
            for name, start in groups.items()
        }  # fmt: skip
        self._made |= wanted.keys()
        moved = write_starts(self._target, wanted, rewind=False)
        return {name: moved[self._prefix + name] for name in groups}

    def remove(self) -> tuple[int, dict[str, str]]:
        """Delete the copies and what killed drills left; tries for some seconds.

        Returns how many were left by others, and the reasons why groups may still be there.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        left, others = set(self._made), 0
        while True:
            reasons: dict[str, str] = {}
            again = False
            try:
                old = self._left_by_others()
                answers = self._target.delete(left | old)
                others += len(old & answers.found.keys())
                left -= answers.found.keys()
                for group, error in answers.errors.items():
                    settings = self._target.client.settings
                    reasons[group] = explain(error, settings, "Delete", group)
                    again = again or is_retriable(error)
            except WireError as error:
                reasons, again = dict.fromkeys(left, str(error)), is_retriable(error)
            if not again or time.monotonic() >= deadline:
                self._made = left
                return others, reasons
            time.sleep(_PAUSE_SECONDS)

    def _left_by_others(self) -> set[str]:
        here, now = this_process(), time.time()
        return {g for g in self._target.list_groups().groups if left_over(g, here, now)}


def left_over(group: str, here: Process, now: float) -> bool:
    """Whether a group is the copy of a drill that cannot be running any more."""
    if not group.startswith(DRILL_GROUPS):
        return False
    drill, dot, _ = group.removeprefix(DRILL_GROUPS).partition(".")
    told = _ID.fullmatch(drill)
    if told is None or not dot:
        return False
    with _changing:
        if drill in _running:
            return False
    if now - int(told[1], 16) / 1000 > _LONGEST_SECONDS:
        return True
    if told[2] != _host(here):
        return False
    maker = here._replace(pid=int(told[3]), started=int(told[4], 16))
    return maker == here or is_gone(maker, here)


def _host(process: Process) -> str:
    """Host, boot and container in a few characters."""
    told = "\0".join((process.host, process.boot, process.namespace))
    return hashlib.sha256(told.encode()).hexdigest()[:8]
