"""Secrets that were written into the configuration file stay in the driver. Runs in the driver.

What a task needs travels through Spark: over its network, and above 1 MiB through files that
outlive a killed mirror. So tasks get a name instead, and ask for the secrets behind it when they
run (`heliograph.wire.driver`). What refers to a provider travels as it is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace

from heliograph.config import redact
from heliograph.model import ClientSettings, DriverAddress, Sealed
from heliograph.service.listening import Caller, Listener, Place

__all__ = ["Vault", "inline_secrets"]


def inline_secrets(settings: ClientSettings) -> dict[str, str]:
    """The secrets of a cluster that are not only references to some: what may not be shown."""
    return {k: v for k, v in settings.properties.items() if redact(k, v) != v}


class Vault(Listener):
    """Gives tasks of this mirror the secrets behind the names that they were given."""

    line_most_bytes = 256

    def __init__(self) -> None:
        super().__init__("vault")
        self._address: DriverAddress | None = None
        self._kept: dict[str, Mapping[str, str]] = {}
        self._names: dict[tuple[tuple[str, str], ...], str] = {}

    def seal(self, settings: ClientSettings, place: Place) -> ClientSettings:
        """The same without secrets, and with a name for them; raises OSError if nobody can ask."""
        kept = inline_secrets(settings)
        if not kept:
            return settings
        if self._address is None:
            self._address = self.listen(place)
        known = tuple(sorted(kept.items()))
        name = self._names.setdefault(known, secrets.token_urlsafe(12))
        self._kept[name] = kept
        rest = {k: v for k, v in settings.properties.items() if k not in kept}
        return replace(settings, properties=rest, sealed=Sealed(self._address, name))

    def heard(self, caller: Caller, line: bytes) -> bool:
        """Somebody asks for what is behind a name."""
        found = self._kept.get(line.decode("ascii", "replace"))
        if found is None:
            return False
        caller.answer(json.dumps(found).encode() + b"\n")
        return True
