"""Collects everything wrong with a file, so that a user sees all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.config.secrets import redact
from heliograph.errors import ConfigError

__all__ = ["ConfigErrors", "Problem", "Problems"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding.

    Attributes:
        code: stable, e.g. ``config.bad-value``.
        where: ``mm2.properties:12``, or the file alone when something is missing.
        key: the key as written, with its prefix; may be empty.
        message: what is wrong and what was expected; holds no secret.
        hint: the next step; may be empty.
    """

    code: str
    where: str
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        key = f" {self.key}:" if self.key else ""
        hint = f"\n    -> {self.hint}" if self.hint else ""
        return f"{self.where}:{key} {self.message} [{self.code}]{hint}"


class ConfigErrors(ConfigError):
    """Every error of one configuration. ``problems`` is never empty."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__("config.errors", f"{count} in the configuration:{lines}")
        self.problems = tuple(problems)


@dataclass(slots=True)
class Problems:
    """The errors and warnings found so far; each begins with ``name``. Equal ones are kept once."""

    name: str
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, code: str, key: str, message: str, *, line: int = 0, hint: str = "") -> None:
        """Notes an error; ``line`` 0 means that it belongs to no line."""
        self._add(self.errors, Problem(code, self._where(line), key, message, hint))

    def warn(self, code: str, key: str, message: str, *, line: int = 0, hint: str = "") -> None:
        """Notes something that does not stop the mirror."""
        self._add(self.warnings, Problem(code, self._where(line), key, message, hint))

    def bad_value(self, key: str, value: str, reason: str, *, line: int, hint: str = "") -> None:
        """Notes a value that its key does not allow; a secret is not repeated."""
        message = f"value {redact(key, value)!r}: {reason}"
        self.error("config.bad-value", key, message, line=line, hint=hint)

    def caught(self, error: ConfigError, key: str, *, line: int = 0) -> None:
        """Notes an error raised by a reader of one value."""
        self.error(error.code, key, str(error.args[0]), line=line, hint=error.hint)

    def raise_if_any(self) -> None:
        """Raises all errors together, in the order of the file's lines.

        Raises:
            ConfigErrors: if there is at least one.
        """
        if self.errors:
            raise ConfigErrors(sorted(self.errors, key=_line))

    def _where(self, line: int) -> str:
        return f"{self.name}:{line}" if line else self.name

    @staticmethod
    def _add(findings: list[Problem], problem: Problem) -> None:
        if problem not in findings:
            findings.append(problem)


def _line(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0
