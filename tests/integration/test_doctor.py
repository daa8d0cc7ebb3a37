"""``heliograph doctor`` on real brokers: one thing is wrong at a time, and it is named."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress

import pytest
import yaml
from certificates import STORE_PASSWORD, Authority
from click.testing import CliRunner
from confluent_kafka import Consumer
from doctoring import Patient
from driving import HeldHere
from mirroring import wait_for

from heliograph.claims.log import Claim, Process
from heliograph.claims.process_identity import this_process
from heliograph.claims.registry import Registry
from heliograph.cli import cli
from heliograph.config import load
from heliograph.copy import links
from heliograph.lab.broker import free_ports
from heliograph.ledger.codec import Signature
from heliograph.ledger.follower import LedgerFollower
from heliograph.ledger.store import LedgerStore
from heliograph.mm2.formats import Heartbeat
from heliograph.model import TopicPartition
from heliograph.service import mirror as service
from heliograph.wire import admin, configs
from heliograph.wire.errors import BrokerError
from heliograph.wire.groups import GroupClient


@pytest.fixture(scope="module")
def fresh(module_lab_factory):
    """Clusters that nobody has used: not even the topic for consumer groups is there."""
    return module_lab_factory()


@pytest.fixture
def patient(fresh, tmp_path):
    made = Patient(fresh, tmp_path)
    made.create(made.source, made.topic)
    yield made
    made.close()


def everything(client):
    """All that a cluster has: topics, partitions, properties, log ends, groups."""
    metadata = client.metadata()
    partitions = [TopicPartition(t, i) for t, x in metadata.topics.items() for i in x.partitions]
    return (
        metadata.topics,
        admin.list_offsets(client, metadata, partitions, admin.LATEST),
        {
            topic: {e.name: e.value for e in entries.values() if e.own}
            for topic, entries in configs.describe(client, metadata.topics).found.items()
        },
        dict(GroupClient(client).list_groups().groups),
    )


def test_a_healthy_pair_has_no_problem_and_no_warning_and_nothing_is_created(patient):
    # First in this file: later tests use groups, and with them Kafka makes a topic.
    patient.set(**{"sync.group.offsets.enabled": "true", "heliograph.on.refused": "quarantine"})
    for _ in range(3):
        patient.write(patient.source, patient.topic, *((b"%d" % n, b"v" * 1000) for n in range(99)))
    before = everything(patient.source), everything(patient.target)
    assert "__consumer_offsets" not in before[0][0] and "__consumer_offsets" not in before[1][0]
    # The way back stands by: the topic that it names is not there before a failover.
    back = f"{patient.other}->{patient.alias}"
    patient.set(**{f"{back}.enabled": "true", f"{back}.heliograph.standby": "true"})
    assert patient.examine() == {}
    assert "it stands by, and no topic of" in said(patient, "topics")[1]
    measured = said(patient, "bandwidth")[0]
    assert re.search(r"of \S+-0 in \d+ ms: too few to measure it", measured), measured
    assert re.search(r"\d+ replicas to create, beside \d+", said(patient, "planned-partitions")[0])
    assert said(patient, "first-copy")[0] == "1 partition to begin"
    for told in said(patient, "version"):
        assert re.search(r"Kafka \d\.\d or newer: .*metadata\.version \d+", told)
    for told in said(patient, "advertised"):  # the other one is the controller's
        assert told == "all can be used from here; 1 more for other clients"
    assert (everything(patient.source), everything(patient.target)) == before


def test_the_report_as_table_json_and_yaml_and_the_exit_code(patient):
    run = CliRunner().invoke
    plain = run(cli, ["doctor", str(patient.path), "--listen", "127.0.0.1:0"])
    assert plain.exit_code == 0, plain.output
    rows = [line.split("\t") for line in plain.stdout.splitlines()]
    assert {row[0] for row in rows} == {"ok"}
    assert {len(row) for row in rows} == {5}
    assert ["ok", "listen", "this machine", "127.0.0.1:0 is free", ""] in rows
    patient.set(**{"replication.factor": "3"})
    told = [run(cli, ["doctor", str(patient.path), "-o", form]) for form in ("json", "yaml")]
    assert [one.exit_code for one in told] == [1, 1]
    for document in (json.loads(told[0].stdout), yaml.safe_load(told[1].stdout)):
        assert document["healthy"] is False
        assert document["counts"]["problem"] == 1
        [bad] = [f for f in document["findings"] if f["verdict"] == "problem"]
        assert bad["check"] == "replication-factor"
        assert bad["about"] == f"{patient.alias}->{patient.other}"


# -- one thing is wrong -----------------------------------------------------------------------


def file_missing(p):
    p.path.unlink()


def misspelt_key(p):
    p.set(**{"topics.exlude": "x"})


def unknown_key(p):
    p.set(**{"frobnicate.rate": "1"})


def bad_value(p):
    p.set(**{"tasks.max": "many"})


def dead_bootstrap(p):
    p.set(**{"target.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"})


def one_dead_bootstrap(p):
    servers = f"127.0.0.1:{free_ports(1)[0]},{p.lab['B'].bootstrap}"
    p.set(**{"target.bootstrap.servers": servers})


def unknown_host(p):
    p.set(**{"source.bootstrap.servers": "no..host:9092"})


def tls_where_there_is_none(p):
    p.set(**{"source.security.protocol": "SSL"})


def one_cluster(p):
    p.set(**{"target.bootstrap.servers": p.lab["A"].bootstrap})


def large_replication_factor(p):
    p.set(**{"checkpoints.topic.replication.factor": "3"})


def min_insync(p):
    p.create(p.target, p.remote, min_insync_replicas="2")


def deleting_checkpoints(p):
    p.create(p.target, f"{p.alias}.checkpoints.internal", cleanup_policy="delete")


def ledger_of_two_partitions(p):
    p.create(p.target, p.ledger, 2, cleanup_policy="compact")


def ledger(p):
    p.create(p.target, p.ledger, cleanup_policy="compact")
    return p.ledger


def ledger_of_another_cluster(p):
    LedgerStore(p.target, ledger(p)).sign(Signature(1, "another", p.target.cluster_id()))


def another_mirror(p):
    registry = Registry(LedgerFollower(p.target, ledger(p)))
    process = Process("elsewhere", 4711, "boot", "pid:[1]", 1)
    registry.tell([Claim("one", process, int(time.time() * 1000), 30.0, established=True)])


def heartbeats_of_another(p):
    with suppress(AssertionError, BrokerError):
        p.create(p.target, "heartbeats", cleanup_policy="compact")
    beat = Heartbeat(p.alias, p.other, int(time.time() * 1000))
    p.write(p.target, "heartbeats", beat.encode())


def live_mm2(p):
    """A member of MM2's group on the target, as its workers are."""
    group = f"{p.alias}-mm2"
    consumer = Consumer({"bootstrap.servers": p.lab["B"].bootstrap, "group.id": group})
    p.create(p.target, f"other-{p.topic}")
    consumer.subscribe([f"other-{p.topic}"])

    def member():
        consumer.poll(0.1)
        return consumer.assignment()

    wait_for(member)
    return consumer


