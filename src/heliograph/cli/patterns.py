"""Regular expressions as options of commands."""

from __future__ import annotations

import click

from heliograph.config.key import BoundedPattern, compile_pattern

__all__ = ["PatternType"]


class PatternType(click.ParamType[BoundedPattern]):
    """A regular expression that has to match a whole name."""

    name = "REGEX"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> BoundedPattern:
        """The compiled expression."""
        try:
            return compile_pattern(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
