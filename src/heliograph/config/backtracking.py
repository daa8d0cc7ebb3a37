"""Regular expressions for which some names take exponential time: found without trying. Pure.

A matcher that goes back and tries again, as Java's and Python's do, takes exponential time if the
expression can read the same text in two ways, again and again, and what follows then does not
match: ``(a+)+b`` for "aaaa...!". Whether that is possible is decided on the automaton of the
expression, not by how it looks: ``([a-z]+-)*x`` is harmless, ``([a-z]+-?)*x`` is not.

1. The parsed expression becomes an automaton whose states are the places of its characters. An edge
   is double if one place follows another in two ways, as in ``(a+)+``.
2. It is ambiguous without bound if a place leads back to itself by two different ways that read the
   same text: by a double edge, or by two ways that part and meet again. The second is looked for in
   pairs of places.
3. If so, there must also be an end that does not match: ``(.*)*`` matches every name, at once.

What it cannot judge (look-around, back references, atomic groups, anchors in the middle, very large
expressions) counts as harmless: `heliograph.config.key.BoundedPattern` gives up on it at run time.
Slow, but not exponentially so, is not looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from string import ascii_letters, digits
from typing import Any

__all__ = ["first_slow"]

# Python's own parser of expressions; no type stubs know it.
op: Any = import_module("re._constants")
parser: Any = import_module("re._parser")

#: Names are made of these, and of what the expression itself mentions. The exclamation mark stands
#: for whatever else a group's name may have.
_ALPHABET = ascii_letters + digits + "._-!"
#: What is looked at of all expressions of a key: some tenths of a second.
_MOST_STEPS = 150_000
_SHOWN_TIMES, _MORE_TIMES = 4, 20
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_ENDS = (op.AT_BEGINNING, op.AT_BEGINNING_STRING, op.AT_END, op.AT_END_STRING)


class _NotJudged(Exception):
    """Whether it is slow is not known."""


class _Steps:
    """How much may still be looked at."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _NotJudged


def first_slow(patterns: Iterable[str]) -> tuple[str, str] | None:
    """The first of some expressions that is slow, and the beginning of a name that it is slow for.

    All must compile. None if none is found in some tenths of a second.
    """
    steps = _Steps(_MOST_STEPS)
    for pattern in patterns:
        try:
            automaton = _Automaton(parser.parse(pattern), _letters_of(pattern), steps)
            name = automaton.slow_name()
        except (_NotJudged, RecursionError):
            continue
        if name is not None:
            return pattern, name
    return None


def _letters_of(pattern: str) -> str:
    return "".join(dict.fromkeys(_ALPHABET + "".join(c for c in pattern if c.isprintable())))


