"""Problems that cannot be planted here, or only at a cost: facts, and what the checks say."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heliograph.claims.log import Claim, Process
from heliograph.config import MirrorMakerConfig
from heliograph.control.topics.preview import TopicPreview
from heliograph.control.topics.refresh import Comparison
from heliograph.doctor.examination import connections_of, judged
from heliograph.doctor.facts import (
    Behind,
    BrokerFacts,
    Certificate,
    ClusterFacts,
    FlowFacts,
    FolderFacts,
    Identity,
    InternalTopic,
    LedgerFacts,
    MachineFacts,
    MirrorsFacts,
    Reached,
    RightsFacts,
    Sample,
    SourceLogs,
    TopicsFacts,
)
from heliograph.doctor.findings import CHECKS, Missing, Scope, Verdict
from heliograph.doctor.machine import look_at_machine
from heliograph.doctor.parallel import ask_all
from heliograph.errors import ConnectionFailed
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire.admin import NewTopic
from heliograph.wire.configs import ConfigEntry, ConfigSource, TopicConfigs
from heliograph.wire.inspection import Clock
from heliograph.wire.metadata import NO_ID, Metadata, PartitionInfo, TopicInfo

GB, DAY = 1 << 30, 86_400.0
ALL = frozenset(range(3, 13))
P = TopicPartition("orders", 0)

CONFIG = MirrorMakerConfig.from_mapping(
    {
        "clusters": "A, B",
        "A.bootstrap.servers": "a.example:9092",
        "B.bootstrap.servers": "b.example:9092",
        "A->B.enabled": "true",
    }
).flows[0]

FOLDER = FolderFacts("/var/cache/heliograph", 10 * GB, writable=True)
MACHINE = MachineFacts(
    python=(3, 12), java="/usr/bin/java", memory_bytes=8 * GB, available_bytes=4 * GB, cores=2,
    descriptors=20_000, buffer_bytes=256 << 20, cache=FOLDER, temporary=FOLDER,
)  # fmt: skip


def broker(node, release=(4, 3), host="a.example", round_trip=0.001, certificate=None):
    reached = Reached(round_trip, release, certificate)
    return BrokerFacts(node, host, 9092, ("192.0.2.1",), reached)


def cluster(alias="A", **changes):
    host = f"{alias.lower()}.example"
    facts = ClusterFacts(
        alias=alias,
        client=ClientSettings(alias, {"bootstrap.servers": f"{host}:9092"}),
        bootstrap={f"{host}:9092": ""},
        identity=Identity(f"id-{alias}", dict.fromkeys(range(3), (host, 9092)), 30),
        logins={"admin": ""},
        brokers=[broker(n, host=host) for n in range(3)],
        settings={"log.retention.hours": "168", "message.max.bytes": "1048588"},
        clock=Clock(0.01, 0.005),
    )
    return replace(facts, **changes)


def metadata(cluster_id, *names, leader=1, partitions=1):
    infos = {i: PartitionInfo(leader, 0, 3) for i in range(partitions)}
    topics = {name: TopicInfo(name, NO_ID, False, infos) for name in names}
    return Metadata(cluster_id, 1, {1: ("x", 1)}, topics)


def described(name, **values):
    entries = {
        key.replace("_", "."): ConfigEntry(key.replace("_", "."), value, ConfigSource.DEFAULT)
        for key, value in values.items()
    }
    return TopicConfigs({name: entries})


PROPERTIES = {
    "max_message_bytes": "1048588", "retention_ms": "604800000", "cleanup_policy": "delete",
    "message_timestamp_type": "CreateTime", "compression_type": "producer",
}  # fmt: skip


def topics(source=None, target=None, here=None, there=None):
    return TopicsFacts(
        Comparison(
            source or metadata("a", "orders"),
            target or metadata("b", "A.orders"),
            {"orders": "A.orders"},
        ),
        described("orders", **(PROPERTIES | (here or {}))),
        described("A.orders", **(PROPERTIES | (there or {}))),
    )


RIGHTS = RightsFacts(
    dict.fromkeys(("source_client", "source_admin", "target_client", "target_admin"), ALL),
    {
        "source_client": {"orders": ALL}, "source_admin": {"orders": ALL},
        "target_client": {"A.orders": ALL}, "target_admin": {"A.orders": ALL},
    },
)  # fmt: skip


def logs(records=1000, size=1_000_000, start=0, recent=0):
    """Of one partition; ``recent`` records of it came in the last 100 s."""
    return SourceLogs({P: start}, {P: records}, {P: recent}, 100.0, {P: size})


def flow(**changes):
    facts = FlowFacts(
        config=CONFIG,
        source=cluster("A"),
        target=cluster("B"),
        topics=topics(),
        internal=[],
        rights=RIGHTS,
        ledger=LedgerFacts(),
        mirrors=MirrorsFacts(),
        preview=TopicPreview([], {}, [], {}, {}, []),
        sample=Sample(P, 8 << 20, 0.1),
        logs=logs(),
    )
    return replace(facts, **changes)


def said(scope, facts):
    """(check, verdict): what each check says that is not content."""
    return {
        (f.check, f.said.verdict): f"{f.said.text} -> {f.said.do}"
        for f in judged(scope, "x", facts)
        if f.said.verdict is not Verdict.OK
    }


PROBLEM, WARNING = Verdict.PROBLEM, Verdict.WARNING
OLD_JAVA = Missing(
    "Java too old: /usr/bin/java is version 11. Install a JDK of version 17 or newer"
)

MACHINES: dict[str, Any] = {
    "no Java": ({"java": Missing("No Java: there is no java on PATH. Install a JDK")},
                "java", PROBLEM, "No Java.*-> Install a JDK"),
    "a Java that is too old": ({"java": OLD_JAVA}, "java", PROBLEM, "too old"),
    "a Python that is too old": ({"python": (3, 9)}, "python", PROBLEM, "3.9.*3.11 or newer"),
    "less memory than leases may take": (
        {"memory_bytes": 1 * GB, "available_bytes": 1 * GB}, "memory", PROBLEM,
        r"1\.07GB.*heliograph.buffer.max.bytes"),
    "memory that others have": (
        {"available_bytes": GB}, "memory", WARNING, r"1\.07GB are free"),
    "hardly any file descriptors": (
        {"descriptors": 128}, "descriptors", PROBLEM, "128 files.*ulimit -n"),
    "few file descriptors": ({"descriptors": 512}, "descriptors", WARNING, "512 files"),
    "a cache folder that cannot be written": (
        {"cache": replace(FOLDER, writable=False)}, "cache-folder", WARNING,
        "not writable.*HELIOGRAPH_CACHE"),
    "a cache folder that others can write": (
        {"cache": replace(FOLDER, others_write=True)}, "cache-folder", WARNING, "chmod go-w"),
    "a full disk": (
        {"cache": replace(FOLDER, free_bytes=1 << 20)}, "cache-folder", PROBLEM, "1.05MB are free"),
    "a disk that fills up": (
        {"temporary": replace(FOLDER, free_bytes=500 << 20)}, "temporary-folder", WARNING,
        "524MB are free.*TMPDIR"),
    "a temporary folder that cannot be written": (
        {"temporary": replace(FOLDER, writable=False)}, "temporary-folder", PROBLEM,
        "Spark cannot start"),
    "fewer file descriptors than connections to brokers": (
        {"descriptors": 20_000, "connections": 19_900}, "descriptors", PROBLEM,
        "20000 files and sockets, and have up to 19900 connections.*ulimit -n 524288"),
    "file descriptors that connections nearly use up": (
        {"descriptors": 20_000, "connections": 12_000}, "descriptors", WARNING, "12000"),
    "an address that is in use": (
        {"listen": ("127.0.0.1:8083", "Address already in use")}, "listen", PROBLEM,
        "8083 cannot be used: Address already in use"),
}  # fmt: skip

CLUSTERS: dict[str, Any] = {
    "a clock that is wrong": (
        {"clock": Clock(-42.0, 0.1)}, "clock", WARNING, "42.000 s behind.*NTP"),
    "a broker of another release": (
        {"brokers": [broker(1), broker(2, release=(3, 9))]}, "version", WARNING, "3.9, 4.3"),
    "a Kafka without topic ids": (
        {"brokers": [broker(1, release=(2, 3))]}, "version", WARNING, "2.3 knows no topic ids"),
    "a Kafka without record batches": (
        {"brokers": [broker(1, release=(0, 10, 2))]}, "version", PROBLEM, "0.10.2"),
    "a broker's certificate that has expired": (
        {"brokers": [broker(1, certificate=Certificate("CN=b1", -2 * DAY))]}, "certificates",
        PROBLEM, r"broker 1 \(CN=b1\) expired 2.0 days ago"),
    "our certificate that expires soon": (
        {"certificate": Certificate("CN=mirror", 3 * DAY)}, "certificates", WARNING,
        r"our client \(CN=mirror\) expires in 3.0 days"),
    "our certificate that cannot be read": (
        {"certificate": Missing("Invalid password")}, "certificates", PROBLEM,
        "Invalid password.*A.ssl.keystore"),
    "brokers that forget producers": (
        {"settings": {"producer.id.expiration.ms": "1000"}}, "broker-settings", WARNING,
        "producer.id.expiration.ms=1000"),
    "unclean leader elections": (
        {"settings": {"unclean.leader.election.enable": "true"}}, "broker-settings", WARNING,
        "lacks records"),
    "too many partitions": (
        {"identity": Identity("a", {1: ("x", 1)}, 9000)}, "partitions", WARNING, "9000 replicas"),
    "a broker that advertises localhost": (
        {"brokers": [broker(1, host="localhost")]}, "advertised", PROBLEM,
        "advertises localhost:9092.*advertised.listeners"),
    "a broker that advertises every address": (
        {"brokers": [broker(1, host="0.0.0.0")]}, "advertised", PROBLEM, "0.0.0.0"),
    "a name without an address": (
        {"brokers": [replace(broker(7), addresses=Missing("unknown"))]}, "names", PROBLEM,
        "a.example, which a broker advertises, has no address here"),
}  # fmt: skip

STRANGER = Claim("1", Process("elsewhere", 7, "boot", "pid:[1]", 5), 1_700_000_000_000, 30.0)
FLOWS: dict[str, Any] = {
    "clocks so far apart that records are refused": (
        {"source": cluster("A", clock=Clock(4000.0, 0.1))}, "clocks", PROBLEM,
        "too new for the target"),
    "a long way to the source": (
        {"source": cluster("A", brokers=[broker(1, round_trip=0.4)])}, "link", WARNING,
        "400 ms to the source.*heliograph.fetch.max.bytes = "),
    "a long way to the target": (
        {"target": cluster("B", brokers=[broker(1, round_trip=0.4)])}, "link", WARNING,
        "400 ms to the target.*near the target"),
    "a narrow link": (
        {"sample": Sample(P, 1 << 20, 4.0)}, "bandwidth", WARNING, "262kB a second"),
    "a link that is slower than producers are": (
        # 40 MB/s are written, and the three brokers give 10 MB/s each.
        {"sample": Sample(P, 10_000_000, 1.0),
             "logs": logs(4_000_000, 4_000_000_000, recent=4_000_000)},
        "bandwidth", WARNING, "10MB a second, on one connection; 40MB a second are written"),
    "a lag that retention.bytes will reach": (
        {"topics": topics(here={"retention_bytes": "1000000"}),
             "ledger": LedgerFacts(behind={P: Behind(950, 60.0)})}, "lag", PROBLEM,
        r"orders-0 \(950kB of 1MB\).*retention.bytes"),
    "a lag that nears retention.bytes": (
        {"topics": topics(here={"retention_bytes": "1000000"}),
             "ledger": LedgerFacts(behind={P: Behind(600, 60.0)})}, "lag", WARNING, "600kB of 1M"),
    "a partition that was never begun and is about to be deleted": (
        {"ledger": LedgerFacts(unbegun={P: Behind(10, 6.9 * DAY)})}, "first-copy", WARNING,
        r"orders-0 \(166 h of 168 h\): not begun.*start the mirror before"),
    "one that is not begun beside others that are": (
        {"ledger": LedgerFacts(begun=frozenset({TopicPartition("orders", 1)}),
                               unbegun={P: Behind(10, 6.9 * DAY)}),
             "logs": logs(start=500)}, "first-copy", WARNING, "orders-0"),
    "a first copy that takes longer than records are kept": (
        {"topics": topics(here={"retention_ms": "60000"}),
             "ledger": LedgerFacts(unbegun={P: Behind(1000, 30.0)}),
             "logs": logs(1000, 100_000_000_000)}, "first-copy", WARNING,
        "orders: the source deletes records during the first copy: 100GB of 1 partition take"),
    "a first copy that takes longer than bytes are kept": (
        {"topics": topics(here={"retention_bytes": "100000000000"}),
             "ledger": LedgerFacts(unbegun={P: Behind(1_000_000, 30.0)}),
             "logs": logs(1_000_000, 100_000_000_000, recent=200_000)}, "first-copy", WARNING,
        "orders: the source deletes records during the first copy"),
    "more replicas than the target's brokers should have": (
        {"preview": TopicPreview([NewTopic("A.orders", 5000, 3, {})], {}, [], {}, {}, [])},
        "planned-partitions", WARNING, "15,000 replicas to create, beside 30 .* 3 brokers"),
    "a name in topics that is nowhere": (
        {"topics": replace(topics(), absent=frozenset({"ordres"}))}, "topics", WARNING,
        "ordres named in topics: not on A -> correct the name"),
    "a lag that retention will reach": (
        {"ledger": LedgerFacts(behind={P: Behind(10, 6.5 * DAY)})}, "lag", PROBLEM,
        "orders-0.*raise retention.ms"),
    "a lag that nears the retention": (
        {"ledger": LedgerFacts(behind={P: Behind(10, 4 * DAY)})}, "lag", WARNING, "orders-0"),
    "zstd for a target that does not know it": (
        {"topics": topics(here={"compression_type": "zstd"}),
             "target": cluster("B", brokers=[broker(1, release=(2, 0))])},
        "compression", PROBLEM, "orders: zstd"),
    "a source partition without a leader": (
        {"topics": topics(source=metadata("a", "orders", leader=-1))}, "leaders", PROBLEM,
        "orders-0 on A: no leader"),
    "a mirror on another machine": (
        {"ledger": LedgerFacts(claims=[(STRANGER, False)])}, "owner", WARNING,
        "process 7 on elsewhere"),
    "rights to groups that are missing": (
        {"config": replace(CONFIG, texts={**CONFIG.texts, "sync.group.offsets.enabled": "true"}),
             "rights": replace(RIGHTS, groups={"app": ALL - {3}})},
        "rights-groups", PROBLEM, "kafka-acls.sh .*--operation Read --group app"),
    "an MM2 that may run unseen": (
        {"mirrors": MirrorsFacts(mm2_hidden=True)}, "mm2", WARNING, "Describe --group"),
    "new topics whose brokers want more replicas in sync": (
        {"target": cluster("B", settings={"min.insync.replicas": "3"})}, "min-insync", PROBLEM,
        "replication.factor to at least 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_of_this_machine_doctor_finds(name):
    changes, check, verdict, text = MACHINES[name]
    found = said(Scope.MACHINE, replace(MACHINE, **changes))
    assert set(found) == {(check, verdict)}
    assert re.search(text, found[check, verdict])


@pytest.mark.parametrize("name", CLUSTERS)
def test_of_a_cluster_doctor_finds(name):
    changes, check, verdict, text = CLUSTERS[name]
    found = said(Scope.CLUSTER, cluster(**changes))
    assert set(found) == {(check, verdict)}
    assert re.search(text, found[check, verdict])


@pytest.mark.parametrize("name", FLOWS)
def test_of_a_flow_doctor_finds(name):
    changes, check, verdict, text = FLOWS[name]
    found = said(Scope.FLOW, flow(**changes))
    assert set(found) == {(check, verdict)}
    assert re.search(text, found[check, verdict])


def test_nothing_is_said_of_what_is_healthy():
    assert said(Scope.MACHINE, MACHINE) == {}
    assert said(Scope.CLUSTER, cluster()) == {}
    assert said(Scope.FLOW, flow()) == {}


#: What looks odd and is as it should be.
HEALTHY: dict[str, Any] = {
    "an old log, whose first records the source deletes before a mirror is ever started": {
        "ledger": LedgerFacts(unbegun={P: Behind(10, 6.9 * DAY)}), "logs": logs(start=500)},
    "a log that brokers do not tell the size of": {
        "topics": topics(here={"retention_bytes": "1000"}),
        "ledger": LedgerFacts(behind={P: Behind(10, 1.0)}),
        "logs": replace(logs(), sizes={})},
    "a compacted topic with a small retention": {
        "topics": topics(here={"cleanup_policy": "compact", "retention_bytes": "1000",
                               "retention_ms": "1000"}),
        "ledger": LedgerFacts(behind={P: Behind(10, DAY)}, unbegun={P: Behind(10, DAY)})},
    "topics that the flow in the opposite direction will make": {
        "topics": replace(topics(), absent=frozenset({"new"}), coming=frozenset({"new"}))},
    "a way back that stands by, and has nothing to bring back": {
        "config": replace(CONFIG, texts={**CONFIG.texts, "heliograph.standby": "true"}),
        "topics": TopicsFacts(
            Comparison(metadata("a"), metadata("b"), {}), TopicConfigs({}), TopicConfigs({}),
            absent=frozenset({"orders"}))},
    "a flow that begins at the ends": {
        "config": replace(CONFIG, auto_offset_reset="latest"),
        "ledger": LedgerFacts(unbegun={P: Behind(10, 6.9 * DAY)})},
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_of(name):
    assert said(Scope.FLOW, flow(**HEALTHY[name])) == {}


def test_connections_are_counted_for_every_flow_and_broker():
    pair = MirrorMakerConfig.from_mapping(
        {
            "clusters": "A, B",
            "A.bootstrap.servers": "a.example:9092",
            "B.bootstrap.servers": "b.example:9092",
            "A->B.enabled": "true",
            "B->A.enabled": "true",
        }
    )
    clusters = {"A": cluster("A"), "B": cluster("B", brokers=[broker(1)])}
    assert connections_of(pair, clusters) == 2 * connections_of(
        replace(pair, flows=pair.flows[:1]), clusters
    )
    assert connections_of(replace(pair, flows=()), clusters) == 0


def test_what_is_there_is_told_too():
    told = {f.check: f.said for f in judged(Scope.FLOW, "A->B", flow())}
    assert told["rights-topics"].text == "our clients have all that they need"
    inner, outer = "INNER://a.example:19092", "OUTER://198.51.100.1:9093"
    first = replace(broker(0), others={inner: "", outer: "timed out"})
    featured = replace(first, reached=replace(first.reached, features={"metadata.version": 30}))
    facts = cluster(brokers=[featured, broker(1)])
    told = {f.check: f.said for f in judged(Scope.CLUSTER, "A", facts)}
    assert told["version"].text == "Kafka 4.3 or newer: metadata.version 30"
    assert told["advertised"].text == (
        f"all can be used from here; 2 more for other clients, not reached from here: {outer}"
    )


ACLS = "kafka-acls.sh --bootstrap-server {0}.example:9092 --add --allow-principal User:ANONYMOUS"


def test_all_rights_that_are_needed_are_told_with_the_commands_that_grant_them():
    new = topics(target=metadata("b"))
    ledger = InternalTopic("B", "mm2-ledger.A.internal", "x", 1, {})
    config = replace(CONFIG, texts={**CONFIG.texts, "sync.group.offsets.enabled": "true"})
    facts = flow(
        config=config, topics=new, internal=[ledger],
        rights=replace(RIGHTS, selected_groups=("app", "it's")),
    )  # fmt: skip
    [found] = [f.said for f in judged(Scope.FLOW, "x", facts) if f.check == "rights"]
    assert found.text == (
        "User:ANONYMOUS on B: AlterConfigs, Create, DescribeConfigs, Read and Write of 1 topic,"
        " Create, Read and Write of 1 topic, Read of 2 groups, Describe of the cluster;"
        " User:ANONYMOUS on A: DescribeConfigs and Read of 1 topic, Describe of 2 groups, Describe"
        " of the cluster"
    )
    here, there = ACLS.format("a"), ACLS.format("b")
    assert found.commands == (
        f"{there} --operation AlterConfigs --operation Create --operation DescribeConfigs"
        " --operation Read --operation Write --topic A.orders",
        f"{there} --operation Create --operation Read --operation Write"
        " --topic mm2-ledger.A.internal",
        f"{there} --operation Read --group app --group 'it'\"'\"'s'",
        f"{there} --operation Describe --cluster",
        f"{here} --operation DescribeConfigs --operation Read --topic orders",
        f"{here} --operation Describe --group app --group 'it'\"'\"'s'",
        f"{here} --operation Describe --cluster",
    )


def test_a_right_to_many_topics_is_granted_by_few_commands():
    names = [f"t{n:03}" for n in range(120)]
    found = TopicsFacts(
        Comparison(metadata("a", *names), metadata("b"), {n: f"A.{n}" for n in names}),
        TopicConfigs({}), TopicConfigs({}),
    )  # fmt: skip
    poor = {**RIGHTS.topics, "source_client": dict.fromkeys(names, ALL - {3})}
    facts = flow(topics=found, rights=replace(RIGHTS, topics=poor))
    [said] = [f.said for f in judged(Scope.FLOW, "x", facts) if f.check == "rights-topics"]
    assert said.verdict is PROBLEM and list(said.names) == names
    assert "t001, t002, t003, t004 and 115 more topics" in said.text
    assert said.do == f"grant it with: {said.commands[0]}; 2 more commands: -o json"
    granted = [name for c in said.commands for name in re.findall(r"--topic (\S+)", c)]
    assert granted == names


def test_every_check_says_something_and_what_is_not_known_is_not_checked():
    why = Missing("cluster A cannot be asked")
    nothing = FlowFacts(CONFIG, cluster(), cluster("B"), *[why] * 8)
    for scope, facts in ((Scope.FLOW, nothing), (Scope.FLOW, flow()), (Scope.CLUSTER, cluster())):
        names = {f.check for f in judged(scope, "x", facts)}
        assert names == {c.name for c in CHECKS.values() if c.scope is scope}
    assert {v for _, v in said(Scope.FLOW, nothing)} == {Verdict.NOT_CHECKED}


def offsets(**changes):
    return [
        (f.said.text, f.said.verdict) for f in judged(Scope.FLOW, "x", flow(**changes))
        if f.check == "offsets"
    ]  # fmt: skip


def with_offsets(value):
    return replace(CONFIG, texts={**CONFIG.texts, "heliograph.offsets": value})


def test_offsets_of_each_topic_and_why():
    poor = replace(RIGHTS, clusters={**RIGHTS.clusters, "target_admin": ALL - {7, 9}})
    undeletable = {**RIGHTS.topics, "target_admin": {"A.orders": ALL - {6}}}
    compacted = topics(there={"cleanup_policy": "compact"})
    assert offsets() == [("orders: identical", Verdict.OK)]
    [(text, verdict)] = offsets(topics=compacted)
    assert text.startswith("orders: dense") and "compacted" in text and verdict is Verdict.OK
    assert offsets(topics=compacted, config=with_offsets("identical"))[0][0] == "orders: identical"
    [(text, _)] = offsets(config=with_offsets("dense"))
    assert text == "dense, because of heliograph.offsets=dense"
    [(text, verdict)] = offsets(rights=poor)
    assert "may not Alter" in text and verdict is Verdict.OK
    [(text, verdict)] = offsets(rights=poor, config=with_offsets("identical"))
    assert verdict is Verdict.PROBLEM
    [(text, _)] = offsets(rights=replace(RIGHTS, topics=undeletable))
    assert "if its log begins at 0" in text


def test_a_question_that_hangs_does_not_hold_the_others_up():
    forever = threading.Event()

    def fail():
        raise ConnectionFailed("no broker")

    told = ask_all(
        {"hangs": forever.wait, "fails": fail, "answers": lambda: 5}, 0.5, lambda *_: None
    )
    assert told == {
        "hangs": Missing("there was no answer within 0 s"),
        "fails": Missing("no broker"),
        "answers": 5,
    }
    forever.set()


def test_this_machine_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setenv("HELIOGRAPH_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        facts = look_at_machine(None, f"127.0.0.1:{taken.getsockname()[1]}")
    found = said(Scope.MACHINE, facts)
    assert "JAVA_HOME" in found["java", PROBLEM]
    assert "already in use" in found["listen", PROBLEM]
    assert facts.cache.path == str(tmp_path / "not" / "yet") and facts.cache.writable
    assert not (tmp_path / "not").exists()
    assert look_at_machine(None, "127.0.0.1:0").listen == ("127.0.0.1:0", "")
    assert "no address" in look_at_machine(None, "nonsense").listen[1]


def test_the_page_lists_every_check_in_its_own_words():
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    assert listed == [(c.name, str(c.scope), c.what) for c in CHECKS.values()]
