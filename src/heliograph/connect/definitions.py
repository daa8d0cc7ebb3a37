"""The keys of the connectors, and Connect's judgement of a config, key by key. Pure.

All comes from the one table of keys: from rows that say how Connect shows them (`Key.shown`). Words
of messages are Connect's, because its clients show them; what only Heliograph minds is said in its
own. No template is shown resolved, and no secret at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from heliograph.config.key import Key, Type, split_list
from heliograph.config.keys import client_key
from heliograph.config.placement import place_in_connector
from heliograph.config.problems import Problems
from heliograph.config.properties import Entry
from heliograph.config.providers import has_template, resolve
from heliograph.config.secrets import HIDDEN, redact
from heliograph.config.validation import check_connector_entries
from heliograph.connect.api import ConnectError
from heliograph.connect.connectors import (
    KAFKA_VERSION,
    ConnectorClass,
    check_urls,
    connector_class,
    override_refusal,
)
from heliograph.connect.shown_keys import (
    GROUPS,
    default_of,
    definition_of,
    keys_of,
    plugin_keys,
    type_of,
)
from heliograph.connect.values import NUMBERS, canonical, parses
from heliograph.connect.worker_config import WorkerConfig
from heliograph.errors import ConfigError
from heliograph.shown import shown

__all__ = ["config_errors", "connector_class", "definitions", "invalid", "validate"]

_BAD_REQUEST = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
_OVERRIDES = "producer.override."
_NULL = "Null value can not be supplied as the configuration value."


class _Judged(NamedTuple):
    value: str | None
    errors: list[str]


def definitions(plugin: str, version: str | None = None) -> list[dict[str, Any]]:
    """The definitions of a connector's keys, as ``GET /connector-plugins/P/config``.

    Raises:
        ConnectError: 404 if there is no such connector, 400 if not in that version.
    """
    kind = connector_class(plugin)
    if kind is None:
        raise ConnectError(404, f"Unknown plugin {shown(plugin)}.")
    if version is not None:
        _check_version(kind, version)
    return [definition_of(key) for key in plugin_keys(kind)]


def _check_version(kind: ConnectorClass, version: str) -> None:
    """Raise ConnectError if there is no such version; a range may be given, as Maven writes it."""
    if version in ("latest", KAFKA_VERSION):
        return
    ranged = re.fullmatch(r"[\[(]([^,\])]*)(?:,([^,\])]*))?[\])]", version)
    if ranged is None and version[:1] in ("[", "("):
        raise ConnectError(400, f"Invalid version specification: {shown(version)}")
    if ranged is not None:
        low, high = ranged[1], ranged[1] if ranged[2] is None else ranged[2]
        ours = _numbers(KAFKA_VERSION)
        above = not low or _numbers(low) < ours or (_numbers(low) == ours and version[0] == "[")
        below = not high or ours < _numbers(high) or (_numbers(high) == ours and version[-1] == "]")
        if above and below:
            return
    wanted = version if ranged is not None else f"[{version},{version}]"
    raise ConnectError(
        400,
        f"Plugin {kind.class_name} not found that matches the version range {shown(wanted)},"
        f" available versions: [{KAFKA_VERSION}]",
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def validate(plugin: str, config: Mapping[str, str | None], worker: WorkerConfig) -> dict[str, Any]:
    """Connect's ConfigInfos, as ``PUT /connector-plugins/P/config/validate``.

    Raises:
        ConnectError: 400 if the config names another connector than ``plugin``, 500 if it names
            none or one that is not there.
    """
    named = config.get("connector.class")
    if named is not None and not _normal(named).endswith(_normal(plugin)):
        raise ConnectError(
            400,
            f"Included connector type {shown(named)} does not match request type {shown(plugin)}",
        )
    try:
        return _infos(_kind(named), config, worker)
    except ConnectError as error:
        # As Connect: what is a bad request elsewhere is wrapped here.
        raise ConnectError(500, _BAD_REQUEST + error.message) from None


def invalid(name: str, config: Mapping[str, str | None], worker: WorkerConfig) -> str | None:
    """Why no connector may be created with ``config``: the message of a 400; None if it may.

    What it lets pass may still not run (`heliograph.connect.connectors.plan_connector`): then the
    connector is created, and fails. ``name`` counts if the config has none.
    """
    try:
        kind = _kind(config.get("connector.class"))
    except ConnectError as error:
        return error.message
    return config_errors(_infos(kind, {"name": name, **config}, worker))


def config_errors(infos: Mapping[str, Any]) -> str | None:
    """The message about a config that ``validate`` found errors in; None if it found none."""
    if not infos["error_count"]:
        return None
    errors = [error for each in infos["configs"] for error in each["value"]["errors"]]
    return "\n".join(
        (
            "Connector configuration is invalid and contains the following"
            f" {infos['error_count']} error(s):",
            *errors,
            "You can also find the above list of errors at the endpoint"
            " `/connector-plugins/{connectorType}/config/validate`",
        )
    )


def _normal(name: str) -> str:
    return name.removesuffix("Connector")


def _kind(named: str | None) -> ConnectorClass:
    if named is None:
        # Connect repeats the config here, secrets and all.
        raise ConnectError(400, "Connector config contains no connector type")
    kind = connector_class(named)
    if kind is None:
        known = ", ".join(
            f"PluginDesc{{klass=class {each.class_name}, name='{each.class_name}',"
            f" version='{KAFKA_VERSION}', encodedVersion={KAFKA_VERSION}, type=source,"
            " typeName='source', location='classpath'}"
            for each in ConnectorClass
        )
        raise ConnectError(
            400,
            "Failed to find any class that implements Connector and which name matches"
            f" {shown(named)}, available connectors are: {known}",
        )
    return kind


def _infos(
    kind: ConnectorClass, config: Mapping[str, str | None], worker: WorkerConfig
) -> dict[str, Any]:
    judged = {key.name: _judge(key, config, worker) for key in keys_of(kind)}
    more = {name: _Judged(None, [_NULL]) for name, value in config.items()
            if value is None and name not in judged}  # fmt: skip
    for name, error in (*_mm2_errors(kind, config), *_own_errors(config, judged, worker)):
        # A key that this connector does not have.
        found = judged.get(name) or more.setdefault(name, _Judged(None, []))
        found.errors.append(error)
    configs = [_info(None, name, value) for name, value in more.items()]
    configs += [
        _info(definition_of(key), key.name, judged[key.name], visible=_visible(key.name, config))
        for key in keys_of(kind)
    ]
    configs += _overrides(config, worker)
    count = sum(len(each["value"]["errors"]) for each in configs)
    return {
        "name": config["connector.class"],
        "error_count": count,
        "groups": list(GROUPS),
        "configs": configs,
    }


def _info(
    definition: Mapping[str, Any] | None, name: str, judged: _Judged, *, visible: bool = True
) -> dict[str, Any]:
    value = {
        "name": name,
        "value": judged.value,
        "recommended_values": [],
        "errors": judged.errors,
        "visible": visible,
    }
    return {"definition": definition, "value": value}


def _visible(name: str, config: Mapping[str, str | None]) -> bool:
    converter = name.removesuffix(".plugin.version")
    return not (converter != name and converter.endswith("converter")) or converter in config


def _judge(key: Key, config: Mapping[str, str | None], worker: WorkerConfig) -> _Judged:
    if key.name not in config:
        if key.shown is not None and key.shown.required:
            text = f'Missing required configuration "{key.name}" which has no default value.'
            return _Judged(None, [text])
        return _Judged(default_of(key), [])
    written = config[key.name]
    if written is None:
        return _Judged(None, [_NULL])
    try:
        text = resolve(written, worker.providers).strip()
    except ConfigError as error:
        return _Judged(written, [_invalid(key, written, str(error.args[0]))])
    hidden = type_of(key) == "PASSWORD"
    reasons = list(_reasons(key, text))
    unread = not parses(text, type_of(key)) or type_of(key) == "CLASS"
    value = None if reasons and unread else canonical(text, type_of(key))
    if has_template(written):
        value = written
        # What a provider gave may be a secret by mistake, and a reason may quote it.
        reasons = [f"what it resolves to is wrong: expected {key.expected()}"] if reasons else []
    errors = [_invalid(key, written if i == 0 else "null", r) for i, r in enumerate(reasons)]
    if value:
        # A URL's key, and what was pasted into the wrong place, is hidden in any key.
        value = HIDDEN if hidden else redact(key.name, value)
    return _Judged(value, errors)


def _invalid(key: Key, written: str, reason: str) -> str:
    value = redact(key.name, written)
    return f"Invalid value {value} for configuration {key.name}: {reason}"


def _reasons(key: Key, text: str) -> Iterator[str]:
    """What is wrong with a value, in Connect's words; what only Heliograph minds, in its own."""
    kind, facts = type_of(key), key.shown
    low = facts.low if facts is not None else None
    high = facts.high if facts is not None else None
    if not parses(text, kind):
        if kind == "BOOLEAN":
            yield "Expected value to be either true or false"
        elif kind == "CLASS":
            yield f"Class {text} could not be found."
        else:
            yield f"Not a number of type {kind}"
            if low is not None:
                yield "Value must be non-null"
        return
    low = key.minimum if low is None else low
    if kind in NUMBERS and low is not None and float(text) < low:
        yield f"Value must be at least {_number(low, kind)}"
        return
    if kind in NUMBERS and high is not None and float(text) > high:
        yield f"Value must be no more than {_number(high, kind)}"
        return
    if key.name == "name":
        yield from _name_reasons(text)
    if key.name == "offsets.storage.topic" and not text:
        yield "String must be non-empty"
    if kind == "CLASS" and not key.allowed and text and "." not in text:
        # It is not used. But a bare name is none that Java would find.
        yield f"Class {text} could not be found."
    problem = key.problem(text)
    if problem is None:
        return
    if key.type is Type.CLASS:
        yield f"Class {text} could not be found. {problem}. {key.next_step()}".rstrip(" .") + "."
    elif key.allowed and key.type is Type.STRING and "" not in key.allowed:
        names = ", ".join(v.upper() if key.ignore_case else v for v in key.allowed)
        yield f"String must be one of{' (case insensitive)' if key.ignore_case else ''}: {names}"
    else:
        step = key.next_step()
        yield f"{problem}. {step}" if step else problem


