"""Finds out what a key of the file addresses: the whole mirror, a flow, a cluster or its clients.

Prefixes are matched against the declared aliases, never by a pattern: an alias may hold any
character, dots and ``->`` included (scenario S13).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from heliograph.config.client_keys import CLIENT_KEYS, ROLES
from heliograph.config.flow_keys import FLOW_KEYS
from heliograph.config.keys import CLIENT_PREFIXES, KEYS, Key, Scope, client_key, find, nearest
from heliograph.config.problems import Problems
from heliograph.config.properties import Entry

__all__ = ["Placed", "place", "place_in_connector", "report_in_connector", "report_unknown"]

TYPO_CUTOFF = 0.85
"""From this similarity on an unknown key is taken for a typo, which is an error."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a key of the file was found.

    Attributes:
        scope: TOP for ``x``, FLOW for ``A->B.x``, CLIENT for ``A.x``.
        prefix: everything before ``rest``, e.g. ``A->B.`` or ``A.consumer.``.
        rest: the name looked up in the table.
        key: its row, or None if the table has no such name there.
        role: consumer, producer, admin or common, if ``rest`` is the name of a client key.
        no_effect: why MM2 and Heliograph ignore the key in this place; may be empty.
        loop: whether the flow leads back to its source: there is no such flow.
    """

    scope: Scope
    prefix: str
    rest: str
    key: Key | None
    role: str = ""
    no_effect: str = ""
    loop: bool = False


def place(name: str, aliases: Sequence[str]) -> Placed:
    """Places the key ``name``. If aliases make it ambiguous, a reading that is known wins."""
    readings = [_in_flow(prefix, name[len(prefix) :]) for prefix in _flow_prefixes(name, aliases)]
    loops = (f"{alias}->{alias}." for alias in aliases)
    readings += [
        replace(
            _in_flow(p, name[len(p) :]),
            no_effect="source and target are the same cluster",
            loop=True,
        )
        for p in loops
        if name.startswith(p)
    ]
    readings += [
        _in_cluster(f"{alias}.", name[len(alias) + 1 :])
        for alias in sorted(aliases, key=len, reverse=True)
        if name.startswith(f"{alias}.")
    ]
    readings.append(_at_top(name))
    known = [r for r in readings if r.key is not None]
    effective = [r for r in known if not r.no_effect]
    return (effective or known or readings)[0]


def place_in_connector(name: str) -> Placed:
    """Places a key of a connector's config, where the keys of a flow have no prefix."""
    placed = _in_flow("", name)
    if placed.no_effect:
        hint = f"write it as source.cluster.{name} or target.cluster.{name}"
        return replace(placed, no_effect=hint)
    return placed


def _flow_prefixes(name: str, aliases: Sequence[str]) -> list[str]:
    sources = [alias for alias in aliases if name.startswith(f"{alias}->")]
    prefixes = [f"{s}->{target}." for s in sources for target in aliases if s != target]
    return sorted((p for p in prefixes if name.startswith(p)), key=len, reverse=True)


def _in_flow(prefix: str, rest: str) -> Placed:
    key = find(Scope.FLOW, rest)
    if key is not None:
        return Placed(Scope.FLOW, prefix, rest, key)
    for client_prefix, role in CLIENT_PREFIXES:
        if rest.startswith(client_prefix):
            name = rest[len(client_prefix) :]
            full = prefix + client_prefix
            return Placed(Scope.FLOW, full, name, client_key(name, role), role)
    if client_key(rest, "common") is not None:
        hint = "client settings belong to a cluster: write them as <alias>." + rest
        return Placed(Scope.FLOW, prefix, rest, client_key(rest, "common"), no_effect=hint)
    return Placed(Scope.FLOW, prefix, rest, None)


