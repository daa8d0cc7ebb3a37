"""ACLs carried over between real clusters with authorizers."""

from __future__ import annotations

import json
import logging
import uuid

import pytest
from access import (
    acl,
    acls_of,
    allow,
    create_topic,
    flow_config,
    grant,
    granted,
    revoke,
    settings_of,
    write_config,
)
from click.testing import CliRunner
from driving import copying_jobs
from mirroring import wait_for

from heliograph.cli import cli
from heliograph.control.acls.sync import AclSync
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.memory import SyncedMemory
from heliograph.model import TopicPartition
from heliograph.service.flow import FlowRuntime
from heliograph.wire import acls, log
from heliograph.wire.acls import NoAuthorizer
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import BrokerError


class Flow:
    """The ACLs of flow A->B, for topics whose names begin with ``stem``."""

    def __init__(self, lab, folder, users=("alice", "alice"), memory=None, **keys):
        self.lab = lab
        self.stem = f"t{uuid.uuid4().hex[:8]}"
        selected = {"topics": f"{self.stem}.*", "groups": f"{self.stem}.*"}
        self.path = write_config(lab, folder, users, **(selected | keys))
        self.config = flow_config(self.path)
        self.source = ClusterClient(settings_of(lab, "A"), "test")
        self.target = ClusterClient(settings_of(lab, "B"), "test")
        self._admins = (
            ClusterClient(self.config.source_admin, "test"),
            ClusterClient(self.config.target_admin, "test"),
        )
        self._memory_topic = memory

    def job(self):
        """As a newly started process makes it."""
        memory = None
        if self._memory_topic:
            memory = SyncedMemory(LedgerFollower(self.target, self._memory_topic))
        return AclSync(self.config, *self._admins, memory)

    def name(self, rest=""):
        return f"{self.stem}-{rest}"

    def acl(self, text):
        """With ``~`` for the stem."""
        return acl(text.replace("~", self.stem + "-"))

    def acls(self, *texts):
        return set(map(self.acl, texts))

    @property
    def copied(self):
        return acls_of(self.target, self.stem)

    def close(self):
        for client in (self.source, self.target, *self._admins):
            client.close()


@pytest.fixture
def flow(guarded_lab, tmp_path):
    made = []

    def make(users=("alice", "alice"), **keys):
        keys = {key.replace("_", "."): value for key, value in keys.items()}
        memory = f"memory-{uuid.uuid4().hex[:8]}"
        made.append(Flow(guarded_lab, tmp_path, users, memory, **keys))
        create_topic(made[-1].target, memory, cleanup_policy="compact")
        return made[-1]

    yield make
    for one in made:
        one.close()


def ours(caplog):
    return [r.getMessage() for r in caplog.records if r.name.startswith("heliograph.")]


def reads(lab, user, topic):
    """Whether somebody may read a topic of B."""
    with ClusterClient(settings_of(lab, "B", user), "test") as client:
        try:
            log.read_once(client, TopicPartition(topic, 0), 0)
        except BrokerError:
            return False
        return True


def test_s36_write_is_left_out_all_becomes_read_and_denials_stay(flow):
    f = flow()
    source = f.acls(
        "ALLOW WRITE topic ~w bob",
        "ALLOW ALL topic ~all bob",
        "ALLOW READ topic ~r carol",
        "DENY ALL topic ~deny bob",
        "ALLOW READ topic ~prefix… bob",
        "ALLOW READ group ~g bob",
        "ALLOW READ topic other bob",
    )
    grant(f.source, *source)
    job = f.job()
    job.sync()
    a = f"A.{f.stem}-"
    wanted = {
        acl(f"ALLOW READ topic {a}all bob"),
        acl(f"ALLOW READ topic {a}r carol"),
        acl(f"DENY ALL topic {a}deny bob"),
    }
    assert f.copied == wanted
    assert acls_of(f.source, f.stem, "other") >= source, "the source is not touched"
    assert job.plan().additions == []
    revoke(f.source, acl("ALLOW READ topic other bob"))


