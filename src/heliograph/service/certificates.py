"""When the certificates of clients and listeners end. Runs in the driver.

Stores are read in a thread of their own, since a JKS store takes Java's keytool a second, and again
only when a file has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from heliograph.service.snapshot import CertificateSnapshot
from heliograph.wire.tls import FILES, certificates

__all__ = ["CertificateWatch"]

log = logging.getLogger(__name__)

#: How often files are looked at; certificates end after months.
_LOOK_SECONDS = 60.0
#: Of one store: a truststore may hold all authorities of the world.
_MOST = 20
_STORES = ("keystore", "truststore")

#: Who uses them, and ``ssl.*`` keys with secrets resolved.
Settings = Iterable[tuple[str, Mapping[str, str]]]


class CertificateWatch:
    """Knows the certificates of ``settings``, which is called in a thread of its own."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._known: tuple[CertificateSnapshot, ...] = ()
        self._looked_at = float("-inf")
        self._read: dict[object, list[CertificateSnapshot]] = {}
        self._lock = threading.Lock()

    def known(self) -> tuple[CertificateSnapshot, ...]:
        """As of the last look; begins another if that is long ago. Never waits."""
        with self._lock:
            due = time.monotonic() - self._looked_at >= _LOOK_SECONDS
            if due:
                self._looked_at = time.monotonic()
        if due:
            threading.Thread(target=self.look, name="certificates", daemon=True).start()
        return self._known

    def look(self) -> None:
        """Read what has changed since the last time."""
        self._looked_at = time.monotonic()
        found: dict[object, list[CertificateSnapshot]] = {}
        for owner, values in self._settings():
            for store in _STORES:
                key = owner, store, _stamp(values)
                found[key] = self._read.get(key) or _read(owner, store, values)
        self._read = found
        self._known = tuple(dict.fromkeys(c for some in found.values() for c in some))


def _stamp(values: Mapping[str, str]) -> object:
    """What changes when another certificate may be read."""
    times = []
    for name in FILES:
        try:
            times.append(Path(values[name]).stat().st_mtime_ns if values.get(name) else 0)
        except OSError:
            times.append(-1)
    return tuple(times), tuple(sorted(values.items()))


def _read(owner: str, store: str, values: Mapping[str, str]) -> list[CertificateSnapshot]:
    try:
        read = certificates(values, store)
    except Exception as error:  # noqa: BLE001 - connections meet the same and say so
        log.debug("the %s of %s cannot be read: %s", store, owner, error)
        return []
    made = [
        CertificateSnapshot(
            owner, store, c.subject.rfc4514_string(), c.not_valid_after_utc.timestamp()
        )
        for c in read
    ]
    return sorted(made, key=lambda c: c.expires_at)[:_MOST]
