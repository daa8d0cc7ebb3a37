"""Takes the pictures of docs/dashboard.md: ``python tests/browser/screenshots.py [FOLDER]``.

The clocks of the mirror and of the page stand still, so the same page gives the same pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

from browsing import browser
from synthetic import BACK, MAIN, STALLED, SyntheticMirror, synthetic_server

from heliograph.ledger.handovers import Handover, Kind

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
#: 2026-11-18 09:41:12 UTC.
NOW = 1_794_994_872.0
FLOW = f"flow/{quote(MAIN)}"
DESK, PHONE = (1180, 800), (390, 844)
#: Picture: address, what it shows when it is complete, theme, screen.
PICTURES = {
    "overview": ("", ".attention", "light", (1180, 1010)),
    "overview-dark": ("", ".attention", "dark", (1180, 1010)),
    "flow": (FLOW, "#tab .reason", "light", (1180, 1010)),
    "failover": (f"{FLOW}/failover", "#tab .against", "light", (1180, 1060)),
    "topics": ("topics", "tbody .reason", "light", DESK),
    "groups": ("groups", "tbody .name", "light", DESK),
    "configuration": ("configuration", ".keys", "light", DESK),
    "phone": ("", ".attention", "light", PHONE),
    "phone-partitions": (f"{FLOW}/partitions/{STALLED.topic}", "#tab .reason", "dark", PHONE),
    "phone-failover": (f"flow/{quote(BACK)}/failover", "#tab .steps", "dark", PHONE),
}


#: Whether all charts have their past.
DRAWN = """
  const charts = [...document.querySelectorAll(".chart")];
  const wide = (chart) => (chart.querySelector(".series.line-0")?.getBBox().width ?? 0) > 200;
  return charts.every(wide);
"""


def frozen_mirror():
    """A mirror whose clock stands still, and its history with it."""
    mirror = SyntheticMirror(clock=lambda: NOW)
    read = mirror.history.read
    mirror.history.read = lambda _now, *asked: read(NOW, *asked)
    # What a failover finds agrees with the other views.
    flow, lags = mirror.snapshot().flow(MAIN), {}
    mirror.stage.topics = lags
    mirror.stage.groups = {g.group: g.why if g.ready is False else "" for g in flow.groups}
    for p in flow.partitions:
        lags.setdefault(p.topic, []).append(p.lag_records)
    return mirror


def under_way():
    """A failover that somebody has begun by command."""
    return Handover(
        "5f3a", Kind.FAILOVER, "ada@ops-2", int(NOW * 1000) - 4_000, None, ("announce", "drain")
    )


def take(page, url, folder, stage):
    page.fix_clock(NOW)
    for name, (address, complete, theme, screen) in PICTURES.items():
        stage.last = {BACK: under_way()}
        stage.healthy = name == "failover"
        page.screen(*screen)
        page.prefers(theme, motion="reduce")
        page.open(f"{url}/dashboard/#/{address}")
        page.find("#connection.ok")
        page.find(complete)
        if address == "" or address.startswith(FLOW):
            page.until(lambda: page.run(DRAWN), "an hour of lag")
        if name == "groups":
            page.click(".opener", "service-0000")
            page.find(".nested")
            page.run("document.activeElement.blur(); scrollTo(0, 0)")
            page.cdp("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        if name.endswith("failover"):
            page.says("Rehearsals", "#tab")
            page.find('#tab [data-command="failover"]')
            page.run("document.querySelector('#tab').scrollIntoView()")
        page.driver.save_screenshot(str(folder / f"{name}.png"))
        print(folder / f"{name}.png", flush=True)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    mirror = frozen_mirror()
    with synthetic_server(mirror, sample=False) as served, browser() as page:
        take(page, served.url, folder, mirror.stage)


if __name__ == "__main__":
    main()
