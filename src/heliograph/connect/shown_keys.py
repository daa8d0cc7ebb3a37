"""The keys of one of the three connectors, in Connect's order, and how it shows them. Pure.

All comes from the one table of keys: from rows that say how Connect shows them (`Key.shown`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from heliograph.config.key import Key, Shown, Type
from heliograph.config.keys import KEYS
from heliograph.connect.connectors import ConnectorClass
from heliograph.connect.values import canonical

__all__ = ["GROUPS", "default_of", "definition_of", "keys_of", "plugin_keys", "type_of"]

GROUPS = (
    "Common", "Transforms", "Predicates", "Error Handling", "Topic Creation",
    "Exactly Once Support", "offsets.topic",
)  # fmt: skip
"""Of the keys of Connect itself, which every source connector has."""

#: Ranks of those of them that a plugin's own definition lacks.
_OF_SOURCES = range(20, 25)
_NOT_SHOWN = Shown("", 0)


@cache
def keys_of(kind: ConnectorClass) -> tuple[Key, ...]:
    """The rows that a connector shows, in the order in which it validates them."""
    rows = (key for key in KEYS if key.shown is not None and kind.letter in key.shown.connectors)
    return tuple(sorted(rows, key=lambda key: _rank(key, kind)))


def plugin_keys(kind: ConnectorClass) -> list[Key]:
    """The same in the order of a definition: MM2's, then Connect's for all sources, then ours."""
    ranks = {key.name: _rank(key, kind) for key in keys_of(kind)}
    last = max(rank for name, rank in ranks.items() if not name.startswith("heliograph."))
    behind = {name: last if rank in _OF_SOURCES else rank for name, rank in ranks.items()}
    # The sort is stable, so that keys of the last rank go before them only if they came first.
    order = sorted(keys_of(kind), key=lambda key: ranks[key.name] in _OF_SOURCES)
    return sorted(order, key=lambda key: behind[key.name])


def _rank(key: Key, kind: ConnectorClass) -> int:
    facts = key.shown or _NOT_SHOWN
    other = facts.checkpoint_rank if kind is ConnectorClass.CHECKPOINT else 0
    return other or facts.rank


def type_of(key: Key) -> str:
    """Kafka's name of the type."""
    if key.shown is not None and key.shown.type:
        return key.shown.type
    return "LIST" if key.type is Type.REGEX_LIST else key.type.upper()


def default_of(key: Key) -> str | None:
    """As Connect shows it, and as it counts in a connector."""
    default = key.default
    if key.shown is not None and not isinstance(key.shown.default, type(...)):
        default = key.shown.default
    return default if default is None else canonical(default, type_of(key))


def definition_of(key: Key, prefix: str = "") -> dict[str, Any]:
    """One definition; ``prefix`` stands before the key in the config."""
    facts = key.shown or _NOT_SHOWN._replace(importance=key.importance.upper())
    return {
        "name": prefix + key.name,
        "type": type_of(key),
        "required": facts.required,
        "default_value": default_of(key),
        "importance": facts.importance,
        "documentation": key.doc,
        "group": facts.group,
        "order_in_group": facts.order,
        "width": facts.width,
        "display_name": facts.display or key.name,
        "dependents": [],
    }
