"""Takes the pictures of docs/dashboard.md: ``python tests/browser/screenshots.py [FOLDER]``.

The clocks of the mirror and of the page stand still, so the same page gives the same pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

from browsing import browser
from synthetic import MAIN, STALLED, SyntheticMirror, synthetic_server

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
    "groups": ("groups", "tbody .name", "light", DESK),
    "configuration": ("configuration", ".keys", "light", DESK),
    "phone": ("", ".attention", "light", PHONE),
    "phone-partitions": (f"{FLOW}/partitions/{STALLED.topic}", "#tab .reason", "dark", PHONE),
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
    return mirror


def take(page, url, folder):
    page.fix_clock(NOW)
    for name, (address, complete, theme, screen) in PICTURES.items():
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
        page.driver.save_screenshot(str(folder / f"{name}.png"))
        print(folder / f"{name}.png", flush=True)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with synthetic_server(frozen_mirror(), sample=False) as served, browser() as page:
        take(page, served.url, folder)


if __name__ == "__main__":
    main()
