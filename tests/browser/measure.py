"""How quickly the dashboard shows, and what an open one costs: ``python tests/browser/measure.py``.

With 10,000 partitions, a real browser and the real REST server, which is a process of its own:

- first paint, and when the picture of the flows and the table of partitions are shown; of pages
  that were never loaded before;
- CPU time of the server while nobody looks, while one page is open that nobody touches, and while
  that page is hidden. The difference is what the page costs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil
from browsing import browser
from synthetic import MAIN

#: Notes when the flows' picture and the first row of a table were there, and painted.
WATCH = """
  window.shown = {};
  const look = () => {
    for (const [name, css] of [["picture", ".arrow .rate"], ["table", "#tab tbody th"]])
      if (!window.shown[name] && document.querySelector(css))
        requestAnimationFrame(() => { window.shown[name] ??= performance.now(); });
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true });
"""
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
VIEWS = {"picture": "", "table": f"#/flow/{quote(MAIN)}/partitions"}


@contextmanager
def server(partitions, seconds):
    """The process and the address of a synthetic mirror."""
    command = [sys.executable, str(Path(__file__).with_name("synthetic.py")), "--port", "0",
               "--partitions", str(partitions), "--seconds", str(seconds)]  # fmt: skip
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=quiet) as process:
        try:
            line = next(line for line in process.stdout if "/dashboard/" in line)
            yield psutil.Process(process.pid), line.split()[0]
        finally:
            process.terminate()


def cpu(process, seconds):
    """Percent of a core over some time."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


def paints(page, url, repeat):
    """Milliseconds: {what: [...]}."""
    found = {"first paint": []}
    for name, address in VIEWS.items():
        found[name] = []
        for _ in range(repeat):
            page.cdp("Network.clearBrowserCache")
            page.open(url + address)
            at = page.until(
                lambda name=name: page.run("return window.shown[arguments[0]]", name), name
            )
            found[name].append(at)
            found["first paint"].append(page.run(PAINT))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=40.0)
    asked = parser.parse_args()
    longest = 10 * asked.seconds + 300
    with server(asked.partitions, longest) as (process, url), browser() as page:
        page.before_pages(WATCH)
        for name, times in paints(page, url, asked.repeat).items():
            print(f"{name}: median {statistics.median(times):.0f} ms, most {max(times):.0f} ms")
        page.open("about:blank")
        time.sleep(5)
        nobody = cpu(process, asked.seconds)
        print(f"nobody looks: {nobody:.2f} % of a core")
        for name, address in VIEWS.items():
            page.open(url + address)
            page.find("#connection.ok")
            time.sleep(5)
            open_ = cpu(process, asked.seconds)
            print(f"{name} open: {open_:.2f} %, so the page costs {open_ - nobody:.2f} %")
        page.driver.switch_to.new_window("tab")
        time.sleep(5)
        print(f"page hidden: {cpu(process, asked.seconds):.2f} %")


if __name__ == "__main__":
    main()
