"""Decides from the claims of a flow whether this mirror owns it, and which claims it removes.

Pure: the clock is a parameter, reading and appending are the caller's. Times are seconds of one
clock of this mirror only; clocks of two hosts are never compared.

Only one mirror hands out leases, because
- the log decides: the oldest claim that stands owns the flow, and a removed one is removed for all;
- an owner relies on what it has read for `CONFIDENT_SECONDS` only, counted from the moment when it
  began to read, however long it was stopped in between;
- whoever sees another's claim removed waits for as long before it begins. It does so at once only
  if the other has left in order, or was established and its process is known to be gone. Who has
  to wait does not leave in order, so that its own successor waits in its place.
When a claim is removed does not matter for this. A claim may be removed too early, of a mirror that
lives on: that costs time, because the flow stands still while its new owner waits.

Nobody writes while it is alone. A mirror that stands by repeats its claim at every look, and the
others answer with theirs; one that has not answered for `SILENT_SECONDS` is removed. So an idle
flow's ledger does not grow, and no record is old or new by anybody's clock. Workers of a Connect
cluster hear from their group which processes fell silent there (``silent``). Their claims are
removed at the first look: somebody has waited for them already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heliograph.claims.log import Claim, ClaimLog, Process, Standing

#: A mirror looks at the claims this often. An owner may miss one look and still be sure.
LOOK_SECONDS = 2.0
#: How long an owner relies on its last look.
CONFIDENT_SECONDS = 4.0
#: An owner is asked at least twice before it counts as silent.
SILENT_SECONDS = 6.0
#: Mirrors that stand by and fell silent are in nobody's way; removing them keeps the topic small.
FORGOTTEN_SECONDS = 60.0
#: Executors end with their driver, but not in the same moment.
ORPHAN_SECONDS = 5.0
#: Leases begin a little after they are handed out and answers are awaited after their end.
_LEASE_MARGIN_SECONDS = 5.0


def nobody(process: Process) -> bool:
    """What is known of silent processes where there is no group of workers: nothing."""
    del process
    return False


class Said(NamedTuple):
    """What to append: claims, and the ids of claims that end. Both may be empty."""

    claims: Sequence[Claim] = ()
    ended: Sequence[str] = ()


@dataclass(slots=True)
class _Asked:
    """Since when, in seconds watched, a claim owes us an answer; None: it does not."""

    latest: int
    since: float | None = None


class Ownership:
    """The judgement of one mirror, which calls `look` whenever it has read the claims' log.

    Attributes:
        log: the claims, read by the caller; another one if the topic lost records.
        me: what this mirror says of itself.
        established: whether it owns the flow; leases are handed out only while `owns`, too.
        ahead: the claim that owns the flow instead, if any.
        clear_from: when no lease of a mirror before this one can be running any more.
        verdicts: why claims were removed by this mirror, by id.
    """

    def __init__(
        self,
        log: ClaimLog,
        me: Claim,
        gone: Callable[[Process], bool],
        new_id: Callable[[], str],
        silent: Callable[[Process], bool] = nobody,
    ) -> None:
        """Begin to judge.

        Args:
            log: see above.
            me: see above.
            gone: whether a process has certainly ended. It must not be wrong.
            new_id: an id for a claim.
            silent: whether others have waited in vain for a process. It may be wrong.
        """
        self.log = log
        self.me = me
        self.established = False
        self.ahead: Standing | None = None
        self.clear_from = 0.0
        self.verdicts: dict[str, str] = {}
        self._gone = gone
        self._silent = silent
        self._new_id = new_id
        self._confirmed = float("-inf")
        self._not_before = float("-inf")
        self._asked: dict[str, _Asked] = {}
        self._watched = 0.0
        self._last_look: float | None = None
        self._surely_over: set[str] = set()
        self._judged_removals: set[str] = set()
        self._lease_seconds: dict[str, float] = {}
        self._own_before: set[str] = set()
        self._removing = False
        self._follows_from: int | None = None

    def owns(self, now: float) -> bool:
        """Whether leases may be handed out at this moment."""
        return self.established and now < self._confirmed + CONFIDENT_SECONDS

    def waits(self, now: float) -> float:
        """Seconds until it may begin, as far as claims that were removed are concerned."""
        return max(0.0, self._not_before - now)

    def answered(self) -> bool:
        """Whether the owner ahead has written since this mirror's claim: it is alive."""
        mine = self.log.standing.get(self.me.id)
        return self.ahead is not None and mine is not None and self.ahead.latest > mine.first

    def farewell(self, now: float) -> Said:
        """The last words of a mirror that stops, after its leases have ended."""
        if self._removing or self.waits(now):
            return Said()  # its successor must wait as this one had to
        return Said([replace(self.me, left=True)], [self.me.id])

    def look(self, began: float, now: float) -> Said:
        """Judge the log as it was read to its end, by a reading that began at ``began``.

        Returns what is to be appended now. If that ends any claim, look again at once.
        """
        self._watch(now)
        mine = self.log.standing.get(self.me.id)
        if mine is None:
            return self._claim_anew()
        self._confirmed = began
        self.me = replace(self.me, first=mine.first)
        if self._follows_from is None:
            self._follows_from = mine.first
        others = [s for s in self.log.standing.values() if s.claim.id != self.me.id]
        self._lease_seconds.update((s.claim.id, s.claim.lease_seconds) for s in others)
        self._weigh_removals(self._follows_from, now)
        ended = [s.claim.id for s in others if self._is_over(s, mine)]
        self._removing = bool(ended)
        self.ahead = min((s for s in others if s.first < mine.first), key=_first, default=None)
        if self.ahead is None and not self.established and not self.waits(now):
            self.established = True
        self.me = replace(self.me, established=self.established)
        asked = any(s.latest > mine.latest for s in others)
        speak = asked or not self.established or mine.claim != self.me
        return Said([self.me] if speak else [], ended)

    def _watch(self, now: float) -> None:
        """Advance the clock of silence, which stands still while we do not look ourselves."""
        if self._last_look is not None:
            self._watched += min(max(now - self._last_look, 0.0), LOOK_SECONDS)
        self._last_look = now

    def _claim_anew(self) -> Said:
        lost = self.me.first >= 0 and self.me.id not in self.log.ended
        if not lost and self.me.id not in self.log.ended:
            return Said([self.me])
        # Removed by others, or lost with the topic's records: another mirror may have found no
        # claim and own the flow by now. The old claim is ended once more, for the case that this
        # mirror has renewed it since: compaction would keep that record instead of the end.
        old = self.me.id
        self._own_before.add(old)
        self.established = self._removing = False
        self.me = replace(self.me, id=self._new_id(), first=-1, established=False)
        self.ahead = self.log.owner
        self._asked.clear()
        if lost:
            # Offsets of removals are those of another log now.
            self._follows_from = None
            self._judged_removals.clear()
        return Said([self.me], [old])

    def _weigh_removals(self, follows_from: int, now: float) -> None:
        """Wait for those who may not know yet that they were removed; note when leases end."""
        for claim_id, offset in self.log.removed.items():
            # What was removed before this mirror's first claim is its remover's to wait for.
            if claim_id in self._judged_removals or offset < follows_from or self.established:
                continue
            if claim_id in self._surely_over:
                clear = now + ORPHAN_SECONDS
            else:
                may_rely_until = now
                if claim_id not in self._own_before:  # this mirror knows that it was removed
                    may_rely_until = self._not_before = now + CONFIDENT_SECONDS
                lease_seconds = self._lease_seconds.get(claim_id, self.me.lease_seconds)
                clear = may_rely_until + lease_seconds + _LEASE_MARGIN_SECONDS
            self.clear_from = max(self.clear_from, clear)
        self._judged_removals.update(self.log.removed)

    def _is_over(self, other: Standing, mine: Standing) -> bool:
        claim = other.claim
        silent = self._silent_seconds(other, mine)
        if self._gone(claim.process):
            if claim.established:
                self._surely_over.add(claim.id)
            self.verdicts[claim.id] = "its process is gone"
            return True
        if other.first < mine.first and self._silent(claim.process):
            self.verdicts[claim.id] = "the group of workers has lost it"
            return True
        limit = SILENT_SECONDS if other.first < mine.first else FORGOTTEN_SECONDS
        if silent >= limit and (self.established or other.first < mine.first):
            self.verdicts[claim.id] = "it has fallen silent"
            return True
        return False

    def _silent_seconds(self, other: Standing, mine: Standing) -> float:
        """How long a claim has been owing an answer to this mirror's latest record."""
        asked = self._asked.get(other.claim.id)
        if asked is None or asked.latest != other.latest:
            asked = self._asked[other.claim.id] = _Asked(other.latest)
        if asked.since is None and mine.latest > other.latest:
            asked.since = self._watched
        return 0.0 if asked.since is None else self._watched - asked.since


def _first(standing: Standing) -> int:
    return standing.first
