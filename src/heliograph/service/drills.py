"""Drills on a schedule: whether one is due, and what came of it. Runs in the driver.

Only the mirror that has the flow does this. Whoever drills, by hand or on a schedule, leaves the
result in the ledger; the last one counts for all.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from heliograph.config import FlowConfig
from heliograph.errors import HeliographError, WireError
from heliograph.failover.drill import Drill, DrillWish
from heliograph.failover.drill_described import drill_page
from heliograph.failover.drill_rules import DrillReport
from heliograph.failover.refusals import HandoverRefused
from heliograph.failover.steps import Phase, Told
from heliograph.ledger.rehearsals import Rehearsal, RehearsalKind, Rehearsals
from heliograph.pages import private_file
from heliograph.service.snapshot import CHECKPOINTS
from heliograph.shown import shown
from heliograph.units import moment

__all__ = ["Drills"]

log = logging.getLogger(__name__)


class _Publish(Protocol):
    def __call__(self, code: str, text: str, *, part: str, level: int) -> None: ...


class Drills:
    """The scheduled drills of one flow. One thread at a time runs it."""

    def __init__(
        self,
        config: FlowConfig,
        rehearsals: Rehearsals,
        publish: _Publish,
        scope: str = "",
        drill: Callable[[], DrillReport] | None = None,
    ) -> None:
        """``drill`` carries one out; by default with connections of its own."""
        self._config = config
        self._rehearsals = rehearsals
        self._publish = publish
        self._scope = scope
        self._drill = drill or self._carry_out

    def run(self) -> None:
        """Drill if that is due. While the last drill was not well, this job counts as failing.

        Raises:
            HeliographError: what the last drill found; the report cannot be written.
            WireError: a cluster does not answer.
        """
        self._rehearsals.refresh()
        last = self._last
        due_ms = 0 if last is None else last.at_ms + self._config.drill_interval_seconds * 1000
        if time.time() * 1000 >= due_ms:
            self._rehearse()
            last = self._last
        if last is not None and not last.ok:
            raise HeliographError(
                "drill.not-ready", f"the drill at {moment(last.at_ms / 1000)}: {shown(last.text)}",
                "mend that, then 'heliograph drill FILE'",
            )  # fmt: skip

    def details(self) -> Mapping[str, str]:
        """The last drill, for the status."""
        last = self._last
        return (
            {}
            if last is None
            else {"last drill": f"{moment(last.at_ms / 1000)}: {shown(last.text)}"}
        )

    @property
    def _last(self) -> Rehearsal | None:
        drills = (r for r in self._rehearsals.all if r.kind is RehearsalKind.DRILL)
        return next(drills, None)

    def _rehearse(self) -> None:
        try:
            report = self._drill()
        except HandoverRefused:
            # For as long as a failover holds: the job says so, once.
            raise
        except (HeliographError, WireError) as error:
            self._say(f"not carried out: {error.args[0] if error.args else error}", logging.WARNING)
            raise
        # The result was written through the drill's own connections.
        self._rehearsals.refresh()
        self._say(report.sentence, logging.INFO if report.ok else logging.WARNING)
        if self._config.drill_report:
            self._leave(report)

    def _carry_out(self) -> DrillReport:
        by = f"{self._config.flow} on {socket.gethostname()}, on its schedule"
        with Drill(self._config, DrillWish(by=by), _tell, scope=self._scope) as drill:
            return drill.run()

    def _say(self, text: str, level: int) -> None:
        self._publish("flow.drill", shown(text), part=CHECKPOINTS, level=level)

    def _leave(self, report: DrillReport) -> None:
        began = datetime.fromtimestamp(report.began_ms / 1000, UTC)
        name = f"drill-{report.source}-{report.target}-{began:%Y%m%dT%H%M%SZ}.html"
        path = Path(self._config.drill_report) / name
        try:
            with private_file(path) as out:
                out.write(drill_page(report) + "\n")
        except OSError as error:
            raise HeliographError(
                "drill.report", f"the report of a drill cannot be written to {path}:"
                f" {error.strerror}", "check the folder of heliograph.drill.report",
            ) from error  # fmt: skip


def _tell(told: Told) -> None:
    if told.phase is not Phase.BEGUN:
        log.debug("drill: %s: %s", told.step, shown(told.text))
