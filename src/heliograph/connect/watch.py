"""Finds workers that were killed, by their REST addresses. In the driver, a thread for each worker.

Kafka's coordinator notices that a worker is dead when its session ends, 6 s later. The kernel of
the worker's host knows it at once and refuses connections to its address. So connections are tried.
Nothing is sent: connecting needs no rights, and workers still ask each other nothing.

Only a refused connection counts. A worker that hangs still accepts connections, by its kernel; a
host or a network that is down lets them time out. Neither proves anything, and the coordinator
decides.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from enum import Enum, auto
from urllib.parse import urlsplit

from heliograph.wire.errors import WireError

__all__ = ["Watch"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
#: After a refused connection the second look comes sooner.
_AGAIN_SECONDS = 0.5
_CONNECT_SECONDS = 1.0
_REFUSALS = 2


class _Seen(Enum):
    REACHED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class Watch:
    """Tries to connect to members of a group, once a second.

    ``gone`` is called with the id of a member that was reached before and then refused two
    connections in a row. It is called in a thread of the watch, once for each member; again only if
    it raises WireError. `watch` and `close` are called by one thread.
    """

    def __init__(self, gone: Callable[[str], None]) -> None:
        self._gone = gone
        self._watched: dict[str, _Watched] = {}

    def watch(self, members: Mapping[str, str]) -> None:
        """Watch these from now on, and no others: addresses (``host:port``) by member id."""
        for member in self._watched.keys() - members.keys():
            self._watched.pop(member).ended.set()
        for member in members.keys() - self._watched.keys():
            self._watched[member] = watched = _Watched(member, members[member], self._gone)
            watched.start()

    def close(self) -> None:
        """Watch nobody any more."""
        self.watch({})


class _Watched(threading.Thread):
    def __init__(self, member: str, address: str, gone: Callable[[str], None]) -> None:
        super().__init__(name=f"watching {address}", daemon=True)
        self.ended = threading.Event()
        self._member = member
        self._address = address
        self._gone = gone

    def run(self) -> None:
        reached, refusals, pause = False, 0, 0.0
        while not self.ended.wait(pause):
            seen = _try(self._address)
            reached = reached or seen is _Seen.REACHED
            refusals = refusals + 1 if reached and seen is _Seen.REFUSED else 0
            pause = _AGAIN_SECONDS if refusals else LOOK_SECONDS
            if refusals >= _REFUSALS and not self.ended.is_set() and self._tell():
                return

    def _tell(self) -> bool:
        try:
            self._gone(self._member)
        except WireError as error:
            log.debug("worker %s is gone, but could not be removed: %s", self._address, error)
            return False
        return True


def _try(address: str) -> _Seen:
    """Connect and hang up."""
    try:
        parts = urlsplit(f"//{address}")
        socket.create_connection(
            (parts.hostname or "", parts.port or 0), _CONNECT_SECONDS, all_errors=True
        ).close()
    except ConnectionRefusedError:
        return _Seen.REFUSED
    except ExceptionGroup as errors:
        # A name may stand for several addresses: each of them has to refuse.
        refused = all(isinstance(e, ConnectionRefusedError) for e in errors.exceptions)
        return _Seen.REFUSED if refused else _Seen.UNKNOWN
    except (OSError, ValueError):
        return _Seen.UNKNOWN
    return _Seen.REACHED
