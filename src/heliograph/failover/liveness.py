"""Whether a mirror has a flow and answers. In commands and the driver.

A claim that stands proves little: a mirror that is alone writes nothing, and one that was killed
leaves its claim behind. So this process claims the flow, as a mirror that starts would, and waits
for the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from heliograph.config import FlowConfig
from heliograph.errors import StartError, WireError
from heliograph.failover.lock import claim_of

__all__ = ["living_mirrors"]


def living_mirrors(configs: Sequence[FlowConfig], scope: str = "") -> Mapping[str, str]:
    """The mirror that has each flow and answers, in words, by flow; absent: there is none.

    All flows at once; takes some seconds, or ten if a mirror was killed elsewhere. Raises
    WireError.
    """
    found: dict[str, str] = {}
    errors: list[WireError] = []

    def ask(config: FlowConfig) -> None:
        try:
            if who := _answer(config, scope):
                found[str(config.flow)] = who
        except WireError as error:
            errors.append(error)

    threads = [
        threading.Thread(target=ask, args=[config], name=f"asking mirrors of {config.flow}")
        for config in configs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return found


def _answer(config: FlowConfig, scope: str) -> str:
    claim = claim_of(config, scope, float(config.lease_seconds))
    claim.begin()
    try:
        claim.require(threading.Event())
    except StartError as owned:
        return str(owned.args[0]).rpartition(": ")[2]
    finally:
        claim.end()
    return ""
