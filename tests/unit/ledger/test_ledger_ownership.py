"""Claims: one owner at any moment, whoever is stopped, killed or started in between."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.claims.log import (
    Claim,
    ClaimLog,
    Process,
    claim_key,
    decode_claim,
    encode_claim,
)
from heliograph.claims.ownership import (
    CONFIDENT_SECONDS,
    FORGOTTEN_SECONDS,
    LOOK_SECONDS,
    ORPHAN_SECONDS,
    SILENT_SECONDS,
    Ownership,
    Said,
)

TAKE_OVER_SECONDS = SILENT_SECONDS + CONFIDENT_SECONDS


def claim(name: str, pid: int = 1, **changes) -> Claim:
    return replace(Claim(name, Process("db7", pid), 0, 30.0), **changes)


# -- the log ----------------------------------------------------------------------------------


def test_claims_survive_their_record():
    process = Process("db7", 4242, "4d9d-boot", "pid:[4026531836]", 123456)
    made = Claim("an-id", process, 1_700_000_000_000, 30.0, 17, established=True)
    key, value = encode_claim(made)
    assert key == claim_key("an-id") == b"claim/an-id"
    assert decode_claim("an-id", value) == made


def test_the_oldest_claim_that_stands_owns():
    assert ClaimLog().owner is None
    log = ClaimLog()
    log.apply(3, "a", claim("a"))
    log.apply(5, "b", claim("b"))
    log.apply(8, "a", claim("a", first=3))
    assert log.owner.claim.id == "a"
    assert (log.owner.first, log.owner.latest) == (3, 8)
    log.apply(9, "a", None)
    assert log.owner.claim.id == "b"
    assert log.removed == {"a": 9}


def test_an_end_is_final():
    log = ClaimLog()
    log.apply(0, "a", claim("a"))
    log.apply(1, "b", claim("b"))
    log.apply(2, "a", None)
    log.apply(3, "a", claim("a", first=0))
    assert log.owner.claim.id == "b"


def test_who_leaves_is_not_removed():
    log = ClaimLog()
    log.apply(0, "a", claim("a"))
    log.apply(1, "a", claim("a", first=0, left=True))
    log.apply(2, "a", None)
    assert log.standing == {}
    assert log.removed == {}


def test_a_claim_keeps_its_age_when_compaction_took_its_first_record():
    log = ClaimLog()
    log.apply(5, "b", claim("b"))
    log.apply(8, "a", claim("a", first=3))
    assert log.owner.claim.id == "a"


# -- a small world ----------------------------------------------------------------------------


@dataclass
class World:
    """A ledger, a clock, and which processes are gone."""

    now: float = 100.0
    log: list[tuple[str, Claim | None]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    ids: itertools.count = field(default_factory=itertools.count)

    def append(self, said: Said) -> None:
        self.log += [(c.id, c) for c in said.claims]
        self.log += [(name, None) for name in said.ended]


class Mirror:
    """A mirror in that world; ``remote`` ones cannot tell whose process is gone."""

    def __init__(self, world: World, *, remote: bool = False):
        self.world = world
        self.pid = next(world.ids)
        self._position = 0
        self._began = self._read_from = world.now
        self.saying = Said()
        #: Processes that it was told to be silent, rightly or wrongly.
        self.silent: set[int] = set()
        gone = (lambda _: False) if remote else (lambda p: p.pid in world.gone)
        self.part = Ownership(
            ClaimLog(), claim(f"m{self.pid}", self.pid), gone,
            lambda: f"m{self.pid}-{next(world.ids)}", lambda p: p.pid in self.silent,
        )  # fmt: skip
        world.append(Said([self.part.me]))

    # The steps of a look, each of which may come late.
    def begin(self) -> None:
        self._began = self.world.now

    def read(self) -> None:
        for offset in range(self._position, len(self.world.log)):
            self.part.log.apply(offset, *self.world.log[offset])
        self._position = len(self.world.log)
        self._read_from = self._began

    def judge(self) -> None:
        self.saying = self.part.look(self._read_from, self.world.now)

    def say(self) -> None:
        self.world.append(self.saying)
        self.saying = Said()

    def look(self) -> None:
        again = True
        while again:
            self.begin()
            self.read()
            self.judge()
            again = bool(self.saying.ended)
            self.say()

    def leave(self) -> None:
        self.world.append(self.part.farewell(self.world.now))
        self.world.gone.add(self.pid)

    def kill(self) -> None:
        self.world.gone.add(self.pid)

    @property
    def owns(self) -> bool:
        return self.part.owns(self.world.now)


def run(world: World, seconds: float, *mirrors: Mirror) -> None:
    """All of them look as they do in life."""
    for _ in range(round(seconds / LOOK_SECONDS)):
        world.now += LOOK_SECONDS
        for mirror in mirrors:
            mirror.look()


@pytest.fixture
def world() -> World:
    return World()


def started(world: World, **options) -> Mirror:
    mirror = Mirror(world, **options)
    mirror.look()
    return mirror


def test_the_first_owns_at_once_and_the_second_stands_by(world):
    one, two = started(world), started(world)
    assert one.owns
    assert not two.owns
    assert two.part.ahead.claim.id == one.part.me.id
    assert not two.part.answered()
    run(world, 60, one, two)
    assert one.owns
    assert not two.owns
    assert two.part.answered()


def test_nobody_writes_while_alone(world):
    one = started(world)
    run(world, 4, one)
    written = len(world.log)
    run(world, 3600, one)
    assert len(world.log) == written
    assert one.owns


def test_claims_made_at_the_same_time_agree(world):
    one, two = Mirror(world), Mirror(world)
    two.look()
    one.look()
    assert (one.owns, two.owns) == (True, False)


def test_a_killed_mirror_is_replaced_at_once_on_its_host(world):
    one = started(world)
    run(world, 2, one)
    one.kill()
    two = started(world)
    assert two.owns
    assert two.part.clear_from == world.now + ORPHAN_SECONDS
    assert one.part.me.id in two.part.log.ended


def test_a_mirror_killed_before_it_was_established_is_waited_for(world):
    """It may have removed another one a moment ago, which does not know yet."""
    Mirror(world).kill()
    two = started(world)
    assert not two.owns
    run(world, CONFIDENT_SECONDS, two)
    assert two.owns


def test_a_silent_mirror_is_replaced_in_time_and_its_leases_are_known(world):
    one, two = started(world), started(world, remote=True)
    run(world, 10, one, two)
    one.kill()
    run(world, TAKE_OVER_SECONDS - LOOK_SECONDS, two)
    before = two.owns
    run(world, 2 * LOOK_SECONDS, two)
    assert (before, two.owns) == (False, True)
    assert two.part.clear_from > world.now + 30
    assert two.part.verdicts[one.part.me.id] == "it has fallen silent"


def test_a_mirror_that_others_waited_for_is_removed_but_not_replaced_at_once(
    world,
):
    one, two = started(world), started(world, remote=True)
    run(world, 10, one, two)
    one.kill()
    two.silent.add(one.pid)
    two.look()
    assert one.part.me.id in two.part.log.ended
    at_once = two.owns
    assert two.part.waits(world.now) == CONFIDENT_SECONDS
    assert two.part.farewell(world.now) == Said(), "its own successor would have to wait"
    run(world, CONFIDENT_SECONDS, two)
    assert (at_once, two.owns) == (False, True)
    assert two.part.clear_from > world.now + 30, "its leases may be running"
    assert two.part.verdicts[one.part.me.id] == "the group of workers has lost it"


def test_a_mirror_that_is_called_silent_and_lives_on_loses_the_flow_and_stands_by(world):
    one, two = started(world), started(world, remote=True)
    run(world, 10, one, two)
    two.silent.add(one.pid)
    two.look()
    assert (one.owns, two.owns) == (True, False), "it has not read yet that it was removed"
    one.look()
    assert not one.owns
    two.silent.clear()
    run(world, CONFIDENT_SECONDS, one, two)
    assert (one.owns, two.owns) == (False, True)
    assert two.part.ahead is None
    assert one.part.ahead.claim.id == two.part.me.id


def test_an_owner_does_not_remove_who_stands_by_for_being_called_silent(world):
    one, two = started(world), started(world, remote=True)
    one.silent.add(two.pid)
    run(world, 10, one, two)
    assert two.part.me.id in one.part.log.standing
    assert one.owns


def test_a_mirror_that_leaves_is_replaced_at_the_next_look(world):
    one, two = started(world), started(world, remote=True)
    run(world, 4, one, two)
    one.leave()
    two.look()
    assert two.owns
    assert two.part.clear_from == 0.0


def test_a_stopped_mirror_owns_nothing_when_it_goes_on_and_then_stands_by(world):
    one, two = started(world), started(world)
    run(world, 4, one, two)
    assert one.owns
    run(world, 20, two)
    assert two.owns
    assert not one.owns, "by its own clock, before it has read anything"
    one.look()
    assert not one.part.established
    assert one.part.ahead.claim.id == two.part.me.id
    run(world, 60, one, two)
    assert (one.owns, two.owns) == (False, True)
    two.kill()
    run(world, LOOK_SECONDS, one)
    assert one.owns


def test_a_stopped_mirror_need_not_wait_for_itself(world):
    """Else it would not leave in order, and whoever comes after it would wait for its silence."""
    one, two = started(world), started(world, remote=True)
    run(world, 4, one, two)
    run(world, 20, two)
    one.look()
    assert one.part.me.id in one.part.log.standing
    assert one.part.waits(world.now) == 0
    assert one.part.clear_from > world.now + 30, "its own leases may be running"
    one.leave()
    three = started(world)
    two.leave()
    three.look()
    assert three.owns


def test_the_time_when_nobody_can_read_does_not_count_as_silence(world):
    """The target is away for all of them; the one that comes back first does not profit."""
    one, two = started(world), started(world)
    run(world, 4, one, two)
    world.now += 300
    two.look()
    assert not two.saying.ended
    one.look()
    run(world, 10, one, two)
    assert (one.owns, two.owns) == (True, False)


def test_forgotten_mirrors_that_stood_by_are_removed(world):
    one, two = started(world), started(world, remote=True)
    run(world, 4, one, two)
    two.part._gone = one.part._gone = lambda _: False
    run(world, FORGOTTEN_SECONDS + 2 * LOOK_SECONDS, one)
    assert two.part.me.id in one.part.log.ended
    assert one.owns
    written = len(world.log)
    run(world, 60, one)
    assert len(world.log) == written


def test_who_waits_does_not_leave_in_order(world):
    one, two = started(world), started(world, remote=True)
    run(world, 4, one, two)
    for _ in range(20):
        world.now += LOOK_SECONDS
        two.look()
        if two.part.waits(world.now):
            break
    assert two.part.farewell(world.now) == Said()
    run(world, CONFIDENT_SECONDS, two)
    assert two.part.farewell(world.now).ended == [two.part.me.id]


STEPS = ["begin", "read", "judge", "say", "look", "look"]
PAUSES = [0.1, 0.5, 1.0, 1.9, 2.0, 2.0, 3.9, 7.0]


# A seed instead of drawn steps: ten times as many histories in the same time, and two owners would
# take an unlikely one.
@settings(max_examples=500)
@given(st.integers(0, 1 << 32))
def test_never_two_owners(seed):
    """Steps of looks in any order and as late as you like; kills, exits and starts in between.

    Any mirror may be told at any time that any other is silent, though it lives; or not any more.
    """
    dice = random.Random(seed)
    world = World()
    mirrors: list[Mirror] = []
    told = dice.random() < 0.5
    for _ in range(150):
        [what] = dice.choices(
            ["wait", "start", "kill", "leave", "tell", "step"], [50, 6, 3, 3, 8 * told, 138]
        )
        if what == "wait":
            world.now += dice.choice(PAUSES)
        elif not mirrors or (what == "start" and len(mirrors) < 4):
            mirrors.append(Mirror(world, remote=dice.random() < 0.5))
        elif what in {"kill", "leave"}:
            getattr(mirrors.pop(dice.randrange(len(mirrors))), what)()
        elif what == "tell":
            dice.choice(mirrors).silent ^= {dice.randrange(max(m.pid for m in mirrors) + 1)}
        else:
            getattr(dice.choice(mirrors), dice.choice(STEPS))()
        assert sum(m.owns for m in mirrors) <= 1
    # And in the end, when all that live look in time, and nobody calls them silent, one does own.
    for mirror in mirrors:
        mirror.silent &= world.gone
    if mirrors:
        run(world, 4 * TAKE_OVER_SECONDS, *mirrors)
        assert sum(m.owns for m in mirrors) == 1


# -- a topic that loses records ---------------------------------------------------------------


def test_a_claim_that_the_topic_has_lost_is_made_anew_behind_those_that_are_there():
    """Whoever came after the loss found nobody and owns the flow: not both of them may."""
    ids = itertools.count()
    me = claim("me")
    part = Ownership(ClaimLog(), me, lambda _: False, lambda: f"new-{next(ids)}")
    part.log.apply(50, "me", me)
    part.look(0.0, 0.0)
    assert part.owns(1.0)
    part.log = ClaimLog()
    part.log.apply(0, "other", claim("other", established=True))
    said = part.look(2.0, 2.0)
    assert not part.owns(2.0)
    assert [c.id for c in said.claims] == ["new-0"]
    part.log.apply(1, "new-0", said.claims[0])
    part.look(2.0, 2.0)
    assert not part.owns(2.0)
    assert part.ahead.claim.id == "other"


def test_a_claim_that_the_topic_has_lost_is_made_anew_at_once_if_nobody_else_is_there():
    me = claim("me")
    part = Ownership(ClaimLog(), me, lambda _: False, lambda: "new")
    part.log.apply(50, "me", me)
    part.look(0.0, 0.0)
    part.log = ClaimLog()
    [said] = part.look(2.0, 2.0).claims
    part.log.apply(0, "new", said)
    part.look(2.0, 2.0)
    assert part.owns(2.1)