def records_of_nobody(p):
    p.create(p.target, p.remote)
    p.write(p.target, p.remote)


def small_messages(p):
    p.create(p.target, p.remote, max_message_bytes="1000")


def short_retention(p):
    p.create(p.target, p.remote, retention_ms="1000")


def time_of_copy(p):
    p.create(p.target, p.remote, message_timestamp_type="LogAppendTime")


def narrow_timestamps(p):
    p.create(p.target, p.remote, message_timestamp_before_max_ms="60000")


def more_partitions(p):
    p.create(p.target, p.remote, 3)


def absent_topic(p):
    p.set(topics=f"{p.topic}, not-there")


def nothing_selected(p):
    p.set(topics="nothing-like-this.*")


def name_that_gets_too_long(p):
    name = p.topic.ljust(248, "x")
    p.create(p.source, name)
    p.set(topics=name)


PLANTED = [
    (file_missing, "config-file", "problem", "there is no file"),
    (misspelt_key, "config-file", "problem", "topics.exlude.*topics.exclude"),
    (unknown_key, "config-file", "warning", "frobnicate.rate"),
    (bad_value, "config-file", "problem", "tasks.max: value 'many'"),
    (dead_bootstrap, "bootstrap", "problem", "Connection refused"),
    (one_dead_bootstrap, "bootstrap", "warning", "Connection refused.*take it out"),
    (unknown_host, "bootstrap", "problem", "not a host name"),
    (tls_where_there_is_none, "login", "problem", "no TLS handshake.*security.protocol"),
    (one_cluster, "same-cluster", "problem", "are the same cluster"),
    (large_replication_factor, "replication-factor", "problem",
     "checkpoints.topic.replication.factor=3.*has 1 broker -> .*at most 1"),
    (min_insync, "min-insync", "problem", "has 1 replica and min.insync.replicas=2"),
    (deleting_checkpoints, "internal-topics", "problem",
     "checkpoints.internal on .* has cleanup.policy=delete.*kafka-configs.sh"),
    (ledger_of_two_partitions, "internal-topics", "problem", "has 2 partitions"),
    (ledger_of_another_cluster, "ledger", "problem", "belongs to a mirror of cluster another"),
    (another_mirror, "owner", "warning", "process 4711 on elsewhere"),
    (heartbeats_of_another, "other-mirror", "warning", "no Heliograph has a claim"),
    (live_mm2, "mm2", "problem", "MM2 still mirrors.*stop MM2 with SIGTERM"),
    (records_of_nobody, "unknown-target", "problem", "heliograph.on.unknown.target=append"),
    (small_messages, "message-size", "warning", "larger records than 1000 bytes"),
    (short_retention, "retention", "warning", "keeps records for 1000 ms"),
    (time_of_copy, "timestamps", "warning", "the time of their copy"),
    (narrow_timestamps, "timestamps", "warning", "refuses older records"),
    (more_partitions, "more-partitions", "warning", "stay empty"),
    (absent_topic, "topics", "warning", "not-there named in topics"),
    (nothing_selected, "topics", "warning", "no topic of .* is selected"),
    (name_that_gets_too_long, "plan", "problem", "InvalidTopic|INVALID_TOPIC"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "check", "verdict", "text"), PLANTED, ids=[p[0].__name__ for p in PLANTED]
)
def test_doctor_finds(patient, plant, check, verdict, text):
    planted = plant(patient)
    found = patient.examine()
    if isinstance(planted, Consumer):
        planted.close()
    reported = {key: said for key, said in found.items() if key[1] != "not checked"}
    assert set(reported) == {(check, verdict)}
    assert re.search(text, reported[check, verdict], re.DOTALL)


