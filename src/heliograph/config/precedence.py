"""MM2's precedence: which of the places that may set a key decides, and where that was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.config.keys import Key, client_key
from heliograph.config.properties import Entry, Properties
from heliograph.model import Flow

__all__ = ["Effective", "Precedence"]


@dataclass(frozen=True, slots=True)
class Effective:
    """The value that counts.

    Attributes:
        value: as written, templates unresolved; None if unset and without default.
        origin: ``mm2.properties:12 A->B.topics``, ``default`` or ``default (MM2: 600)``.
        entry: the entry of the file that set it, or None for a default.
    """

    value: str | None
    origin: str
    entry: Entry | None = None


class Precedence:
    """Answers for one file. Pure: looks up, never fails, resolves no template."""

    def __init__(self, name: str, properties: Properties) -> None:
        self._name = name
        self._entries: Mapping[str, Entry] = properties.entries

    def flow_value(self, flow: Flow, key: Key) -> Effective:
        """``A->B.x`` over ``x`` (if MM2 reads it at the top level) over the default."""
        entry = self._entries.get(f"{flow}.{key.name}")
        if entry is None and key.top_level:
            entry = self._entries.get(key.name)
        return self.default(key) if entry is None else self._from(entry)

    def flow_family(self, flow: Flow, prefix: str) -> dict[str, Effective]:
        """Every key that begins with ``prefix``, by its full name: ``A->B.x`` over ``x``."""
        ranked = [*self._all(prefix), *self._all(f"{flow}.{prefix}")]
        return {prefix + name: self._from(entry) for name, entry in ranked}

    def worker_value(self, flow: Flow, key: Key) -> str | None:
        """What MM2's Connect worker gets: ``x`` where it reads that, over ``B.x``; or None."""
        entry = self._entries.get(key.name) if key.top_level else None
        entry = entry or self._entries.get(f"{flow.target}.{key.name}")
        return None if entry is None else entry.value

    def client_values(self, flow: Flow, side: str, role: str) -> dict[str, Effective]:
        """Client properties of ``side`` (source, target) in ``role``, only those that are set.

        Later wins, as in MM2's MirrorMakerConfig and MirrorConnectorConfig:
        ``A->B.source.cluster.x`` (common keys), ``A->B.consumer.x``, then the cluster's own
        (``x`` and ``A.x`` for common keys, ``A.consumer.x``), then ``A->B.source.consumer.x``.
        MM2's data producer is the Connect worker's instead: the target's own keys, then
        ``A->B.producer.override.x``.
        """
        alias = flow.source if side == "source" else flow.target
        own = [*self._common(""), *self._common(f"{alias}."), *self._all(f"{alias}.{role}.")]
        if role == "producer":
            ranked = [*own, *self._all(f"{flow}.{role}.override.")]
        else:
            ranked = [
                *self._common(f"{flow}.{side}.cluster."),
                # "consumer.override.x" would otherwise be read as the key "override.x".
                *(
                    (name, entry)
                    for name, entry in self._all(f"{flow}.{role}.")
                    if not name.startswith("override.") and f"{role}.{name}" not in _FLOW_NAMES
                ),
                *own,
                *self._all(f"{flow}.{side}.{role}."),
            ]
        return {name: self._from(entry) for name, entry in ranked}

    @staticmethod
    def default(key: Key) -> Effective:
        """The default of ``key``, saying so if MM2's differs."""
        differs = "" if key.mm2_default is None else f" (MM2: {key.mm2_default})"
        return Effective(key.default, f"default{differs}")

    def _all(self, prefix: str) -> list[tuple[str, Entry]]:
        start = len(prefix)
        return [(k[start:], e) for k, e in self._entries.items() if k.startswith(prefix)]

    def _common(self, prefix: str) -> list[tuple[str, Entry]]:
        return [pair for pair in self._all(prefix) if client_key(pair[0], "common") is not None]

    def _from(self, entry: Entry) -> Effective:
        where = f"{self._name}:{entry.line}" if entry.line else self._name
        return Effective(entry.value, f"{where} {entry.key}", entry)


# A connector key that begins like a client prefix; MM2's own name clash.
_FLOW_NAMES = frozenset({"consumer.poll.timeout.ms"})
