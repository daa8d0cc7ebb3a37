"""Debian's Chromium without a window, for tests of the dashboard, its screenshots and figures.

It reaches 127.0.0.1 only. All requests and all that the console says are kept.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import contextmanager

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
#: Why there is no browser; empty if there is one.
MISSING = (
    ""
    if CHROMIUM and DRIVER
    else "needs a browser: apt-get install chromium chromium-driver (Debian)"
)
_FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-default-apps", "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
#: The page's clock stands still, and the server's does not correct it.
_FIXED_CLOCK = """
  Date.now = () => %d;
  const get = Headers.prototype.get;
  Headers.prototype.get = function (name) {
    return name === "date" ? null : get.call(this, name);
  };
"""


class Browser:
    """One page. ``patience`` seconds are waited for whatever should appear."""

    patience = 60

    def __init__(self, driver):
        self.driver = driver
        self._scripts: list[str] = []

    def open(self, url):
        """Load a page anew, with nothing left of the one before."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def go(self, address):
        """To another view, as a link does."""
        self.run("location.hash = arguments[0]", address)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def before_pages(self, script):
        """Run a script before those of each page."""
        self.cdp("Page.addScriptToEvaluateOnNewDocument", source=script)

    def fix_clock(self, seconds):
        self.before_pages(_FIXED_CLOCK % int(seconds * 1000))

    def screen(self, width=1280, height=900):
        mobile = width < 600
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=mobile)  # fmt: skip

    def prefers(self, scheme="light", *, motion="no-preference"):
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        found = [{"name": name, "value": value} for name, value in features.items()]
        self.cdp("Emulation.setEmulatedMedia", features=found)

    def until(self, condition, what):
        """What ``condition`` returns as soon as that is true."""
        wait = WebDriverWait(self.driver, self.patience, poll_frequency=0.1)
        return wait.until(lambda _: condition(), f"never happened: {what}")

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def find(self, css, text=""):
        """The first that fits and has the text in it."""
        script = """
          const [css, text] = arguments;
          const seen = (one) => one.checkVisibility();
          return [...document.querySelectorAll(css)]
            .find((one) => seen(one) && one.textContent.includes(text)) ?? null;
        """
        return self.until(lambda: self.run(script, css, text), f"{css} with {text!r}")

    def click(self, css, text=""):
        """As a person does, who looks again if the page replaces the element just then."""

        def clicked():
            try:
                wanted = self.find(css, text)
                self.run("arguments[0].scrollIntoView({block: 'center'})", wanted)
                wanted.click()
            except (StaleElementReferenceException, ElementClickInterceptedException):
                return False
            return True

        self.until(clicked, f"a click on {css} with {text!r}")

    def text(self, css="main"):
        """All that is shown, without the places where lines break."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return " ".join(self.run(script, css).split())

    def says(self, text, css="main"):
        self.until(lambda: text in self.text(css), f"{text!r} in {css}: {self.text(css)[:2000]}")

    def press(self, *keys):
        """Keys for whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, condition, most=60):
        """Press Tab until the focused element fulfils a condition, in JavaScript, on ``one``."""
        for _ in range(most):
            self.press(Keys.TAB)
            if self.run(f"const one = document.activeElement; return {condition}"):
                return
        raise AssertionError(f"Tab never came to {condition}")

    def console(self):
        """What the console says since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses that were asked for since this was last asked."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found


@contextmanager
def browser():
    """A browser that ends with the block."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # In containers everything runs as root, and Chromium's sandbox does not.
    for flag in (*_FLAGS, *(("--no-sandbox",) if os.geteuid() == 0 else ())):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        made = Browser(driver)
        made.screen()
        made.prefers()
        yield made
    finally:
        driver.quit()


def wait_until(condition, what, seconds=60.0):
    """For conditions outside of the page."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"never happened: {what}"
        time.sleep(0.05)
