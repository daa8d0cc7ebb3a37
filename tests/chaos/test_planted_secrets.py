"""A secret in every key that may hold one is found nowhere outside the processes that need it."""

import json
import os
import re
import socket
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from mirror_process import MirrorProcess, client, configure, create_topic, ends, wait_for

from heliograph.batch.header import batches
from heliograph.batch.records import Record, build, decode
from heliograph.config import KEYS
from heliograph.config.key import Scope, Type
from heliograph.lab.connect_worker import ConnectWorker
from heliograph.model import TopicPartition
from heliograph.wire import log

#: In two parts, so that it is not found in this file.
PLANTED = "planted" + "-4711-"
SECRET_KEYS = [k.name for k in KEYS if k.scope is Scope.CLIENT and k.type is Type.PASSWORD]
ALL_PACKETS = 3


class Sniffer(threading.Thread):
    """Listens to all that is said on this machine's network; notes who says the secret."""

    def __init__(self, text=PLANTED):
        super().__init__(daemon=True)
        self._text = text.encode()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PACKETS))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._done = threading.Event()
        self.packets, self.found = 0, []

    def run(self):
        while not self._done.is_set():
            with suppress(TimeoutError):
                packet = self._socket.recv(1 << 17)
                self.packets += 1
                at = packet.find(self._text)
                if at >= 0:
                    self.found.append(packet[max(at - 60, 0) : at + 60])

    def stop(self):
        self._done.set()
        self.join()
        self._socket.close()


def secrets(alias, value):
    """Every secret key of a cluster."""
    lines = [f"{alias}.{key} = {value(key)}" for key in SECRET_KEYS if key != "sasl.jaas.config"]
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="u" password="{value("sasl.jaas.config")}";'
    return [*lines, f"{alias}.sasl.jaas.config = {jaas}"]


def planted(folder):
    """Keys with secrets in the file for A, by reference for B; a task is larger than 1 MiB."""
    vault = folder / "vault"
    vault.mkdir()
    (vault / "b.properties").write_text("".join(f"{k} = {PLANTED}{k}\n" for k in SECRET_KEYS))
    return [
        "config.providers = file",
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider",
        f"config.providers.file.param.allowed.paths = {vault}",
        *secrets("A", lambda key: PLANTED + key),
        *secrets("B", lambda key: f"${{file:{vault}/b.properties:{key}}}"),
        f"A.sasl.oauthbearer.token.endpoint.url = https://idp.example/t?key={PLANTED}",
        f"A.ssl.truststore.certificates = {'certificate' * 120_000}",
    ]


def process_texts(mirror):
    """What anybody sees of the processes of a mirror: command lines, environments, limits."""
    driver, _, _ = mirror.tree()
    found = {}
    for process in [driver, *driver.children(recursive=True)]:
        with suppress(psutil.Error, OSError):
            found[process.pid] = (
                " ".join(process.cmdline()),
                Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace"),
                Path(f"/proc/{process.pid}/limits").read_text(),
            )
    return found


def files_with(folder, text):
    hits = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and text.encode() in path.read_bytes():
                hits.append(path)
    return hits


def texts_in(cluster, topic):
    """Keys, values and headers of a topic's records: batches may be compressed."""
    for partition in cluster.metadata([topic]).topics[topic].partitions:
        for chunk in log.read_to_end(cluster, TopicPartition(topic, partition), 0):
            for header, batch in batches(chunk):
                if not header.control:
                    for r in decode(batch):
                        yield b"%r %r %r" % (r.key, r.value, list(r.headers))


@pytest.fixture
def left_behind(tmp_path, monkeypatch):
    """Where Spark leaves files, and its log of events: what its pages show is in there."""
    temporary, events = tmp_path / "tmp", tmp_path / "events"
    for folder in (temporary, events, tmp_path / "conf", tmp_path / "own"):
        folder.mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
        # Nothing is found in what is compressed.
        "spark.eventLog.compress false\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    return temporary, events


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="listening to a network is root's right")


