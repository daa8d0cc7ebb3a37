import json

import pytest
from click.testing import CliRunner

from heliograph.cli.config import config_group

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
    assert len(result["warnings"]) == 1


def test_show_prints_every_error_and_exits_with_2(path, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text(TEXT + "tasks.max=x\nA->C.topics=x\n")
    result = run("show", str(bad))
    assert result.exit_code == 2
    assert "2 errors" in result.output
    listed = run("show", str(bad), "-o", "json")
    assert listed.exit_code == 2
    assert [e["key"] for e in json.loads(listed.output)["errors"]] == ["tasks.max", "A->C.topics"]
    assert run("show", "/no/such/file").exit_code == 2


def test_keys():
    listed = json.loads(run("keys", "-o", "json").output)
    assert any(key["name"] == "offset.lag.max" and key["default"] == "100" for key in listed)
    assert "offset" in run("keys").output