def test_where_records_begin_is_not_taken_for_a_copy_of_nobodys(patient):
    """Both directions under one name: the target of the way back is where records are from."""
    there, back = f"{patient.alias}->{patient.other}", f"{patient.other}->{patient.alias}"
    patient.set(**{
        "replication.policy.class": "IdentityReplicationPolicy",
        f"{back}.enabled": "true", f"{back}.heliograph.standby": "true",
    })  # fmt: skip
    patient.set(**{f"{back}.heliograph.standby": None})
    # What it would mirror is still to be made, by the other direction.
    assert patient.examine() == {}
    patient.set(**{f"{back}.heliograph.standby": "true"})
    patient.create(patient.target, patient.topic)
    patient.write(patient.source, patient.topic)
    assert patient.examine() == {}
    patient.set(**{f"{there}.enabled": "false"})
    said = patient.examine()["unknown-target", "problem"]
    assert f"{patient.topic}-0: {patient.alias} holds records, and no mirror is known" in said


def test_doctor_finds_a_listener_that_does_not_speak_kafka(patient):
    with closing(socket.create_server(("127.0.0.1", 0))) as server, ExitStack() as stack:
        server.settimeout(60)

        def hang_up():
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown, socket.SHUT_RDWR)
        patient.set(**{"source.bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}"})
        found = patient.examine()
    assert "not a Kafka listener" in found["bootstrap", "problem"]