def test_a_reader_of_the_source_may_read_the_copy(flow, guarded_lab):
    f = flow()
    create_topic(f.target, f"A.{f.name('t')}")
    assert not reads(guarded_lab, "bob", f"A.{f.name('t')}")
    grant(f.source, f.acl("ALLOW READ topic ~t bob"))
    f.job().sync()
    assert wait_for(lambda: reads(guarded_lab, "bob", f"A.{f.name('t')}"))
    assert not reads(guarded_lab, "carol", f"A.{f.name('t')}")


def test_who_is_kept_out_by_a_prefix_stays_out(flow, guarded_lab):
    f = flow()
    create_topic(f.target, f"A.{f.name('t')}")
    grant(f.source, f.acl("ALLOW READ topic ~t *"), f.acl("DENY READ topic ~… bob"))
    f.job().sync()
    assert wait_for(lambda: reads(guarded_lab, "carol", f"A.{f.name('t')}"))
    assert not reads(guarded_lab, "bob", f"A.{f.name('t')}")


def test_prefixes_and_groups(flow):
    f = flow(heliograph_acls_prefixed="true", heliograph_acls_groups="true")
    create_topic(f.source, f.name("orders"))
    source = f.acls(
        "ALLOW READ topic ~ord… bob",
        "ALLOW READ topic ~none… bob",
        "ALLOW READ group ~g bob",
        "ALLOW READ group ~pre… bob",
        "ALLOW READ group other bob",
    )
    grant(f.source, *source)
    f.job().sync()
    assert f.copied == f.acls("ALLOW READ group ~g bob", "ALLOW READ group ~pre… bob") | {
        acl(f"ALLOW READ topic A.{f.stem}-ord… bob")
    }
    revoke(f.source, acl("ALLOW READ group other bob"))


def test_the_identity_policy_does_not_open_topics_of_the_target(flow):
    f = flow(heliograph_acls_prefixed="true", replication_policy_class="IdentityReplicationPolicy")
    create_topic(f.source, f.name("orders"))
    grant(f.source, f.acl("ALLOW READ topic ~… bob"), f.acl("ALLOW READ topic ~orders carol"))
    create_topic(f.target, f.name("private"))
    job = f.job()
    job.sync()
    assert f.copied == f.acls("ALLOW READ topic ~orders carol")
    [left] = [c for c in job.plan().left_out if f.stem in c.acl.name]
    assert left.reason == f"{f.stem}- is also the beginning of {f.name('private')} on B"


def test_the_checkpoints_are_not_opened_by_a_prefix(flow):
    f = flow(topics="checks.*", heliograph_acls_prefixed="true")
    create_topic(f.source, "checks")
    with granted(f.source, acl("ALLOW READ topic chec… bob")):
        plan = f.job().plan()
    reasons = [c.reason for c in plan.left_out if c.acl.name == "chec"]
    assert reasons == ["A.chec is also the beginning of A.checkpoints.internal on B"]


def test_what_was_copied_is_revoked_with_its_original_and_nothing_else(flow):
    f = flow(heliograph_acls_revoke="true")
    mine, kept, theirs = f.acls(
        "ALLOW READ topic ~t bob", "ALLOW READ topic ~t carol", "ALLOW READ topic ~t dave"
    )
    copy = {one: acl(f"ALLOW READ topic A.{one.name} {one.principal[5:]}")
            for one in (mine, kept, theirs)}  # fmt: skip
    # Somebody made this one on B before us, and another that A has never had.
    own = f.acl("ALLOW DESCRIBE topic ~own bob")
    grant(f.target, copy[theirs], own)
    grant(f.source, mine, kept, theirs)
    f.job().sync()
    assert f.copied == {*copy.values(), own}
    revoke(f.source, mine, theirs)
    f.job().sync()
    assert f.copied == {copy[kept], copy[theirs], own}
    assert f.job().plan().removals == []


