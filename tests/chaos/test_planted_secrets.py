"""A secret in every key that may hold one is found nowhere outside the processes that need it."""

import os
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from mirror_process import MirrorProcess, client, configure, create_topic, ends, wait_for

from heliograph.batch.records import Record, build
from heliograph.config import KEYS
from heliograph.config.key import Scope, Type
from heliograph.model import TopicPartition
from heliograph.wire import log

#: In two parts, so that it is not found in this file.
PLANTED = "planted" + "-4711-"
SECRET_KEYS = [k.name for k in KEYS if k.scope is Scope.CLIENT and k.type is Type.PASSWORD]
ALL_PACKETS = 3


class Sniffer(threading.Thread):
    """Listens to all that is said on this machine's network; notes who says the secret."""

    def __init__(self):
        super().__init__(daemon=True)
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
                at = packet.find(PLANTED.encode())
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


@pytest.mark.skipif(os.geteuid() != 0, reason="listening to a network is root's right")
def test_a_planted_secret_is_found_nowhere(lab, topic_name, tmp_path, monkeypatch):
    temporary, events = tmp_path / "tmp", tmp_path / "events"
    for folder in (temporary, events, tmp_path / "conf", tmp_path / "own"):
        folder.mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("TMPDIR", str(temporary))
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
        assert files_with(events, "SparkListener"), "there is an event log"
        assert files_with(temporary, PLANTED) == files_with(events, PLANTED) == []
        assert PLANTED not in mirror.log_path.read_text()
        for name in ("mm2-ledger.A.internal", f"A.{topic_name}"):
            for chunk in log.read_to_end(b, TopicPartition(name, 0), 0):
                assert PLANTED.encode() not in bytes(chunk)
    finally:
        mirror.destroy()
        a.close()
        b.close()