def test_a_cluster_that_hangs_holds_nothing_else_up(patient):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        patient.set(**{"source.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        found = patient.examine(seconds=1.5)
    assert "there was no answer within 2 s" in found["bootstrap", "problem"]
    assert {verdict for check, verdict in found if check != "bootstrap"} == {"not checked"}
    # Of the target everything was found out: what is not checked is of the source and the flow.
    assert len([f for f in patient.ok if f.about == patient.other]) == 10


@pytest.fixture
def mirrored(patient, monkeypatch):
    """All that there was is copied, by a mirror that has stopped."""
    patient.write(patient.source, patient.topic)
    monkeypatch.setattr(service, "Engine", HeldHere)
    mirror = service.Mirror(load(patient.path), once=True)
    try:
        mirror.start()
        mirror.run_once()
    finally:
        mirror.close()
        links.close()
    return patient


def said(patient, check):
    return [f.said.text for f in patient.ok if f.check == check]


def test_what_was_mirrored_is_healthy_and_doctor_finds_a_lag_that_retention_reaches(mirrored):
    found = mirrored.examine()
    found.pop(("other-mirror", "warning"), None)  # a heartbeat of that mirror, a moment ago
    assert found == {}
    assert said(mirrored, "owner") == ["nobody mirrors it now"]
    assert said(mirrored, "ledger") == [f"{mirrored.ledger}: 1 partitions were mirrored"]
    assert said(mirrored, "lag") == ["0 records of 1 partitions wait"]
    assert said(mirrored, "offsets") == [f"{mirrored.topic}: identical"]
    # The source keeps records for seven days.
    mirrored.write(mirrored.source, mirrored.topic, age_seconds=6.9 * 86_400)
    assert re.search(
        f"{mirrored.topic}-0 .166 h of 168 h.*raise retention.ms",
        mirrored.examine()["lag", "problem"],
    )
    # Nor more than so many bytes: two thirds of them wait.
    mirrored.write(mirrored.source, mirrored.topic, (b"k", b"v" * 1000))
    configs.alter(mirrored.source, {mirrored.topic: {"retention.bytes": "1200"}})
    assert "of 1200B)" in mirrored.examine()["lag", "problem"]


def test_a_mirror_of_this_machine_is_no_warning(patient):
    registry = Registry(LedgerFollower(patient.target, ledger(patient)))
    running, killed = this_process(), this_process()._replace(started=1)
    now = int(time.time() * 1000)
    registry.tell([Claim("a", running, now, 30.0), Claim("b", killed, now, 30.0)])
    assert patient.examine() == {}
    here, gone = said(patient, "owner")
    assert here.startswith(f"it is mirrored by process {running.pid} on ")
    assert gone.endswith("has ended without a word; the next start takes over")


def test_doctor_finds_a_port_that_is_taken(patient):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = patient.examine(listen=f"127.0.0.1:{taken.getsockname()[1]}")
    assert set(found) == {("listen", "problem")}


class Relay:
    """Passes bytes to a broker and back; answers come late."""

    def __init__(self, delay):
        self._delay = delay
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.to = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self.to))
                for one, other, delay in ((client, broker, 0.0), (broker, client, self._delay)):
                    args = (one, other, delay)
                    threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, one, other, delay):
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if delay:
                    threading.Event().wait(delay)
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.close()

    def close(self):
        self._server.close()


def test_doctor_finds_brokers_that_are_far_away_and_one_that_cannot_be_reached(
    patient, module_lab_factory
):
    relay, dead = Relay(0.3), free_ports(1)[0]
    lab = module_lab_factory(clusters=("A",), brokers=2, advertised={"A": [relay.port, dead]})
    relay.to = lab["A"].brokers[0].port
    with closing(relay):
        patient.set(**{"source.bootstrap.servers": f"127.0.0.1:{lab['A'].brokers[0].port}"})
        patient.set(topics="nothing.*")
        found = patient.examine()
    assert re.search(
        f"broker 2 advertises 127.0.0.1:{dead}: cannot connect.*advertised.listeners",
        found["brokers", "problem"],
    )
    assert re.search(r"3\d\d ms to the source", found["link", "warning"])
    assert "heliograph.fetch.max.bytes" in found["link", "warning"]


@pytest.fixture(scope="module")
def tls(module_lab_factory, tmp_path_factory):
    """A cluster whose certificate is for its address, and expires in five days."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("first")
    authority.broker_store(folder / "broker.p12")
    (folder / "trust.pem").write_text(authority.pem)
    (folder / "other.pem").write_text(Authority("other").pem)
    listener = "listener.name.client.ssl."
    settings = {
        f"{listener}keystore.location": str(folder / "broker.p12"),
        f"{listener}keystore.password": STORE_PASSWORD,
        f"{listener}key.password": STORE_PASSWORD,
    }
    lab = module_lab_factory(clusters=("A",), security="SSL", settings={"A": settings})
    return lab["A"].bootstrap, folder


@pytest.mark.parametrize(
    ("host", "store", "check", "verdict", "text"),
    [
        ("127.0.0.1", "trust", "certificates", "warning", "broker 1 .*expires in [45].. days"),
        ("127.0.0.1", "other", "login", "problem", "add it to the truststore"),
        ("localhost", "trust", "login", "problem", "by a name in its certificate"),
    ],
    ids=["a certificate that expires", "an unknown authority", "a certificate for another name"],
)
def test_doctor_finds_by_tls(patient, tls, host, store, check, verdict, text):
    bootstrap, folder = tls
    patient.set(**{
        "source.bootstrap.servers": bootstrap.replace("127.0.0.1", host),
        "source.security.protocol": "SSL",
        "source.ssl.truststore.type": "PEM",
        "source.ssl.truststore.location": str(folder / f"{store}.pem"),
    })  # fmt: skip
    found = {k: v for k, v in patient.examine().items() if k[1] != "not checked"}
    found.pop(("topics", "warning"), None)  # it has none of the topics
    assert set(found) == {(check, verdict)}
    assert re.search(text, found[check, verdict])
