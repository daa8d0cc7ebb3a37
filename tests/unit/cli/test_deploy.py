"""The files of deploy/: what they name is there, and what they call is understood."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from heliograph.cli.health import health_command
from heliograph.cli.run import run_command

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd/heliograph.service").read_text()
CONTAINERFILE = (DEPLOY / "container/Containerfile").read_text()
COMMANDS = {"run": run_command, "health": health_command}
FILE = "/etc/heliograph/mm2.properties"


def understood(command, *args):
    """The parameters of a call of ours; raises if an option is unknown."""
    return COMMANDS[command].make_context(command, list(args)).params


def exec_form(word):
    """The JSON lists behind a word of the Containerfile."""
    text = CONTAINERFILE.replace("\\\n", " ")
    return [json.loads(found) for found in re.findall(rf"^{word}\b.*?(\[.*\])$", text, re.M)]


def test_the_unit_calls_us_with_options_that_we_have():
    [line] = re.findall(r"^ExecStart=\S+/heliograph (.*)$", UNIT, re.M)
    params = understood(*shlex.split(line))
    assert (str(params["file"]), params["watch"]) == (FILE, True)
    assert params["listen"] == "127.0.0.1:8083"


def test_systemd_understands_the_unit(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze")
    # It looks whether the program is there.
    made = tmp_path / "heliograph.service"
    made.write_text(UNIT.replace("/opt/heliograph/bin/heliograph", sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(made)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    about_us = [x for x in done.stderr.splitlines() if "heliograph" in x]
    assert (done.returncode, about_us) == (0, []), done.stderr
    wrong = made.read_text().replace("WatchdogSec=60", "WatchdogSec=often")
    made.write_text(wrong)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(made)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "Failed to parse sec value" in done.stderr, "it does look"


def test_the_image_runs_as_somebody_else_and_looks_after_itself():
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.M) == ["10001:10001"]
    [probe], [main] = exec_form("HEALTHCHECK"), exec_form("CMD")
    assert exec_form("ENTRYPOINT") == [["tini", "--", "heliograph"]]
    assert understood(*probe[1:])["url"].endswith(understood(*main)["listen"])
    assert str(understood(*main)["file"]) == FILE
    for sources in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.M):
        for source in sources.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_deployment_has_probes_and_writes_nowhere_but_to_its_scratch():
    [made] = yaml.safe_load_all((DEPLOY / "kubernetes/heliograph.yaml").read_text())
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    params = understood(*container["args"])
    for name, ready in (
        ("startupProbe", False),
        ("livenessProbe", False),
        ("readinessProbe", True),
    ):
        program, *call = container[name]["exec"]["command"]
        asked = understood(*call)
        assert (program, asked["ready"]) == ("heliograph", ready)
        assert asked["url"] == f"http://{params['listen']}"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 10001
    volumes = {v["name"] for v in pod["volumes"]}
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    assert mounts.keys() == {str(params["file"].parent), "/tmp"}
    assert set(mounts.values()) == volumes
    assert made["spec"]["selector"]["matchLabels"].items() <= (
        made["spec"]["template"]["metadata"]["labels"].items()
    )
