"""Expressions that take exponential time are refused, and no others."""

from __future__ import annotations

import re
import time
from re import _constants as op
from re import _parser as parser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.backtracking import first_slow
from heliograph.config.keys import KEYS, Type

PATTERNS = next(key for key in KEYS if key.name == "topics")
#: What MM2's documentation, tutorials and operators' files have.
ORDINARY = [
    ".*", "orders", r"orders\..*", ".*-topic", r"(?!internal).*", r"^(?!.*(foo|bar)).*$", "__.*",
    r".*[\-\.]internal", r".*\.replica", "console-consumer-.*", "connect-.*", "[a-z]+(-[a-z]+)*",
    r"(prod|test)\.[a-z0-9_-]+", r"[A-Za-z0-9._-]{249}", "(?i)orders.*", r"([a-z]+-)*[a-z]+",
    r"(\w+\.)*events", ".*(a|b|c).*", "(orders|payments)", "(orders|payments)(-v[0-9]+)?", "(.*)",
    "(.*)*", "(.+)+", "(?:.*)+", ".*foo.*bar.*", r"team-\d+\..+", "[^_].*", "x*y*z*", "(ab|a)b*",
    r"(a+)\1", r"(?>a+)+b", "(a++)+b", "|".join(f"topic-{n}" for n in range(700)),
]  # fmt: skip
SLOW = [
    "(a+)+b", "(a*)*b", "(a|a)*b", "(a|aa)+b", "^(a+)+$", r"(\w+\.?)+x", "([a-z]+-?)*x", "(a?b?)*c",
    r"([a-zA-Z0-9_-]+)+\.prod", "((a+)b?)*c", "(x+x+)+y", "(.*)*x",
    "(?i)(A+)+b", "(a+?)+?b", "orders-(v?[0-9]+)+-x", "(a|b|ab)*c",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ORDINARY)
def test_ordinary_expressions_are_accepted(pattern):
    assert PATTERNS.problem(pattern) is None


@pytest.mark.parametrize("pattern", SLOW)
def test_slow_expressions_are_refused_with_a_name_that_shows_it(pattern):
    problem = PATTERNS.problem(f"orders,{pattern}")
    assert problem.startswith(f"pattern {pattern!r} takes exponential time, for example for '")
    assert problem.endswith("; write it without nested repetitions, such as (a+)+")


@pytest.mark.parametrize("name", [key.name for key in KEYS if key.type is Type.REGEX_LIST])
def test_every_list_of_expressions_is_checked(name):
    [key] = [key for key in KEYS if key.name == name]
    if key.default is not None:
        assert key.problem(key.default) is None
    assert "exponential" in key.problem("(a+)+b")


@pytest.mark.parametrize(
    "pattern",
    ["(" * 90 + "a" + ")*" * 90, "(" * 50 + ")+" * 50 + "a", "(((a{1000}){1000}){1000})",
     "(" + "|".join(f"topic-{n}" for n in range(700)) + ")*", "(" + ".*" * 300 + "x)*",
     ",".join(["(" + ".*" * 100 + "x)*"] * 50)],
    ids=["stars", "nothing", "counts", "words", "dots", "many"],
)  # fmt: skip
def test_judging_takes_no_longer_than_it_may(pattern):
    before = time.process_time()
    first_slow(pattern.split(","))
    # Without a limit it would be hours; CPU time, because the machine may be loaded.
    assert time.process_time() - before < 60


# -- compared with a matcher that counts ----------------------------------------------------------


class _TooMany(Exception):
    pass


class Counting:
    """Matches as Java does, by going back; counts how often it looks at a letter."""

    def __init__(self, pattern, limit):
        self._items = list(parser.parse(pattern))
        self._limit = limit

    def steps(self, text):
        self._count = 0
        next((end for end in self._sequence(self._items, text, 0) if end == len(text)), None)
        return self._count

    def _sequence(self, items, text, at):
        if not items:
            yield at
            return
        (kind, value), *_ = items
        for end in self._one(kind, value, text, at):
            yield from self._sequence(items[1:], text, end)

    def _one(self, kind, value, text, at):
        self._count += 1
        if self._count > self._limit:
            raise _TooMany
        if kind is op.LITERAL:
            if at < len(text) and ord(text[at]) == value:
                yield at + 1
        elif kind is op.IN:
            if at < len(text) and any(ord(text[at]) == v for k, v in value if k is op.LITERAL):
                yield at + 1
        elif kind is op.SUBPATTERN:
            yield from self._sequence(list(value[-1]), text, at)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from self._sequence(list(branch), text, at)
        else:
            least, most, inner = value
            yield from self._repeat(least, most, inner, text, at)

    def _repeat(self, least, most, inner, text, at):
        if most is op.MAXREPEAT or most > 0:
            left = most if most is op.MAXREPEAT else most - 1
            for end in self._sequence(list(inner), text, at):
                if end > at:
                    yield from self._repeat(max(0, least - 1), left, inner, text, end)
                elif least:
                    yield end
        if not least:
            yield at


def _deeper(inner):
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda two: f"({two[0]}){two[1]}"),
    )


_EXPRESSIONS = st.recursive(st.sampled_from("aab"), _deeper, max_leaves=4)


@given(pattern=_EXPRESSIONS)
def test_a_matcher_that_counts_agrees(pattern):
    """Slow: each repetition of the text doubles the work. Not slow: no text does that."""
    re.compile(pattern)
    counting = Counting(pattern, limit=200_000)
    found = first_slow([pattern])
    words = [a + b + c for a in "ab" for b in ("", "a", "b") for c in ("", "a", "b")]
    if found is None:
        # All that repeats something short, from some starts, with an end that may not fit. Four
        # more repetitions are 16 times the work if each doubles it; by the fifth power it is 13.
        for word in words:
            few = {1: 12, 2: 8, 3: 6}[len(word)]
            for begin in ("", "a", "b", "ab"):
                for end in ("!", ""):
                    before = counting.steps(begin + word * few + end)
                    assert counting.steps(begin + word * (few + 4) + end) < 14 * before + 200
    else:
        # Of the kind that it names: a beginning, something again and again, an end.
        with pytest.raises(_TooMany):
            for word in words:
                for begin in ("", "a", "b", "ab", "aa", "bb", "ba"):
                    counting.steps(begin + word * 25 + "!")
                    counting.steps(begin + word * 25)
