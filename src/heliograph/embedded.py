"""A mirror inside another program: `heliograph.Mirror`. Runs in that program, which is the driver.

    import heliograph

    with heliograph.Mirror.from_file("mm2.properties") as mirror, mirror.events() as events:
        for published in events:
            print(published.event)

docs/examples/embedding.py is a whole program.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from heliograph.config import MirrorMakerConfig
from heliograph.jvm.java import find_java
from heliograph.service import mirror as service
from heliograph.service.events import Subscription
from heliograph.service.snapshot import MirrorSnapshot

__all__ = ["Mirror"]


class Mirror:
    """Mirrors the flows of a configuration, from `start` to `stop`. Thread-safe.

    The program that embeds it must be able to start Java 17 or newer, and should have no Spark
    session of its own in the same process.
    """

    def __init__(self, config: MirrorMakerConfig, *, master: str | None = None) -> None:
        """``master``: a Spark cluster that copies; by default the cores of this machine do."""
        self._config = config
        self._mirror = service.Mirror(config, master)

    @classmethod
    def from_file(cls, path: str | Path, *, master: str | None = None) -> Self:
        """A mirror of the flows of an ``mm2.properties``; raises ConfigError."""
        return cls(MirrorMakerConfig.from_file(Path(path)), master=master)

    @classmethod
    def from_mapping(cls, values: Mapping[str, str], *, master: str | None = None) -> Self:
        """A mirror of flows given as keys and values of such a file; raises ConfigError."""
        return cls(MirrorMakerConfig.from_mapping(values), master=master)

    def start(self) -> None:
        """Start all flows; raises StartError if none can be started. Others are tried again."""
        if any(flow.enabled for flow in self._config.flows):
            find_java()
        try:
            self._mirror.start()
        except BaseException:
            self._mirror.close()
            raise

    def stop(self) -> None:
        """Stop in order. A mirror that was stopped cannot be started again: make another one."""
        self._mirror.close()

    def snapshot(self) -> MirrorSnapshot:
        """Everything that is known now: flows, partitions, lag, jobs, Spark."""
        return self._mirror.snapshot()

    def events(self, *, after: int | None = None) -> Subscription:
        """What happens from now on, or since event number ``after``; close it at the end."""
        return self._mirror.events.subscribe(after=after)

    def pause(self, flow: str, *parts: str) -> None:
        """Pause a flow such as ``A->B``, or parts of it: copying, checkpoints, heartbeats."""
        self._mirror.supervisor(flow).pause(*parts)

    def resume(self, flow: str, *parts: str) -> None:
        """Let a flow, or parts of it, go on."""
        self._mirror.supervisor(flow).resume(*parts)

    def restart(self, flow: str, *parts: str) -> None:
        """Connect a flow anew, or begin parts of it anew."""
        self._mirror.supervisor(flow).restart(*parts)

    def reconfigure(self, config: MirrorMakerConfig) -> list[str]:
        """Take over another configuration; returns what changes. Nothing else is disturbed."""
        return self._mirror.reconfigure(config)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