def _name_reasons(text: str) -> Iterator[str]:
    if not text:
        yield "String may not be empty"
    control = [str(ord(c)) for c in text if ord(c) < 32 or 127 <= ord(c) < 160]
    if control:
        yield (
            "String may not contain control sequences but had the following ASCII chars: "
            + ", ".join(control)
        )


def _number(bound: float, kind: str) -> str:
    return str(float(bound)) if kind == "DOUBLE" else str(int(bound))


def _mm2_errors(
    kind: ConnectorClass, config: Mapping[str, str | None]
) -> Iterator[tuple[str, str]]:
    """What MM2's connectors check of several keys together, and their versions."""
    if version := config.get("connector.plugin.version"):
        try:
            _check_version(kind, version)
        except ConnectError as error:
            yield "connector.class", error.message
            yield "connector.plugin.version", error.message
    no_syncs = config.get("emit.offset-syncs.enabled") == "false"
    syncs = "emit.offset-syncs.enabled"
    if kind is ConnectorClass.SOURCE:
        if no_syncs and any(k.startswith(("offset-syncs.topic.", "offset-syncs-")) for k in config):
            said = "MirrorSourceConnector can't setup offset-syncs feature while"
            yield syncs, f"{said} {syncs} set to false"
        levels = [config[k] for k in ("consumer.isolation.level", "source.consumer.isolation.level")
                  if k in config]  # fmt: skip
        # Here read_committed is the default.
        if config.get("exactly.once.support") == "required" and levels[-1:] == ["read_uncommitted"]:
            yield "exactly.once.support", "exactly once needs isolation.level=read_committed"
    if kind is ConnectorClass.CHECKPOINT and (config.get("enabled") or "true").lower() != "false":
        if config.get("emit.checkpoints.enabled") == "false":
            key = "emit.checkpoints.enabled"
            yield key, f"MirrorCheckpointConnector can't run with {key} set to false"
        if no_syncs:
            yield syncs, "MirrorCheckpointConnector can't run without offset syncs"


