"""Pins what the package needs, with the digests of every file of each release: ``make pins``.

Writes runtime.txt, and dev.txt, bench.txt and audit.txt with what these need beyond it. pip
resolves and says which index it uses; the digests are the index's own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._internal.models.index import PyPI

HERE = Path(__file__).parent
EXTRAS = ("dev", "bench", "audit")
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def main() -> None:
    runtime = resolved("")
    write("runtime", runtime)
    known = dict(runtime)
    for extra in EXTRAS:
        found = {n: v for n, v in resolved(f"[{extra}]", known).items() if n not in known}
        write(extra, found)
        known |= found


def resolved(extra: str, known: dict[str, str] | None = None) -> dict[str, str]:
    """Names and versions of all that the package needs with an extra."""
    pinned = HERE / ".known.txt"
    pinned.write_text("".join(f"{n}=={v}\n" for n, v in (known or {}).items()))
    done = subprocess.run(
        [*_PIP, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-",
         "--no-build-isolation", "-c", str(pinned), "-e", f"{HERE.parent}{extra}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pinned.unlink()
    items = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return {
        re.sub(r"[-_.]+", "-", m["name"]).lower(): m["version"]
        for m in items if m["name"] != "heliograph"
    }  # fmt: skip


def write(name: str, pins: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pin: digests(*pin), sorted(pins.items())))
    lines = []
    for (package, version), hashes in zip(sorted(pins.items()), found, strict=True):
        parts = [f"{package}=={version}", *(f"    --hash=sha256:{h}" for h in hashes)]
        lines.append(" \\\n".join(parts))
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(f"{name}: {len(pins)} packages")


def digests(package: str, version: str) -> list[str]:
    request = urllib.request.Request(
        f"{index().rstrip('/')}/{package}/",
        headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
        as_json = "json" in answer.headers.get("Content-Type", "")
    if as_json:
        files = [(f["filename"], f["hashes"].get("sha256")) for f in json.loads(text)["files"]]
    else:
        links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', text)
        files = [(link.rpartition("/")[2], digest) for link, digest in links]
    stem = re.compile(
        rf"^{re.sub('[-_.]+', '[-_.]+', package)}-{re.escape(version)}(?:-|\.tar|\.zip)",
        re.IGNORECASE,
    )
    found = sorted({digest for name, digest in files if digest and stem.match(name)})
    if not found:
        sys.exit(f"the index has no digests of {package} {version}")
    return found


def index() -> str:
    done = subprocess.run(
        [*_PIP, "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or PyPI.simple_url


if __name__ == "__main__":
    main()
