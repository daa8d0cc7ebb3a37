"""Checks of a file's entries, one by one, and of a flow's values together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from heliograph.config.flow import FlowConfig
from heliograph.config.key import Key, split_list
from heliograph.config.keys import Status
from heliograph.config.placement import (
    Placed,
    place,
    place_in_connector,
    report_in_connector,
    report_unknown,
)
from heliograph.config.problems import Problems
from heliograph.config.properties import Entry, Properties
from heliograph.config.providers import has_template, resolve
from heliograph.errors import ConfigError

__all__ = ["check_aliases", "check_connector_entries", "check_entries", "check_flow"]

_TOPIC_TEXT = re.compile(r"[a-zA-Z0-9._-]+")
"""What a topic name may consist of (Kafka's Topic.LEGAL_CHARS)."""

_Providers = Mapping[str, Mapping[str, str]]


def check_aliases(
    properties: Properties, providers: _Providers, problems: Problems
) -> tuple[str, ...]:
    """The declared cluster aliases; an error and no alias if there are none."""
    entry = properties.entries.get("clusters")
    value = ""
    if entry is not None:
        try:
            value = resolve(entry.value, providers)
        except ConfigError:
            return ()  # check_entries reports it with its line
    aliases = split_list(value)
    if not aliases:
        problems.error(
            "config.clusters-missing",
            "clusters",
            "no cluster is declared",
            line=entry.line if entry else 0,
            hint="add a line such as: clusters=A,B",
        )
    return tuple(dict.fromkeys(aliases))


def check_entries(
    properties: Properties, aliases: Sequence[str], providers: _Providers, problems: Problems
) -> None:
    """Checks every entry by itself: known, not removed, in an effective place, value allowed."""
    for entry in properties.entries.values():
        placed = place(entry.key, aliases)
        if placed.key is None:
            # Without aliases every prefix is unknown; the missing clusters line is the one error.
            if aliases:
                report_unknown(entry, placed, aliases, problems)
            continue
        if placed.key.status is Status.REMOVED:
            _report_removed(entry, placed, problems)
            continue
        if placed.no_effect:
            # Without effect, its default copies more than the file asks for.
            report = problems.error if placed.key.selects and not placed.loop else problems.warn
            report(
                "config.no-effect",
                entry.key,
                "has no effect here, as in MirrorMaker 2",
                line=entry.line,
                hint=placed.no_effect,
            )
            continue
        _check_value(entry, placed.key, providers, problems)


def check_connector_entries(
    entries: Mapping[str, Entry], providers: _Providers, problems: Problems
) -> None:
    """Checks every key of a connector's config by itself.

    Connect ignores keys that it does not know, and so do we, with a warning; but not if more would
    be copied than was asked for.
    """
    for entry in entries.values():
        placed = place_in_connector(entry.key)
        if placed.key is None:
            report_in_connector(entry, placed, problems)
        elif placed.key.status is Status.REMOVED:
            _report_removed(entry, placed, problems, fatal=bool(placed.key.replacement))
        elif placed.no_effect:
            message = "has no effect here, as in MirrorMaker 2"
            problems.warn("config.no-effect", entry.key, message, hint=placed.no_effect)
        else:
            _check_value(entry, placed.key, providers, problems)


def _report_removed(
    entry: Entry, placed: Placed, problems: Problems, *, fatal: bool = True
) -> None:
    key = placed.key
    if key is None:
        return
    hint = "remove the line"
    if key.replacement:
        hint = f"write {placed.prefix}{key.replacement} instead"
    message = f"MirrorMaker 2 removed this key in 4.0. {key.doc}"
    report = problems.error if fatal else problems.warn
    report("config.removed-key", entry.key, message, line=entry.line, hint=hint)


def _check_value(entry: Entry, key: Key, providers: _Providers, problems: Problems) -> None:
    # Provider declarations hold no templates; their own check names what is wrong.
    if key.name == "config.providers.*":
        return
    try:
        value = resolve(entry.value, providers)
    except ConfigError as error:
        problems.caught(error, entry.key, line=entry.line)
        return
    reason = key.problem(value)
    if reason is not None:
        # What a provider gave may be a secret by mistake; a reason may quote a pattern of it.
        if has_template(entry.value):
            reason = f"what it resolves to is wrong: expected {key.expected()}"
        hint = key.next_step()
        problems.bad_value(entry.key, entry.value, reason, line=entry.line, hint=hint)
    elif key.later and value.strip() != key.default:
        message = f"accepted, but does nothing yet. {key.doc}"
        problems.warn("config.later-key", entry.key, message, line=entry.line)


def check_flow(config: FlowConfig, problems: Problems) -> None:
    """Checks what only makes sense for a flow as a whole."""
    flow = config.flow
    separator = config.replication_policy_separator
    if not _TOPIC_TEXT.fullmatch(separator):
        entry = config.effective["replication.policy.separator"].entry
        key, line = (entry.key, entry.line) if entry else ("replication.policy.separator", 0)
        reason = "expected characters that a topic name may have: letters, digits, . _ -"
        problems.bad_value(key, entry.value if entry else separator, reason, line=line)
    for name, alias in (("source", flow.source), ("target", flow.target)):
        effective = config.effective[f"{name}.cluster.alias"]
        if effective.entry is not None and effective.value != alias:
            problems.bad_value(
                effective.entry.key,
                effective.value or "",
                f"expected {alias!r}, the alias in {flow}",
                line=effective.entry.line,
                hint="remove the line",
            )
    if config.enabled:
        _check_topic_names(config, problems)
        _check_buffer(config, problems)


def _check_buffer(config: FlowConfig, problems: Problems) -> None:
    entry = config.effective["heliograph.buffer.max.bytes"].entry
    if entry is not None and 0 < config.buffer_max_bytes < 4 * config.fetch_max_bytes:
        problems.warn(
            "config.small-buffer",
            entry.key,
            f"{config.buffer_max_bytes} is less than four fetches"
            f" (heliograph.fetch.max.bytes={config.fetch_max_bytes}): fetches are kept to a quarter"
            " of it, which may slow the copy down",
            line=entry.line,
            hint="raise it, or lower heliograph.fetch.max.bytes",
        )


def _check_topic_names(config: FlowConfig, problems: Problems) -> None:
    """Aliases may hold any character (S13), unless a topic has to be named after them."""
    named = [(config.flow.source, "the flow's internal topics carry the source's alias")]
    if config.emit_offset_syncs_enabled and config.offset_syncs_topic_location == "source":
        why = "mm2-offset-syncs carries the target's alias (offset-syncs.topic.location=source)"
        named.append((config.flow.target, why))
    for alias, why in named:
        if not _TOPIC_TEXT.fullmatch(alias):
            problems.error(
                "config.alias-not-topic-name",
                str(config.flow),
                f"alias {alias!r} cannot be part of a topic name: {why}",
                hint="use letters, digits, '.', '_' and '-' in this alias",
            )