def test_without_revocation_what_was_copied_stays_and_is_known_later(flow):
    f = flow()
    one = f.acl("ALLOW READ topic ~t bob")
    copy = acl(f"ALLOW READ topic A.{one.name} bob")
    grant(f.source, one)
    f.job().sync()
    revoke(f.source, one)
    f.job().sync()
    assert f.copied == {copy}
    f.config = flow_config(write_config(
        f.lab, f.path.parent, ("alice", "alice"),
        **{"topics": f"{f.stem}.*", "heliograph.acls.revoke": "true"},
    ))  # fmt: skip
    [change] = f.job().plan().removals
    assert change.acl == copy
    assert change.reason == "A has no such ACL any more; it was copied from there"


def test_a_target_that_takes_no_acls_is_told_once_and_gets_them_after_the_grant(flow, caplog):
    f = flow(users=("alice", "dave"), heliograph_acls_revoke="true")
    grant(f.source, f.acl("ALLOW READ topic ~t bob"))
    job = f.job()
    with pytest.raises(BrokerError, match="User:dave may not Describe cluster B; grant it with: "):
        job.sync()
    with granted(f.target, allow("dave", "DESCRIBE")):
        with pytest.raises(BrokerError) as info:
            job.sync()
        assert "User:dave may not Alter cluster B; grant it (only if you must: " in str(info.value)
        assert "--add --allow-principal User:dave --operation Alter --cluster" in str(info.value)
        assert f.copied == set()
        # Somebody makes it by hand instead: then it is not ours.
        copy = acl(f"ALLOW READ topic A.{f.stem}-t bob")
        grant(f.target, copy)
        revoke(f.source, f.acl("ALLOW READ topic ~t bob"))
        job.sync()
        assert f.copied == {copy}
    with granted(f.target, allow("dave", "ALTER")):
        grant(f.source, f.acl("ALLOW READ topic ~u bob"))
        job.sync()
        assert acl(f"ALLOW READ topic A.{f.stem}-u bob") in f.copied


def test_the_job_of_a_flow(flow):
    f = flow(sync_topic_acls_interval_seconds="7")
    runtime = FlowRuntime(f.config)
    try:
        runtime.open_target()
        runtime.open()
        [job] = [job for job in copying_jobs(runtime) if "ACLs" in job.description]
        assert (job.description, job.interval_seconds) == ("syncing ACLs of A->B", 7)
        grant(f.source, f.acl("ALLOW READ topic ~t bob"))
        job.run()
        assert f.copied == {acl(f"ALLOW READ topic A.{f.stem}-t bob")}
        assert job.details is not None
        assert job.details() == {}
    finally:
        runtime.close()


def test_no_job_if_acls_are_not_to_be_synced(flow):
    runtime = FlowRuntime(flow(sync_topic_acls_enabled="false").config)
    try:
        runtime.open_target()
        runtime.open()
        assert not [job for job in copying_jobs(runtime) if "ACLs" in job.description]
    finally:
        runtime.close()


def test_a_source_that_does_not_tell_its_acls(flow):
    f = flow(users=("dave", "alice"))
    right = "User:dave may not Describe cluster A; grant it with: "
    with pytest.raises(BrokerError, match=right):
        f.job().sync()
    shown = CliRunner().invoke(cli, ["acls", "plan", str(f.path)])
    assert shown.exit_code != 0
    assert str(shown.exception).startswith(
        "[acls.refused] flow A->B: reading the ACLs of cluster A"
    )
    assert right in str(shown.exception)


