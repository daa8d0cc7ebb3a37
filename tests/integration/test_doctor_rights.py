"""``heliograph doctor`` on clusters with authorizers: which right is missing, what grants it."""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from itertools import pairwise

import pytest
from access import MECHANISM, acl, allow, grant, granted, revoke, settings_of
from doctoring import Patient
from grouping import await_groups

from heliograph.model import TopicPartition
from heliograph.wire.groups import Committed, GroupClient

USER = "dave"
#: Who may do everything, but for what a test denies.
EVERYTHING = [
    allow(USER, "ALL"),
    allow(USER, "ALL", "topic", "*"),
    allow(USER, "ALL", "group", "*"),
]


@pytest.fixture
def patient(guarded_lab, tmp_path):
    """Dave mirrors a topic whose remote topic is there, with a ledger and a group."""
    made = Patient(guarded_lab, tmp_path)
    for side, alias in (("source", "A"), ("target", "B")):
        properties = settings_of(guarded_lab, alias, USER).properties
        made.set(**{f"{side}.sasl.jaas.config": properties["sasl.jaas.config"]})
    made.create(made.source, made.topic)
    made.create(made.target, made.remote)
    made.create(made.target, made.ledger, cleanup_policy="compact")
    with ExitStack() as stack:
        for client in (made.source, made.target):
            stack.enter_context(granted(client, *EVERYTHING))
        yield made
    made.close()


def deny(text):
    return acl(f"DENY {text} {USER}")


def grants(*words):
    """The end of the command that is told."""
    return rf"kafka-acls\.sh .*--allow-principal User:{USER} --operation {' '.join(words)}"


CASES = {
    "to read a source topic": (
        "source", ["READ topic {topic}"], {}, "rights-topics", "problem",
        grants("Read", "--topic", "{topic}")),
    "to see a source topic": (
        "source", ["DESCRIBE topic {topic}", "READ topic {topic}", "WRITE topic {topic}",
                   "ALTER topic {topic}", "DELETE topic {topic}"], {}, "topics", "problem",
        "is not shown to us.*" + grants("Describe", "--topic", "{topic}")),
    "to see the properties of a source topic": (
        "source", ["DESCRIBE_CONFIGS topic {topic}", "ALTER_CONFIGS topic {topic}"], {},
        "rights-topics", "warning", grants("DescribeConfigs", "--topic", "{topic}")),
    "to write a remote topic": (
        "target", ["WRITE topic {remote}"], {}, "rights-topics", "problem",
        grants("Write", "--topic", "{remote}")),
    "to change a remote topic": (
        "target", ["ALTER_CONFIGS topic {remote}"], {}, "rights-topics", "warning",
        grants("AlterConfigs", "--topic", "{remote}")),
    "to write the ledger": (
        "target", ["WRITE topic {ledger}"], {}, "rights-topics", "problem",
        grants("Write", "--topic", "{ledger}")),
    "to create topics": (
        "target", ["CREATE cluster kafka-cluster", "CREATE topic {alias}.checkpoints.internal"],
        {}, "plan", "problem",
        grants("Create", "--topic", r"{alias}\.checkpoints\.internal")),
    "to fill gaps, with identical offsets": (
        "target", ["ALTER cluster kafka-cluster", "CLUSTER_ACTION cluster kafka-cluster"],
        {"heliograph.offsets": "identical"}, "offsets",
        "problem", grants("Alter", "--cluster")),
    "to copy ACLs": (
        "target", ["ALTER cluster kafka-cluster"], {}, "rights-cluster", "warning",
        "sync.topic.acls.enabled=false.*" + grants("Alter", "--cluster")),
    "to commit offsets of groups": (
        "target", ["READ group {group}"], {"sync.group.offsets.enabled": "true"},
        "rights-groups", "problem", grants("Read", "--group", "{group}")),
    "to see groups": (
        "target", ["DESCRIBE group {group}", "READ group {group}", "DELETE group {group}"],
        {"sync.group.offsets.enabled": "true"}, "rights-groups", "problem",
        grants("Describe", "--group", "{group}")),
}  # fmt: skip


