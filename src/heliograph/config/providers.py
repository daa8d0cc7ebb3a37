"""Secrets by reference: ``${file:path:key}``, ``${dir:path:name}``, ``${env:NAME}``.

Three of Kafka's providers are known by name; no class is loaded. Unlike Kafka's, an allow-list is
mandatory (CVE-2024-31141: providers in client configuration read any file). Runs in whichever
process opens a connection: the driver at load, to report an unreadable secret early, and executors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from heliograph.config.key import compile_pattern, split_list
from heliograph.config.properties import parse
from heliograph.errors import ConfigError

__all__ = ["check_providers", "has_template", "read_providers", "resolve"]

_PACKAGE = "org.apache.kafka.common.config.provider"
_KINDS = {
    f"{_PACKAGE}.FileConfigProvider": "file",
    f"{_PACKAGE}.DirectoryConfigProvider": "directory",
    f"{_PACKAGE}.EnvVarConfigProvider": "env",
}
_ALLOW_LIST = {
    "file": ("allowed.paths", "/etc/secrets"),
    "directory": ("allowed.paths", "/etc/secrets"),
    "env": ("allowlist.pattern", "KAFKA_.*"),
}
_SECRET_FILE_LIMIT_BYTES = 1 << 20


def has_template(value: str) -> bool:
    """Whether ``value`` refers to a provider."""
    return any(parts for _, parts in _pieces(value))


def read_providers(properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Collects ``config.providers`` keys: provider name -> {class, parameters}; checks nothing."""
    found: dict[str, dict[str, str]] = {}
    for name in split_list(properties.get("config.providers", "")):
        prefix = f"config.providers.{name}."
        settings = {k[len(prefix) :]: v for k, v in properties.items() if k.startswith(prefix)}
        found[name] = {k.removeprefix("param."): v for k, v in settings.items()}
    return found


def check_providers(providers: Mapping[str, Mapping[str, str]]) -> list[tuple[str, ConfigError]]:
    """Every mistake in the declarations, each with the key that it belongs to."""
    errors: list[tuple[str, ConfigError]] = []
    for name, settings in providers.items():
        key = f"config.providers.{name}."
        try:
            kind = _kind(name, settings)
        except ConfigError as error:
            errors.append((key + "class", error))
            continue
        try:
            _allow_list(name, kind, settings)
        except ConfigError as error:
            errors.append((f"{key}param.{_ALLOW_LIST[kind][0]}", error))
    return errors


def resolve(value: str, providers: Mapping[str, Mapping[str, str]]) -> str:
    """``value`` with its templates replaced; text that a secret contains is not expanded again.

    Args:
        value: a property value, with or without templates.
        providers: as ``read_providers`` returns them.

    Raises:
        ConfigError: unknown provider, missing allow-list, or a secret that is not allowed or cannot
            be read. The message names provider, file and key, never a secret.
    """
    return "".join(text if parts is None else _read(*parts, providers)
                   for text, parts in _pieces(value))  # fmt: skip


def _pieces(value: str) -> Iterator[tuple[str, tuple[str, str, str] | None]]:
    """Text as it is, and templates as provider, path and key; in the order of ``value``.

    The same that Kafka's expression finds, in one pass: that one takes forever over many colons.
    """
    position = 0
    while (begin := value.find("${", position)) >= 0 and (end := value.find("}", begin)) >= 0:
        parts = value[begin + 2 : end].split(":", 2)
        if len(parts) > 1:
            yield value[position:begin], None
            yield value[begin : end + 1], (parts[0], ":".join(parts[1:-1]), parts[-1])
            position = end + 1
        else:
            yield value[position : begin + 2], None
            position = begin + 2
    yield value[position:], None


def _read(name: str, path: str, key: str, providers: Mapping[str, Mapping[str, str]]) -> str:
    settings = providers.get(name)
    if settings is None:
        raise ConfigError(
            "config.provider-unknown",
            f"provider {name!r} is not declared",
            f"add it to config.providers and set config.providers.{name}.class",
        )
    kind = _kind(name, settings)
    allowed = _allow_list(name, kind, settings)
    if kind == "env":
        return _read_env(name, key, allowed)
    roots = [Path(root) for root in split_list(allowed)]
    if kind == "directory":
        if not key or Path(key).name != key:
            raise _denied(name, key, "the name after the directory must be a plain file name")
        return _read_text(name, Path(path) / key, roots)
    file = Path(path)
    text = _read_text(name, file, roots)
    try:
        found = parse(text).get(key)
    except ConfigError as error:
        raise ConfigError(
            "config.provider-unreadable", f"provider {name}: {file}: {error.args[0]}", error.hint
        ) from None
    if found is None:
        raise ConfigError(
            "config.provider-key-missing", f"provider {name}: {file} has no key {key!r}"
        )
    return found


def _read_env(name: str, variable: str, allowed: str) -> str:
    try:
        pattern = compile_pattern(allowed)
    except ValueError as error:
        raise ConfigError("config.provider-allow-list", f"provider {name}: {error}") from None
    if not pattern.fullmatch(variable):
        raise _denied(name, variable, "the variable does not match allowlist.pattern")
    found = os.environ.get(variable)
    if found is None:
        raise ConfigError(
            "config.provider-key-missing",
            f"provider {name}: environment variable {variable} is not set",
        )
    return found


def _read_text(name: str, file: Path, roots: list[Path]) -> str:
    if not file.is_absolute():
        raise _denied(name, str(file), "the path must be absolute")
    try:
        # Links are followed first, so that one inside an allowed directory cannot lead out of it.
        real = file.resolve(strict=True)
        if not any(real.is_relative_to(root.resolve()) for root in roots):
            raise _denied(name, str(file), "the file is outside allowed.paths")
        with real.open("rb") as stream:
            data = stream.read(_SECRET_FILE_LIMIT_BYTES + 1)
        if len(data) > _SECRET_FILE_LIMIT_BYTES:
            raise ConfigError(
                "config.provider-unreadable", f"provider {name}: {file} is larger than 1 MiB"
            )
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            "config.provider-unreadable", f"provider {name}: {file} is not UTF-8 text"
        ) from None
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "links form a loop"
        raise ConfigError(
            "config.provider-unreadable",
            f"provider {name}: cannot read {file}: {why}",
            "check the path and that this user may read it",
        ) from None


def _kind(name: str, settings: Mapping[str, str]) -> str:
    given = settings.get("class", "").strip()
    kind = _KINDS.get(given)
    if kind is None:
        what = f"class {given!r} is not a known provider" if given else "its class is not set"
        raise ConfigError(
            "config.provider-class",
            f"provider {name}: {what}",
            f"set config.providers.{name}.class to one of {', '.join(_KINDS)}",
        )
    return kind


def _allow_list(name: str, kind: str, settings: Mapping[str, str]) -> str:
    param, example = _ALLOW_LIST[kind]
    allowed = settings.get(param, "").strip()
    if not allowed:
        raise ConfigError(
            "config.provider-allow-list",
            f"provider {name}: {param} is not set; Heliograph reads nothing without it",
            f"add a line such as: config.providers.{name}.param.{param}={example}",
        )
    return allowed


def _denied(name: str, what: str, why: str) -> ConfigError:
    return ConfigError("config.provider-denied", f"provider {name}: {what!r} refused: {why}")