def _in_cluster(prefix: str, rest: str) -> Placed:
    for role in ROLES:
        if rest.startswith(f"{role}."):
            name = rest[len(role) + 1 :]
            key = client_key(name, role)
            return Placed(Scope.CLIENT, f"{prefix}{role}.", name, key, role)
    key = client_key(rest, "common")
    if key is not None:
        return Placed(Scope.CLIENT, prefix, rest, key, "common")
    flow = find(Scope.FLOW, rest)
    worker = find(Scope.WORKER, rest)
    if flow is not None and (worker is None or worker.name.endswith("*")):
        hint = f"a setting of a flow: write it as <source>-><target>.{rest}"
        return Placed(Scope.CLIENT, prefix, rest, flow, no_effect=hint)
    if worker is None and (roles := _roles_of(rest)):
        hint = f"it is read of one kind of client only: write it as {prefix}{roles[0]}.{rest}"
        return Placed(Scope.CLIENT, prefix, rest, client_key(rest, roles[0]), no_effect=hint)
    return Placed(Scope.CLIENT, prefix, rest, worker)


def _roles_of(name: str) -> list[str]:
    """The kinds of client that have the key ``name``."""
    return [role for role in ROLES if client_key(name, role) is not None]


def _at_top(name: str) -> Placed:
    key = find(Scope.TOP, name)
    if key is not None:
        return Placed(Scope.TOP, "", name, key)
    key = find(Scope.FLOW, name)
    if key is not None and key.top_level:
        return Placed(Scope.TOP, "", name, key)
    worker = find(Scope.WORKER, name)
    common = client_key(name, "common") or (worker if worker and worker.top_level else None)
    if common is not None:
        return Placed(Scope.TOP, "", name, common)
    if key is not None or worker is not None:
        where = "<source>-><target>." if key is not None else "<target>."
        hint = f"it is not read at the top level: write it as {where}{name}"
        return Placed(Scope.TOP, "", name, key or worker, no_effect=hint)
    if roles := _roles_of(name):
        hint = f"it is not read at the top level: write it as <alias>.{roles[0]}.{name}"
        return Placed(Scope.TOP, "", name, client_key(name, roles[0]), no_effect=hint)
    for prefix, role in CLIENT_PREFIXES:
        rest = name[len(prefix) :]
        if name.startswith(prefix) and client_key(rest, role) is not None:
            hint = f"it is not read at the top level: write it as <alias>.{name}"
            return Placed(Scope.TOP, prefix, rest, client_key(rest, role), role, no_effect=hint)
    return Placed(Scope.TOP, "", name, None)


def report_unknown(
    entry: Entry, placed: Placed, aliases: Sequence[str], problems: Problems
) -> None:
    """Reports a key that is not in the table: an error if it looks like a typo, else a warning.

    MM2 drops such keys silently. Values are not shown: the key may be a misspelt password.
    """
    name, line = entry.key, entry.line
    whole = _torn_key(entry, aliases)
    if whole is not None:
        message = f"a blank, '=' or ':' ends a key, so this line sets {name!r}"
        hint = f"write the key without blanks: {whole}"
        problems.error("config.unknown-key", name, message, line=line, hint=hint)
        return
    selecting = None if placed.role else _near_selecting(placed.rest)
    if placed.scope is Scope.TOP:
        if "->" in name:
            _report_flow(entry, aliases, problems)
            return
        alias, _, rest = name.partition(".")
        if rest and _in_cluster("", rest).key is not None:
            near = nearest(alias, aliases)
            message = f"{alias!r} is not one of clusters"
            hint = f"did you mean {near}.{rest}?" if near else f"add {alias} to clusters"
            if selecting:
                hint = f"a setting of a flow: write it as <source>-><target>.{selecting}"
            report = problems.error if near or selecting else problems.warn
            report("config.unknown-alias", name, message, line=line, hint=hint)
            return
    near = nearest(placed.rest, _pool(placed))
    typo = near is not None and nearest(placed.rest, [near], TYPO_CUTOFF) is not None
    prefix = placed.prefix
    if selecting and not typo:
        near, typo = selecting, True
        prefix = prefix if placed.scope is not Scope.CLIENT else "<source>-><target>."
    hint = f"did you mean {prefix}{near}?" if near else ""
    report = problems.error if typo else problems.warn
    report("config.unknown-key", name, "unknown key", line=line, hint=hint)