def commit_on_both(patient):
    for client, topic in ((patient.source, patient.topic), (patient.target, patient.remote)):
        groups = GroupClient(client)
        await_groups(groups, patient.group)
        answers = groups.commit({patient.group: {TopicPartition(topic, 0): Committed(0)}})
        assert not answers.errors


@pytest.mark.parametrize("name", CASES)
def test_doctor_finds_that_a_right_is_missing(patient, name):
    side, denied, keys, check, verdict, text = CASES[name]
    names = {k: getattr(patient, k) for k in ("topic", "remote", "ledger", "alias", "group")}
    patient.set(**keys)
    commit_on_both(patient)
    client = patient.source if side == "source" else patient.target
    with granted(client, *(deny(one.format(**names)) for one in denied)):
        found = patient.examine()
    assert re.search(text.format(**names), found[check, verdict])


def test_whoever_may_do_everything_lacks_nothing(patient):
    found = patient.examine()
    # The lab's logins are sent in plain text, which is what config-file warns of.
    assert set(found) == {("config-file", "warning")}


def test_the_commands_of_doctor_grant_all_that_a_flow_needs_and_no_more(patient):
    patient.set(**{
        "sync.group.offsets.enabled": "true", "sync.topic.acls.enabled": "false",
        "heliograph.offsets": "dense",
    })  # fmt: skip
    commit_on_both(patient)
    patient.examine()
    [needed] = [f.said for f in patient.ok if f.check == "rights"]
    sides = {patient.lab["A"].bootstrap: patient.source, patient.lab["B"].bootstrap: patient.target}
    wanted = [(sides[where], one) for c in needed.commands for where, one in granted_by(c)]
    with ExitStack() as stack:
        for client in sides.values():
            revoke(client, *EVERYTHING)
            stack.callback(grant, client, *EVERYTHING)
            stack.enter_context(granted(client, *(one for c, one in wanted if c is client)))
        found = patient.examine()
        bad = {check: text for (check, verdict), text in found.items() if verdict != "not checked"}
        assert set(bad) == {"config-file"}
        # What doctor alone asks for is not granted, and is named.
        unseen = {c: text for (c, verdict), text in found.items() if verdict == "not checked"}
        assert set(unseen) == {"broker-settings", "mm2", "other-mirror", "unknown-target"}
        assert re.search(grants("DescribeConfigs", "--cluster"), unseen["broker-settings"])
        assert re.search(grants("Read", "--topic", "mm2-offsets"), unseen["mm2"])
        read = allow(USER, "READ", "topic", patient.topic)
        revoke(patient.source, read)
        stack.callback(grant, patient.source, read)
        # Whoever may not read it does not see it either.
        assert ("topics", "problem") in patient.examine()


def granted_by(command):
    """(cluster, ACL) of each right that a command grants."""
    words = shlex.split(command)
    pairs = list(pairwise(words))
    [where] = [b for a, b in pairs if a == "--bootstrap-server"]
    [user] = [b.removeprefix("User:") for a, b in pairs if a == "--allow-principal"]
    places = [(a[2:], b) for a, b in pairs if a in {"--topic", "--group"}]
    places += [("cluster", "kafka-cluster")] if "--cluster" in words else []
    for operation in (b for a, b in pairs if a == "--operation"):
        for kind, name in places:
            code = re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            yield where, allow(user, code, kind, name)


def test_doctor_finds_a_password_that_is_wrong_and_a_file_that_others_can_read(patient):
    module = settings_of(patient.lab, "A").properties["sasl.jaas.config"]
    patient.set(**{"source.sasl.jaas.config": module.replace("alice-secret", "forgotten")})
    patient.path.chmod(0o644)
    found = patient.examine()
    assert re.search(f"refused SASL {MECHANISM}.*sasl", found["login", "problem"])
    assert "forgotten" not in str(found)
    assert {check for check, verdict in found if verdict == "problem"} == {"login"}
    assert "secret in a file that other users can read" in found["config-file", "warning"]