@pytest.mark.full
def test_s37_no_authorizer_at_the_source_is_told_once_and_nothing_is_touched(
    lab_factory, guarded_lab, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "heliograph")
    lab = lab_factory(clusters=["A"], security="SASL_PLAINTEXT")
    both = {"A": lab["A"], "B": guarded_lab["B"]}
    f = Flow(both, tmp_path, **{"heliograph.acls.revoke": "true"})
    own = f.acl("ALLOW READ topic ~own bob")
    grant(f.target, own)
    job = f.job()
    for _ in range(3):
        job.sync()
    assert ours(caplog) == [
        "A->B: cluster A has no authorizer: ACLs are not synced;"
        " set sync.topic.acls.enabled=false if that is meant"
    ]
    assert job.details() == {"authorizer": "cluster A has none; nothing is synced"}
    assert f.copied == {own}
    shown = CliRunner().invoke(cli, ["acls", "plan", str(f.path)])
    assert shown.output == "A->B: no authorizer on A, hence no ACLs: nothing to do\n"

    # And back again: the administrators of A give it one.
    caplog.clear()
    [broker] = lab["A"].brokers
    broker.stop(grace_s=0)
    guarded = guarded_lab["A"].brokers[0].properties_path.read_text().splitlines()
    needed = [line for line in guarded if line.startswith(("authorizer.", "super.users"))]
    with broker.properties_path.open("a") as file:
        file.write("\n".join(needed) + "\n")
    lab["A"].start_brokers()
    lab["A"].wait_ready()
    one = f.acl("ALLOW READ topic ~t bob")
    f.source.close()
    grant(f.source, one)
    job.sync()
    job.sync()
    assert f.copied == {own, acl(f"ALLOW READ topic A.{one.name} bob")}
    assert job.details() == {}
    messages = ours(caplog)
    assert messages[0] == "A->B: both clusters have an authorizer now: ACLs are synced"
    assert len(messages) == 2
    assert messages[1].startswith("A->B: ACLs added to B: ALLOW READ on topic A.")
    f.close()


def test_two_open_clusters_are_nothing_to_warn_of(lab, tmp_path, caplog):
    caplog.set_level(logging.INFO, "heliograph")
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA->B.enabled = true\n"
        + "".join(f"{a}.bootstrap.servers = {lab[a].bootstrap}\n" for a in "AB")
    )
    config = flow_config(path)
    with (
        ClusterClient(config.source_admin, "test") as source,
        ClusterClient(config.target_admin, "test") as target,
    ):
        job = AclSync(config, source, target, None)
        job.sync()
        with pytest.raises(NoAuthorizer):
            acls.create(target, [allow("bob", "ALTER")])
    assert job.details() == {"authorizer": "cluster A and cluster B have none; nothing is synced"}
    assert ours(caplog) == []
    shown = CliRunner().invoke(cli, ["acls", "plan", str(path)])
    assert shown.output == "A->B: no authorizer on A and B, hence no ACLs: nothing to do\n"


def test_the_plan_on_the_command_line_changes_nothing(flow):
    f = flow(heliograph_acls_revoke="true")
    source = f.acls(
        "ALLOW ALL topic ~t bob", "ALLOW WRITE topic ~t bob", "ALLOW WRITE topic ~u bob"
    )
    grant(f.source, *source)
    run = CliRunner().invoke
    shown = run(cli, ["acls", "plan", str(f.path), "--flow", "A->B"])
    assert shown.exit_code == 0
    assert "A->B: 1 to add to B, 0 to remove" in shown.output
    name = f.name("t")
    assert f"ALLOW READ on topic A.{name} to User:bob" in shown.output
    assert f"A has ALLOW ALL on topic {name} to User:bob, and ALL becomes READ" in shown.output
    assert "ACLs of A not copied, because only the mirror writes to remote topics, e.g." in (
        shown.output
    )
    [told] = json.loads(run(cli, ["acls", "plan", str(f.path), "-o", "json"]).output)
    assert (told["flow"], told["enabled"], told["removals"]) == ("A->B", True, [])
    assert told["additions"] == [{
        "resource_type": "TOPIC", "name": f"A.{name}", "pattern": "LITERAL",
        "principal": "User:bob", "host": "*", "operation": "READ", "permission": "ALLOW",
        "reason": f"A has ALLOW ALL on topic {name} to User:bob, and ALL becomes READ",
    }]  # fmt: skip
    assert f.copied == set()
    f.job().sync()
    assert f.copied == {acl(f"ALLOW READ topic A.{name} bob")}
    assert "A->B: nothing to do" in run(cli, ["acls", "plan", str(f.path)]).output