def report_in_connector(entry: Entry, placed: Placed, problems: Problems) -> None:
    """Reports a connector's key that is not in the table. Connect ignores such keys.

    So it is a warning, unless it was meant to decide what is copied.
    """
    # Connectors' keys have no alias before them that could be misspelt.
    selecting = None if placed.role else _near_selecting(placed.rest, whole=True)
    near = selecting or nearest(placed.rest, _pool(placed))
    hint = f"did you mean {placed.prefix}{near}?" if near else ""
    report = problems.error if selecting else problems.warn
    report("config.unknown-key", entry.key, "unknown key", line=entry.line, hint=hint)


def _near_selecting(name: str, *, whole: bool = False) -> str | None:
    """The key that decides what is copied (`Key.selects`) for which ``name`` may be meant.

    Case, separators and the order of words do not count. What stands before a dot may be a
    misspelt prefix, so the end of a name counts too, unless only the ``whole`` does; but there is
    more that ends in "enabled".
    """
    words = _words(name)
    # A name that is known in another place was hardly meant to be another.
    if not words or any(find(scope, name) for scope in Scope):
        return None
    if len(words) > 1 and words[0] in ("topics", "groups"):
        return words[0]
    best, found = 0.0, None
    for key in (k for k in FLOW_KEYS if k.selects):
        theirs = _words(key.name)
        for start in range(1 if whole or key.name == "enabled" else len(words)):
            ours = words[start:]
            # Two letters in the wrong order leave two thirds of a short word alike.
            cutoff = 0.65 if len(theirs) == 1 and not start else 0.8
            alike = SequenceMatcher(None, "".join(ours), "".join(theirs)).ratio()
            if sorted(ours) == sorted(theirs):
                alike = 2.0 if not start else 1.0
            if alike >= cutoff and alike > best:
                best, found = alike, key.name
    return found


def _words(name: str) -> list[str]:
    return re.findall("[a-z0-9]+", name.lower())


def _torn_key(entry: Entry, aliases: Sequence[str]) -> str | None:
    """The key ``A->B.x`` that a line was meant to set, if a blank or "=" inside cut it short."""
    text = re.sub(r"\s", "", entry.key + entry.value)
    known = "|".join(map(re.escape, sorted(aliases, key=len, reverse=True)))
    found = re.match(rf"({known})[-=]?>({known})[.](\w[\w.-]*)[=:]", text)
    if found is not None:
        return f"{found[1]}->{found[2]}.{found[3]}"
    return f"{entry.key}->..." if entry.value.startswith("->") else None


def _report_flow(entry: Entry, aliases: Sequence[str], problems: Problems) -> None:
    source, _, right = entry.key.partition("->")
    target = next((a for a in aliases if right.startswith(f"{a}.")), right.partition(".")[0])
    unknown = [alias for alias in (source, target) if alias not in aliases]
    what = " and ".join(repr(alias) for alias in unknown) or "the flow"
    near = [n for n in (nearest(alias, aliases) for alias in unknown) if n is not None]
    problems.error(
        "config.unknown-alias",
        entry.key,
        f"{what} is not one of clusters ({', '.join(aliases)})",
        line=entry.line,
        hint=f"did you mean {' and '.join(near)}?" if near else "add the alias to clusters",
    )


def _pool(placed: Placed) -> list[str]:
    if placed.role:
        common = placed.role == "common"
        return [k.name for k in CLIENT_KEYS if placed.role in k.roles or (common and k.common)]
    if placed.scope is Scope.FLOW:
        return [k.name for k in KEYS if k.scope is Scope.FLOW]
    if placed.scope is Scope.CLIENT:
        return [k.name for k in KEYS if k.scope is Scope.WORKER or k.common]
    return [k.name for k in KEYS if k.scope is Scope.TOP or k.common or k.scope is Scope.FLOW]
