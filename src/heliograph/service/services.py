"""What all flows of a mirror share. Made by the mirror, in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heliograph.claims.log import Process
from heliograph.claims.ownership import nobody
from heliograph.model import DriverAddress
from heliograph.service.engine import Engine
from heliograph.service.events import EventBus
from heliograph.service.pulse import Pulse
from heliograph.service.reports import ReportServer

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """What all flows of a mirror share.

    Attributes:
        engine: runs rounds.
        reports: where tasks report to; ``report_to`` is its address, None if there is none.
        events: what happens.
        flows: how many flows copy: they share the cores.
        silent: whether others have waited in vain for a process that has claims.
        rest: where the mirror's REST API is reached; empty if it has none.
        pulse: the heartbeats of loops.
    """

    engine: Engine
    reports: ReportServer
    report_to: Callable[[], DriverAddress | None]
    events: EventBus
    flows: Callable[[], int]
    silent: Callable[[Process], bool] = nobody
    rest: Callable[[], Sequence[str]] = tuple
    pulse: Pulse = field(default_factory=Pulse)
