"""A mirror inside your own program: start it, watch it, pause it, stop it.

    python embedding.py mm2.properties

Mirrors until nothing is behind any more, and prints what happens meanwhile.
"""

from __future__ import annotations

import sys
import time

import heliograph


def main(path: str) -> None:
    """Mirror what the file says until all flows are in step."""
    with heliograph.Mirror.from_file(path) as mirror, mirror.events(after=0) as events:
        behind: int | None = None
        while behind != 0:
            time.sleep(1.0)
            for published in events.get(timeout=0):
                print(published.sequence, published.event)
            flows = [flow for flow in mirror.snapshot().flows if "copying" in flow.parts]
            known = [flow.lag_records for flow in flows if flow.lag_records is not None]
            if len(known) == len(flows) and not any(flow.unmeasured for flow in flows):
                behind = sum(known)
                print("records behind:", behind)
        print("in step")


if __name__ == "__main__":
    main(sys.argv[1])
