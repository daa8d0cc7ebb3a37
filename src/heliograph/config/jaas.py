"""``sasl.jaas.config`` read as data. No class is ever loaded by the name written in it.

CVE-2023-25194 and CVE-2025-27818 were login modules named in a configuration: here only three
names are known, and they select code of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.errors import ConfigError

__all__ = ["MODULES", "JaasConfig", "parse_jaas"]

_PACKAGE = "org.apache.kafka.common.security"
MODULES: Mapping[str, tuple[str, ...]] = {
    f"{_PACKAGE}.plain.PlainLoginModule": ("PLAIN",),
    f"{_PACKAGE}.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""Accepted login modules and the SASL mechanisms each serves."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """A login module and its options; the options hold secrets, so they are left out of repr."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that the module serves."""
        return MODULES[self.module]


def parse_jaas(text: str) -> JaasConfig:
    """Parses ``<module> required option="value" ... ;`` with its templates already resolved.

    Raises:
        ConfigError: ``config.jaas``; the message holds no value of the text but the module name.
    """
    tokens = _tokens(text)
    if len(tokens) < 2:
        raise _error("it needs a login module and a control flag")
    (module, module_kind), (flag, _) = tokens[0], tokens[1]
    if module_kind != "word" or module not in MODULES:
        # Only what looks like a class: a template may have put a password here by mistake.
        shown = module if re.fullmatch(r"[\w.$]{1,200}Module", module) else "what is written"
        raise _error(f"{shown} is not an accepted login module")
    if flag.lower() not in _FLAGS:
        raise _error(f"the word after the login module must be one of {', '.join(_FLAGS)}")
    if tokens[-1] != (";", "mark"):
        raise _error("it must end with a semicolon")
    body = tokens[2:-1]
    if len(body) % 3:
        raise _error('options must be written as name="value"')
    options: dict[str, str] = {}
    for start in range(0, len(body), 3):
        (name, name_kind), equals, (value, value_kind) = body[start : start + 3]
        if name_kind != "word" or equals != ("=", "mark") or value_kind == "mark":
            raise _error('options must be written as name="value", and only one module is accepted')
        options[name] = value
    needed = () if "OAUTHBEARER" in MODULES[module] else ("username", "password")
    missing = [name for name in needed if name not in options]
    if missing:
        raise _error(f"option {' and '.join(missing)} is missing")
    return JaasConfig(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _error(f"a quote is not closed at position {position}")
        double, single, word, mark = match.groups()
        if mark is not None:
            tokens.append((mark, "mark"))
        elif word is not None:
            tokens.append((word, "word"))
        else:
            quoted = double if double is not None else single
            tokens.append((_unescape(quoted), "quoted"))
        position = match.end()
    return tokens


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


def _error(what: str) -> ConfigError:
    return ConfigError(
        "config.jaas",
        f"sasl.jaas.config: {what}",
        f'write <module> required name="value" ...; with <module> one of {", ".join(MODULES)}',
    )
