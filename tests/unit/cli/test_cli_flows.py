"""Commands that ask clusters: one that is down does not spoil what the others answer."""

import json

import pytest
from click.testing import CliRunner

from heliograph.cli import acls, cli, flows, groups, topics, verify
from heliograph.control.acls.rules import AclPlan
from heliograph.control.groups.preview import GroupPreview
from heliograph.control.topics.preview import TopicPreview
from heliograph.errors import ConnectionFailed, HeliographError, StartError
from heliograph.verify.report import Report

TEXT = """
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->B.enabled = true
A->C.enabled = true
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(TEXT)
    return path


def answering(answer):
    def ask(config):
        if config.flow.target == "B":
            raise ConnectionFailed("no broker of cluster B answers")
        return answer

    return ask


COMMANDS = {
    "groups": (groups, "_preview", GroupPreview((), ("a note",)), ["groups"]),
    "topics": (topics, "_preview", TopicPreview((), {}, (), {}, {}, ()), ["topics", "plan"]),
    "acls": (acls, "_plan", AclPlan((), (), (), ()), ["acls", "plan"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_flows_that_worked_are_shown(file, monkeypatch, name):
    module, function, answer, command = COMMANDS[name]
    monkeypatch.setattr(module, function, answering(answer))
    done = CliRunner().invoke(cli, [*command, str(file)])
    assert done.output.startswith("A->C: no")
    assert isinstance(done.exception, StartError)
    assert "flow A->B: no broker of cluster B answers" in str(done.exception)
    assert done.exception.exit_code == 3


@pytest.mark.parametrize("name", COMMANDS)
def test_json_has_all_flows(file, monkeypatch, name):
    module, function, answer, command = COMMANDS[name]
    monkeypatch.setattr(module, function, answering(answer))
    done = CliRunner().invoke(cli, [*command, str(file), "-o", "json"])
    worked, failed = json.loads(done.output)
    assert (worked["flow"], failed["flow"]) == ("A->C", "A->B")
    assert failed["error"]["code"] == "cluster.unreachable"


def test_topics_plan_exits_with_1_if_there_are_problems(file, monkeypatch):
    seen = TopicPreview((), {}, (), {}, {}, ("B refuses",))
    monkeypatch.setattr(topics, "_preview", lambda _: seen)
    assert CliRunner().invoke(cli, ["topics", "plan", str(file)]).exit_code == 1


def test_verify_reports_the_flows_that_worked(file, monkeypatch):
    class Verification:
        report = None

        def __init__(self, config, *_):
            self._ask = lambda: answering(Report(str(config.flow), "now", [], 20))(config)

        def run(self, *_):
            return self._ask()

    class Engine:
        def __init__(self, *_):
            pass

        def begin(self):
            pass

        def stop(self):
            pass

    monkeypatch.setattr(verify, "Verification", Verification)
    monkeypatch.setattr(verify, "Engine", Engine)
    done = CliRunner().invoke(cli, ["verify", str(file), "-o", "json"])
    assert done.exit_code == 2, done.output
    answers = {f["flow"]: f for f in json.loads(done.stdout)["flows"]}
    assert answers["A->B"]["unverified"] == ["no broker of cluster B answers"]
    assert answers["A->C"]["unverified"] == []
    one = CliRunner().invoke(cli, ["verify", str(file), "--flow", "A->B"])
    assert isinstance(one.exception, HeliographError)
    assert (one.exception.code, one.exception.exit_code) == ("cluster.unreachable", 2)


def test_several_errors_are_all_shown(file, capsys):
    def ask(config):
        raise ConnectionFailed(f"no broker of cluster {config.flow.target} answers")

    answers = flows.ask_flows(file, None, ask)
    with pytest.raises(StartError, match="cluster C"):
        answers.raise_errors()
    assert "cluster B" in capsys.readouterr().err
