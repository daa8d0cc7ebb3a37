"""The one table of every key that Heliograph reads or that MM2 knows, and lookups in it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from heliograph.config.client_keys import CLIENT_KEYS, ROLES, WORKER_KEYS
from heliograph.config.flow_keys import FLOW_KEYS, TOP_KEYS
from heliograph.config.key import Key, Scope, Status, Type
from heliograph.config.worker_keys import CONNECT_KEYS, REST_KEYS

__all__ = [
    "CLIENT_PREFIXES", "KEYS", "Key", "Scope", "Status", "Type",
    "client_key", "find", "find_anywhere", "flow_key", "nearest",
]  # fmt: skip

KEYS: tuple[Key, ...] = TOP_KEYS + REST_KEYS + FLOW_KEYS + CLIENT_KEYS + WORKER_KEYS + CONNECT_KEYS

_SIDES = ("source.", "target.")
CLIENT_PREFIXES: tuple[tuple[str, str], ...] = (
    *((f"{side}cluster.", "common") for side in _SIDES),
    *((f"{side}{role}.", role) for side in _SIDES for role in ROLES),
    *((f"{role}.override.", role) for role in ROLES),
    *((f"{role}.", role) for role in ROLES),
)
"""Prefixes of client keys after ``A->B.``, longest match first, and the role each addresses."""

_BY_SCOPE = {scope: [key for key in KEYS if key.scope is scope] for scope in Scope}
_EXACT = {(key.scope, key.name): key for key in KEYS}


def find(scope: Scope, name: str) -> Key | None:
    """The key called ``name`` in ``scope``; an exact name wins over a ``prefix.*`` entry."""
    exact = _EXACT.get((scope, name))
    if exact is not None:
        return exact
    return next((key for key in _BY_SCOPE[scope] if key.matches(name)), None)


def flow_key(name: str) -> Key:
    """The flow key called ``name``.

    Raises:
        KeyError: there is none; only programs ask for names that are not in the table.
    """
    return _EXACT[Scope.FLOW, name]


@cache
def client_key(name: str, role: str) -> Key | None:
    """The client key ``name`` of a client in ``role``; role ``common`` asks for common keys."""
    candidates = [k for k in CLIENT_KEYS if role in k.roles or (role == "common" and k.common)]
    exact = next((key for key in candidates if key.name == name), None)
    return exact or next((key for key in candidates if key.matches(name)), None)


def find_anywhere(name: str) -> Key | None:
    """The key that ``name`` ends in, whatever aliases and prefixes stand before it."""
    rest = name
    while True:
        for scope in (Scope.TOP, Scope.FLOW, Scope.CLIENT, Scope.WORKER, Scope.CONNECT):
            key = find(scope, rest)
            if key is not None:
                return key
        _, dot, rest = rest.partition(".")
        if not dot:
            return None


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of ``names``, or None when nothing is at least ``cutoff`` similar."""
    pool = [candidate for candidate in names if not candidate.endswith("*")]
    found = get_close_matches(name, pool, n=1, cutoff=cutoff)
    return found[0] if found else None
