"""The claim of a running mirror on one flow: renews it, and reports changes. Runs in the driver.

It has a thread, a client and a follower of the ledger topic to itself. A slow job or a slow request
of another job therefore does not keep it from answering other mirrors in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from heliograph.claims.log import Claim, Process, Standing
from heliograph.claims.ownership import (
    CONFIDENT_SECONDS,
    LOOK_SECONDS,
    SILENT_SECONDS,
    Ownership,
    nobody,
)
from heliograph.claims.process_identity import is_gone, this_process
from heliograph.claims.registry import Registry
from heliograph.errors import StartError
from heliograph.wire.cluster import ClusterClient

log = logging.getLogger(__name__)
_SILENT = logging.Logger("nobody reads this")
_SILENT.addHandler(logging.NullHandler())

#: How long a stop waits for the claim's last record. Without it the next mirror waits for the
#: silence of this one.
_FAREWELL_SECONDS = 1.5
_DECISION_PAUSE_SECONDS = 0.05


def _clock() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    kind = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(kind)


class FlowClaim:
    """This mirror's claim on a flow.

    ``client`` is that of the registry; the claim closes it. ``changed`` is called in the claim's
    thread when this mirror has taken the flow over from another one, or has lost it to another one.
    It is not called for the first outcome, which `begin` leaves in `holds` and `stands_by`.
    ``silent`` is that of `Ownership`; it is called in the claim's thread and by `begin`. ``rest``
    are the addresses of this mirror's REST API. A claim of a command is ``quiet``: it logs nothing.
    """

    def __init__(
        self,
        flow: str,
        client: ClusterClient,
        registry: Registry,
        lease_seconds: float,
        changed: Callable[[], None],
        silent: Callable[[Process], bool] = nobody,
        rest: Sequence[str] = (),
        *,
        quiet: bool = False,
    ) -> None:
        here = this_process()
        now_ms = int(time.time() * 1000)
        me = Claim(registry.new_id(), here, now_ms, lease_seconds, rest=tuple(rest))
        self._flow = flow
        self._client = client
        self._registry = registry
        self._changed = changed
        self._part = Ownership(
            registry.claims, me, lambda process: is_gone(process, here), registry.new_id, silent
        )
        self._log = _SILENT if quiet else log
        self._told: Standing | None = None
        self._owned = False
        self._in_doubt = False
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._keep, name=f"keeping the claim on {flow}", daemon=True
        )

    # -- asked by others ----------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Of the claim as it stands now; another one after it was lost."""
        return self._part.me.id

    @property
    def holds(self) -> bool:
        """Whether leases of the flow may be handed out at this moment."""
        return self._part.owns(_clock())

    @property
    def stands_by(self) -> bool:
        """Whether the flow is another mirror's, or may still be."""
        return not self._part.established

    @property
    def clear_from(self) -> float:
        """Seconds since the epoch from when no lease of an earlier mirror can be running."""
        return time.time() + self._part.clear_from - _clock() if self._part.clear_from else 0.0

    def require(self, stopped: threading.Event) -> None:
        """Wait until leases may be handed out; raises StartError if the flow is another mirror's.

        That one has to answer first: one that was killed elsewhere is replaced after its silence.
        """
        while not self.holds and not stopped.is_set():
            owner = self._part.ahead
            if owner is not None and self._part.answered():
                raise StartError(
                    "flow.owned",
                    f"flow {self._flow} is being mirrored by another Heliograph:"
                    f" {described(owner.claim)}",
                    "let that one do it, or stop it first; each flow has one mirror at a time",
                )
            stopped.wait(_DECISION_PAUSE_SECONDS)

    # -- keeping it ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Claim the flow; after that it is known who owns it. One append and one reading."""
        self._registry.tell([self._part.me])
        # What is said besides removals can wait for the thread: a start is waited for.
        while self._look(answer=False):
            pass  # claims of killed mirrors were removed
        self._owned = self._part.established
        self._tell()
        wait = self._part.waits(_clock())
        if wait and self._part.ahead is None:
            why = ", ".join(sorted(set(self._part.verdicts.values()))) or "by others"
            self._log.info(
                "%s: another mirror was removed: %s; beginning in %.0f s", self._flow, why, wait
            )
        self._thread.start()

    def end(self) -> None:
        """Give the claim up, after the last lease; returns soon even if the target is away."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_FAREWELL_SECONDS)

    def _look(self, *, answer: bool = True) -> bool:
        """Read the claims and append what follows; returns whether to look again at once."""
        began = _clock()
        self._registry.refresh()
        self._part.log = self._registry.claims
        said = self._part.look(began, _clock())
        if said.ended or (said.claims and answer):
            self._registry.tell(said.claims, said.ended)
        return bool(said.ended)

    def _keep(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            began = _clock()
            error = ""
            try:
                again = self._look()
            except Exception as failure:  # noqa: BLE001 - the claim must outlive a bad day
                again, error = False, str(failure) or type(failure).__name__
            if not again:
                self._notice()
            self._say_if_in_doubt(error)
            # From start to start, so that a slow target does not make this mirror look silent. A
            # mirror that may begin sooner than that does not sleep longer than it has to wait.
            now = _clock()
            rest = max(0.0, LOOK_SECONDS - (now - began))
            waits = self._part.waits(now)
            pause = 0.0 if again else min(rest, waits) if waits else rest
        self._leave()

    def _leave(self) -> None:
        said = self._part.farewell(_clock())
        if said.claims:
            try:
                self._registry.tell(said.claims, said.ended)
            except Exception as error:  # noqa: BLE001 - the next mirror finds out by itself
                self._log.debug("%s: the claim could not be given up: %s", self._flow, error)
        self._client.close()

    # -- saying what happens ------------------------------------------------------------------

    def _notice(self) -> None:
        """Say and report it if the flow has changed hands."""
        owned, self._owned = self._owned, self._part.established
        if owned and not self._owned:
            successor = self._told = self._part.ahead
            by = f" ({described(successor.claim)})" if successor is not None else ""
            self._log.warning(
                "%s was taken over by another Heliograph%s, because this one was silent for too"
                " long; it hands out no more leases and stands by",
                self._flow, by,
            )  # fmt: skip
            self._changed()
        elif self._owned and not owned:
            if self._told is not None:
                why = self._part.verdicts.get(self._told.claim.id, "it has ended")
                self._log.info(
                    "%s: taking over from %s: %s", self._flow, described(self._told.claim), why
                )
                self._told = None
            self._changed()
        else:
            self._tell()

    def _tell(self) -> None:
        """Say once whom this mirror stands behind."""
        owner = self._part.ahead
        if self._part.established or owner is None:
            return
        if self._told is None or self._told.claim.id != owner.claim.id:
            self._log.warning(
                "%s is being mirrored by another Heliograph: %s; standing by, it takes over %.0f s"
                " after that one falls silent",
                self._flow, described(owner.claim), SILENT_SECONDS + CONFIDENT_SECONDS,
            )  # fmt: skip
            self._told = owner

    def _say_if_in_doubt(self, error: str) -> None:
        doubt = self._part.established and not self.holds
        if doubt and error and not self._in_doubt:
            self._log.warning(
                "%s: cannot see whether it is still this mirror's: %s; no new leases until it can",
                self._flow, error,
            )  # fmt: skip
            self._in_doubt = True
        elif self._in_doubt and not doubt:
            self._log.info("%s: still this mirror's; going on", self._flow)
            self._in_doubt = False


def described(claim: Claim) -> str:
    """The mirror behind a claim, for people."""
    then, now = time.localtime(claim.since_ms / 1000), time.localtime()
    day = "" if then[:3] == now[:3] else "%Y-%m-%d "
    since = time.strftime(f"{day}%H:%M:%S", then)
    return f"host {claim.process.host}, pid {claim.process.pid}, since {since}"