def _own_errors(
    config: Mapping[str, str | None], judged: Mapping[str, _Judged], worker: WorkerConfig
) -> Iterator[tuple[str, str]]:
    """What Connect lets pass, and what must not be found out only when the connector runs.

    Keys that were meant to narrow what is copied, and URLs that the worker's file does not allow.
    """
    entries = {n: Entry(n, v, 0) for n, v in config.items() if v is not None}
    problems = Problems("")
    check_urls(entries, worker, problems)
    unknown = {
        n: e for n, e in entries.items()
        if n not in judged and not n.startswith("config.providers")
        and ((placed := place_in_connector(n)).key is None or placed.key.replacement)
    }  # fmt: skip
    check_connector_entries(unknown, worker.providers, problems)
    for problem in problems.errors:
        hint = f"; {problem.hint}" if problem.hint else ""
        yield problem.key, f"Invalid configuration {shown(problem.key)}: {problem.message}{hint}"
    declared = entries.get("config.providers")
    for name in split_list(declared.value) if declared is not None else ():
        if name not in worker.providers:
            said = f"Invalid value {shown(name)} for configuration config.providers"
            yield "config.providers", f"{said}: not declared in the worker's file"


def _overrides(config: Mapping[str, str | None], worker: WorkerConfig) -> list[dict[str, Any]]:
    """Settings of the connector's producer, which the worker's policy may not allow."""
    found = []
    for name, value in config.items():
        if not name.startswith(_OVERRIDES) or value is None:
            continue
        plain = name.removeprefix(_OVERRIDES)
        key = client_key(plain, "producer")
        exact = key is not None and key.name == plain
        hidden = redact(name, value) == HIDDEN
        errors = [] if worker.allows_override(plain) else [override_refusal(name, worker)]
        judged = _Judged(HIDDEN if hidden else value, errors)
        found.append(_info(definition_of(key, _OVERRIDES) if key and exact else None, name, judged))
    return found
