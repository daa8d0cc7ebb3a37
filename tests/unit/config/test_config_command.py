import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from heliograph.cli.config import config_group
from heliograph.config import KEYS

TEXT = """\
clusters=A,B
A.bootstrap.servers=a:1
B.bootstrap.servers=b:1
A->B.enabled=true
A->B.topics=orders[0-9]
A.ssl.key.password=hunter2
what.is.this=hunter2
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(TEXT)
    return str(path)


def run(*args):
    return CliRunner().invoke(config_group, args)


def test_show_table_hides_secrets_and_names_origins(path):
    result = run("show", path)
    assert result.exit_code == 0
    assert "orders[0-9]" in result.output
    assert "mm2.properties:5" in result.output
    assert "what.is.this: unknown key" in result.output
    assert "hunter2" not in result.output
    assert "offset.lag.max" not in result.output


def test_show_json(path):
    result = json.loads(run("show", path, "-o", "json", "--all", "--clusters", "B").output)
    [flow] = result["flows"]
    assert (flow["source"], flow["target"], flow["enabled"]) == ("A", "B", True)
    assert flow["values"]["offset.lag.max"] == {"value": "100", "from": "default"}
    assert flow["values"]["source.consumer.ssl.key.password"]["value"] == "[hidden]"
    unknown, weak = result["warnings"]
    assert "unknown key" in unknown
    assert "a secret in a file that other users can read" in weak


def test_show_prints_every_error_and_exits_with_2(path, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text(TEXT + "tasks.max=x\nA->C.topics=x\n")
    result = run("show", str(bad))
    assert result.exception.exit_code == 2
    assert "2 errors" in str(result.exception)
    listed = run("show", str(bad), "-o", "json")
    assert listed.exit_code == 2
    assert [e["key"] for e in json.loads(listed.output)["errors"]] == ["tasks.max", "A->C.topics"]
    assert run("show", "/no/such/file").exception.exit_code == 2


EVERYTHING = """\
clusters=NYC,LON
NYC.bootstrap.servers=a:1
LON.bootstrap.servers=b:1
NYC->LON.enabled=true
NYC->LON.topics=orders
topics=other
NYC.consumer.client.id=me
NYC.client.rack=r1
LON.producer.linger.ms=5
NYC->LON.metric.reporters=x
listeners=http://localhost:8083
offset.storage.replication.factor=1
offset.storage.topic=positions
LON.offset.flush.interval.ms=1000
what.is.this=1
"""


@pytest.fixture
def everything(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(EVERYTHING)
    return str(path)


def test_every_line_is_shown_and_those_without_effect_apart(everything):
    result = json.loads(run("show", everything, "-o", "json").output)
    flow = result["flows"][0]["values"]
    assert flow["topics"]["value"] == "orders"
    assert flow["source.consumer.client.id"]["value"] == "me"
    assert set(result["whole_file"]) == {"clusters", "offset.storage.topic"}
    assert result["without_effect"].keys() == {
        "NYC.client.rack", "LON.producer.linger.ms", "NYC->LON.metric.reporters", "listeners",
        "offset.storage.replication.factor", "LON.offset.flush.interval.ms", "what.is.this",
    }  # fmt: skip
    why = result["without_effect"]["NYC.client.rack"]["why"]
    assert "NYC.consumer.client.rack" in why
    shown = run("show", everything).stdout
    names = [line.partition("=")[0] for line in EVERYTHING.splitlines()]
    # As a key of its own, or as the origin of a flow's value.
    assert [n for n in names if f" {n}\t" not in shown and f"\t{n}\t" not in shown] == []


def test_piped_rows_are_one_line_each_with_tabs(everything):
    rows = [line.split("\t") for line in run("show", everything, "--all").stdout.splitlines()]
    assert {len(row) for row in rows} == {5}
    assert ["NYC->LON", "offset.lag.max", "100", "default", ""] in rows
    keys = [line.split("\t") for line in run("keys").stdout.splitlines()]
    assert {len(row) for row in keys} == {6}
    assert [row[0] for row in keys] == [key.name for key in KEYS]


def on_terminal(*args, columns=80):
    """What the command prints to a terminal of 80 columns, without colours."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-m", "heliograph", "config", *args],
                          stdout=theirs, env=environment) as process:  # fmt: skip
        os.close(theirs)
        data = b""
        while True:
            try:
                data += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
    os.close(ours)
    assert process.returncode == 0
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in data.decode().splitlines()]


def test_keys_fit_into_80_columns_and_stay_whole():
    lines = on_terminal("keys")
    assert max(map(len, lines)) <= 80
    heads = [line.split()[0] for line in lines if re.match("  [^ ]", line)]
    assert heads == [key.name for key in KEYS]


def test_show_stays_whole_on_80_columns(everything):
    lines = on_terminal("show", everything, "--all")
    assert "NYC->LON: mirrors" in lines
    assert "without effect" in lines
    heads = [line.split(" = ")[0].strip() for line in lines if re.match("  [^ ].* = ", line)]
    assert "replication.policy.internal.topic.separator.enabled" in heads
    assert "source.consumer.bootstrap.servers" in heads


def test_clusters_as_in_run(everything):
    flows = json.loads(run("show", everything, "-o", "json", "--clusters", "LON", "NYC").output)
    assert len(flows["flows"]) == 2
    assert run("show", everything, "LON").exit_code != 0


def test_keys():
    listed = json.loads(run("keys", "-o", "json").output)
    assert any(key["name"] == "offset.lag.max" and key["default"] == "100" for key in listed)
    assert "offset" in run("keys").output