class _Automaton:
    """Places of characters. 0 is the start; ``letters[p]`` is what place p reads."""

    def __init__(self, tree: Any, alphabet: str, steps: _Steps) -> None:
        if tree.state.flags & ~(re.UNICODE | re.IGNORECASE | re.DOTALL | re.VERBOSE):
            raise _NotJudged
        self._ignore_case = bool(tree.state.flags & re.IGNORECASE)
        self._alphabet = alphabet
        self._spend = steps.spend
        self.letters: list[frozenset[str]] = [frozenset()]
        #: How many ways lead from a place to the next, 1 or 2; 2 stands for any more.
        self.edges: list[dict[int, int]] = [{}]
        ends = self._sequence(list(tree), {0: 1}, outermost=True)
        self.accepting = frozenset(ends)

    # -- from the expression ------------------------------------------------------------------
    #
    # Each method takes the places before a part, with the number of ways to each, and returns
    # those behind it.

    def _sequence(
        self, items: Sequence[Any], before: Mapping[int, int], *, outermost: bool = False
    ) -> dict[int, int]:
        now = dict(before)
        for number, (kind, value) in enumerate(items):
            at_an_end = outermost and number in (0, len(items) - 1)
            if kind is op.AT and at_an_end and value in _ENDS:
                continue
            now = self._part(kind, value, now)
        return now

    def _part(self, kind: Any, value: Any, before: Mapping[int, int]) -> dict[int, int]:
        self._spend(1 + len(before))
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return self._place(self._read_by(kind, value), before)
        if kind is op.SUBPATTERN:
            _, added, removed, inner = value
            if added or removed:
                raise _NotJudged
            return self._sequence(list(inner), before)
        if kind is op.BRANCH:
            return _sum(self._sequence(list(branch), before) for branch in value[1])
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(list(inner), least, most, before)
        raise _NotJudged

    def _place(self, letters: frozenset[str], before: Mapping[int, int]) -> dict[int, int]:
        place = self._new(letters)
        self._connect(before, {place: 1})
        return {place: 1}

    def _new(self, letters: frozenset[str]) -> int:
        # As much as it costs to compare it with every letter.
        self._spend(len(self._alphabet))
        self.letters.append(letters)
        self.edges.append({})
        return len(self.letters) - 1

    def _connect(self, before: Mapping[int, int], behind: Mapping[int, int]) -> None:
        self._spend(len(before) * len(behind))
        for place, ways in before.items():
            for following, more in behind.items():
                known = self.edges[place].get(following, 0)
                self.edges[place][following] = min(2, known + ways * more)

    def _repeat(
        self, inner: list[Any], least: int, most: Any, before: Mapping[int, int]
    ) -> dict[int, int]:
        now = dict(before)
        unbounded = most is op.MAXREPEAT
        for _ in range(max(0, least - 1) if unbounded else least):
            now = self._sequence(inner, now)
        if unbounded:
            return self._loop(inner, now, at_least_once=least > 0)
        done = dict(now)
        for _ in range(most - least):
            now = self._sequence(inner, now)
            done = _sum([done, now])
        return done

    def _loop(
        self, inner: list[Any], before: Mapping[int, int], *, at_least_once: bool
    ) -> dict[int, int]:
        """Round and round. A further round that reads nothing is none: matchers leave it out."""
        # What may begin a round is what follows a place before it that nothing leads to.
        mark = self._new(frozenset())
        behind = self._sequence(inner, {**before, mark: 1})
        starts, self.edges[mark] = self.edges[mark], {}
        read = {place: ways for place, ways in behind.items() if place > mark}
        self._connect(read, starts)
        if not at_least_once:
            return _sum([before, read])
        return {place: ways for place, ways in behind.items() if place != mark}

    def _read_by(self, kind: Any, value: Any) -> frozenset[str]:
        return frozenset(c for c in self._alphabet if self._reads(kind, value, c))

    def _reads(self, kind: Any, value: Any, letter: str) -> bool:
        if kind is op.ANY:
            return True
        cases = {letter, letter.lower(), letter.upper()} if self._ignore_case else {letter}
        if kind is op.LITERAL:
            return chr(value) in cases
        if kind is op.NOT_LITERAL:
            return chr(value) not in cases
        negated = value[0][0] is op.NEGATE
        return negated != any(_in_item(item, case) for item in value for case in cases)

    # -- slow? --------------------------------------------------------------------------------

    def slow_name(self) -> str | None:
        """The beginning of a name that takes exponential time; None if there is none."""
        for place, word in self._ambiguous():
            way = self._way(0, {place})
            name = way + word * _SHOWN_TIMES
            end = self._failing_end(self._read(name))
            if end is not None and not self._accepts(way + word * _MORE_TIMES + end):
                return name + end
        return None

    def _ambiguous(self) -> Iterator[tuple[int, str]]:
        """Places that lead back to themselves in two ways, and the text that both read."""
        for knot in self._knots():
            for place in knot:
                for following, ways in self.edges[place].items():
                    if ways > 1 and following in knot:
                        yield place, self._step(following) + self._way(following, {place})
            yield from self._parting(knot)

    def _parting(self, knot: frozenset[int]) -> Iterator[tuple[int, str]]:
        """Two ways inside a knot that part at a place, read the same, and meet there again."""
        for place in sorted(knot):
            word = self._apart_and_back(place, knot)
            if word is not None:
                yield place, word

    def _apart_and_back(self, place: int, knot: frozenset[int]) -> str | None:
        # From (p, p) to (p, p) by pairs of which one at least is of two places.
        begin = (place, place, False)
        found: dict[tuple[int, int, bool], str] = {begin: ""}
        queue = [begin]
        for state in queue:
            one, other, apart = state
            self._spend(1 + len(self.edges[one]) * len(self.edges[other]))
            for a in self.edges[one]:
                for b in self.edges[other]:
                    if a not in knot or b not in knot:
                        continue
                    both = self.letters[a] & self.letters[b]
                    following = (a, b, apart or a != b)
                    if not both or following in found:
                        continue
                    found[following] = found[state] + min(both)
                    if following == (place, place, True):
                        return found[following]
                    queue.append(following)
        return None

    def _knots(self) -> list[frozenset[int]]:
        """Sets of places that lead to each other (strongly connected), by Kosaraju's way."""
        order: list[int] = []
        seen: set[int] = set()
        for root in range(len(self.edges)):
            stack = [(root, iter(self.edges[root]))] if root not in seen else []
            seen.add(root)
            while stack:
                place, following = stack[-1]
                new = next((f for f in following if f not in seen), None)
                if new is None:
                    order.append(place)
                    stack.pop()
                else:
                    seen.add(new)
                    stack.append((new, iter(self.edges[new])))
        backwards: list[list[int]] = [[] for _ in self.edges]
        for place, edges in enumerate(self.edges):
            for f in edges:
                backwards[f].append(place)
        knots, left = [], set(order)
        for root in reversed(order):
            members: set[int] = set()
            stack_ = [root] if root in left else []
            while stack_:
                place = stack_.pop()
                if place in left:
                    left.discard(place)
                    members.add(place)
                    stack_ += backwards[place]
            if len(members) > 1 or any(m in self.edges[m] for m in members):
                knots.append(frozenset(members))
        return knots

    def _step(self, place: int) -> str:
        if not self.letters[place]:
            raise _NotJudged  # nothing that a name has is read there
        return min(self.letters[place])

    def _way(self, start: int, goals: set[int]) -> str:
        """The shortest text that leads from a place to one of the goals."""
        texts = {start: ""}
        queue = [start]
        for place in queue:
            self._spend(1 + len(self.edges[place]))
            if place in goals:
                return texts[place]
            for following in self.edges[place]:
                if following not in texts and self.letters[following]:
                    texts[following] = texts[place] + self._step(following)
                    queue.append(following)
        raise _NotJudged

    def _read(self, text: str) -> frozenset[int]:
        now = frozenset({0})
        for letter in text:
            now = self._after(now, letter)
        return now

    def _accepts(self, text: str) -> bool:
        return bool(self._read(text) & self.accepting)

    def _after(self, places: frozenset[int], letter: str) -> frozenset[int]:
        self._spend(1 + sum(len(self.edges[p]) for p in places))
        return frozenset(f for p in places for f in self.edges[p] if letter in self.letters[f])

    def _failing_end(self, places: frozenset[int]) -> str | None:
        """What may follow so that the name is not matched; None if whatever follows is."""
        texts = {places: ""}
        queue = [places]
        for now in queue:
            if not now & self.accepting:
                return texts[now]
            # The last first: an exclamation mark is in few sets.
            for letter in reversed(self._alphabet):
                following = self._after(now, letter)
                if following not in texts:
                    texts[following] = texts[now] + letter
                    queue.append(following)
        return None


def _in_item(item: Any, letter: str) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return chr(value) == letter
    if kind is op.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if kind is op.CATEGORY:
        return re.fullmatch(_CATEGORIES[value], letter) is not None
    return False


def _sum(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for part in parts:
        for place, ways in part.items():
            total[place] = min(2, total.get(place, 0) + ways)
    return total