@pytest.mark.full
@needs_root
def test_a_planted_secret_is_found_nowhere(lab, topic_name, tmp_path, left_behind):
    temporary, events = left_behind
    config = configure(lab, tmp_path / "own", topic_name, keys=planted(tmp_path / "own"))
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, 1)
    log.append(a, TopicPartition(topic_name, 0), build([Record(0, -1, None, b"v")]))
    sniffer = Sniffer()
    sniffer.start()
    mirror = MirrorProcess(config, tmp_path / "mirror.log", "--master", "local-cluster[1,2,1024]")
    try:
        wait_for(lambda: ends(b, f"A.{topic_name}") == {0: 1}, 240, "the record is mirrored")
        processes = process_texts(mirror)
        # Nobody gets to clean up.
        mirror.destroy()
        sniffer.stop()
        assert len(processes) >= 4
        for pid, texts in processes.items():
            assert PLANTED not in texts[0] + texts[1], pid
            assert re.search(r"Max core file size +0 +0 ", texts[2]), (pid, texts[2])
        assert sniffer.packets > 100
        assert sniffer.found == []
        assert files_with(temporary, ""), "what a killed mirror leaves"
        assert files_with(events, "SparkListenerEnvironmentUpdate"), "there is an event log"
        assert files_with(temporary, PLANTED) == files_with(events, PLANTED) == []
        assert PLANTED not in mirror.log_path.read_text()
        for name in ("mm2-ledger.A.internal", f"A.{topic_name}"):
            found = list(texts_in(b, name))
            assert found, name
            assert not any(PLANTED.encode() in text for text in found), name
    finally:
        mirror.destroy()
        a.close()
        b.close()


@needs_root
@pytest.mark.full
def test_a_secret_of_a_connector_is_found_nowhere_but_in_its_config(
    lab, topic_name, tmp_path, left_behind
):
    """As above, posted by REST: inline for the source, by reference for the target."""
    temporary, events = left_behind
    own, inline, referred = tmp_path / "own", f"{PLANTED}inline", f"{PLANTED}referred"
    vault = own / "vault.properties"
    vault.write_text("".join(f"{k} = {referred}\n" for k in SECRET_KEYS))
    provider = "config.providers.file"
    worker = ConnectWorker(lab["B"].client_properties(), own, {
        "config.providers": "file", f"{provider}.param.allowed.paths": str(own),
        f"{provider}.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    })  # fmt: skip
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    body = {
        "connector.class": "MirrorSource", "source.cluster.alias": "src",
        "target.cluster.alias": "dst", "topics": topic_name,
        "source.cluster.bootstrap.servers": lab["A"].bootstrap,
        "target.cluster.bootstrap.servers": lab["B"].bootstrap,
        "replication.factor": "1", "offset-syncs.topic.replication.factor": "1",
        "heartbeats.replication.enabled": "false",
    }  # fmt: skip
    for key in SECRET_KEYS:
        reference = f"${{file:{vault}:{key}}}"
        values = (f'{module} required username="u" password="{v}";' if "jaas" in key else v
                  for v in (inline, reference))  # fmt: skip
        body[f"source.cluster.{key}"], body[f"target.cluster.{key}"] = values
    a, b = client(lab["A"]), client(lab["B"])
    create_topic(a, topic_name, 1)
    log.append(a, TopicPartition(topic_name, 0), build([Record(0, -1, None, b"v")]))
    sniffer = Sniffer(referred)
    sniffer.start()
    mirror = MirrorProcess(worker.properties_path, tmp_path / "mirror.log",
                           "--master", "local-cluster[1,2,1024]", command="connect")  # fmt: skip
    try:
        wait_for(lambda: worker.health()[0] == 200, 400, "healthy")
        asked = urllib.request.Request(
            f"{worker.url}/connectors", json.dumps({"name": "planted", "config": body}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(asked, timeout=120) as made:
            assert made.status == 201
        wait_for(lambda: ends(b, f"src.{topic_name}") == {0: 1}, 240, "the record is mirrored")
        processes = process_texts(mirror)
        mirror.destroy()
        sniffer.stop()
        assert len(processes) >= 4
        for pid, texts in processes.items():
            assert PLANTED not in texts[0] + texts[1], pid
        assert sniffer.packets > 100 and sniffer.found == []
        assert files_with(temporary, "") and files_with(events, "SparkListenerEnvironmentUpdate")
        assert files_with(temporary, PLANTED) == files_with(events, PLANTED) == []
        assert PLANTED not in mirror.log_path.read_text()
        stored = {kind: worker.properties[f"{kind}.storage.topic"]
                  for kind in ("config", "offset", "status")}  # fmt: skip
        with_secret = set()
        for name in (*stored.values(), "mm2-ledger.src.internal", f"src.{topic_name}"):
            for text in texts_in(b, name):
                assert referred.encode() not in text, name
                if inline.encode() in text:
                    with_secret.add(name)
        assert with_secret == {stored["config"]}
    finally:
        mirror.destroy()
        a.close()
        b.close()
