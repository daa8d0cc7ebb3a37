"""Filters by lists of regular expressions, as MM2's DefaultTopicFilter and its kin."""

from __future__ import annotations

import re
from collections.abc import Iterable

from heliograph.config.key import compile_pattern

__all__ = ["PatternFilter", "TopicFilter"]


class PatternFilter:
    """Matches whole names against any of some expressions; no expression matches nothing.

    Each expression is compiled by itself, where MM2 joins them with ``|``: the same for lists that
    compile, but flags and groups of one do not leak into the next.

    Raises:
        ValueError: an expression does not compile; config.load has reported that before.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns: tuple[re.Pattern[str], ...] = tuple(map(compile_pattern, patterns))

    def __call__(self, name: str) -> bool:
        """Whether one of the expressions matches all of ``name``."""
        return any(pattern.fullmatch(name) for pattern in self._patterns)


class TopicFilter:
    """Accepts names that ``include`` matches and ``exclude`` does not."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = PatternFilter(include)
        self._exclude = PatternFilter(exclude)

    def accepts(self, topic: str) -> bool:
        """Whether the lists select ``topic``; internal topics and cycles are judged elsewhere."""
        return self._include(topic) and not self._exclude(topic)
