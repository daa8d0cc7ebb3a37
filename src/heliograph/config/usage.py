"""Which entries of a configuration count, for which flow, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.config.flow import FlowConfig
from heliograph.config.keys import Key, Scope, Status, client_key, find
from heliograph.config.mirror_maker import MirrorMakerConfig
from heliograph.config.placement import place
from heliograph.config.precedence import Effective
from heliograph.config.secrets import redact

__all__ = ["Value", "flow_values", "other_values"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it may be shown.

    Attributes:
        key: with the client before it (``source.consumer.``), or as written.
        origin: where it is written, or that it is a default.
        no_effect: why it changes nothing; empty if it counts.
        is_default: whether it is written nowhere.
    """

    key: str
    value: str
    origin: str
    no_effect: str = ""
    is_default: bool = False


def flow_values(config: FlowConfig, *, defaults: bool) -> list[Value]:
    """What counts for a flow: its own keys, then those of its clients."""
    return [
        Value(name, redact(name, effective.value or ""), effective.origin,
              is_default=effective.entry is None)
        for name, key, effective in _counting(config)
        if effective.entry is not None or (defaults and key.default is not None)
    ]  # fmt: skip


def other_values(config: MirrorMakerConfig) -> list[Value]:
    """Everything else that is written, in the order of the file: each line is in one or the other.

    Keys of the whole mirror have no reason in ``no_effect``.
    """
    used = {
        effective.entry.key
        for flow in config.flows
        for _, _, effective in _counting(flow)
        if effective.entry is not None
    }
    return [
        Value(e.key, redact(e.key, e.value), f"line {e.line}" if e.line else config.name,
              _why_not(e.key, config))
        for e in config.entries.values() if e.key not in used
    ]  # fmt: skip


def _counting(config: FlowConfig) -> Iterator[tuple[str, Key, Effective]]:
    """Names, rows and values of the keys that Heliograph reads of a flow and of its clients."""
    for name, effective in sorted(config.effective.items()):
        key = find(Scope.FLOW, name)
        if key is not None and key.status is Status.HONOURED:
            yield name, key, effective
    for client, values in config.client_effective.items():
        for name, effective in sorted(values.items()):
            key = client_key(name, client.partition(".")[2])
            if key is not None and key.status is Status.HONOURED:
                yield f"{client}.{name}", key, effective


def _why_not(name: str, config: MirrorMakerConfig) -> str:
    placed = place(name, config.clusters)
    if placed.key is None:
        return "unknown key"
    if placed.no_effect:
        return placed.no_effect
    if placed.key.status is Status.ACCEPTED:
        return placed.key.doc
    if placed.key.scope in (Scope.TOP, Scope.WORKER):
        return ""
    return "no flow uses it: another line wins, or there is no such flow or client"
