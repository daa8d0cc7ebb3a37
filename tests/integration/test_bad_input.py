"""What `heliograph run` says, and exits with, when it cannot do what it was asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from mirroring import wait_for

from heliograph.lab.broker import free_ports
from heliograph.model import ClientSettings
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

SECRET = "hunter2"
#: MM2's exit codes.
BAD_ARGUMENTS, BAD_CONFIG, CANNOT_START = 255, 2, 3


@pytest.fixture
def config(lab, tmp_path):
    """Writes a configuration of the shared lab with some keys changed or removed (None)."""

    def write(**changes: str | None) -> Path:
        keys: dict[str, str | None] = {
            "clusters": "A, B",
            "A.bootstrap.servers": lab["A"].bootstrap,
            "B.bootstrap.servers": lab["B"].bootstrap,
            "A->B.enabled": "true",
            "A->B.topics": "no-such-topic",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
        }
        keys |= changes
        path = tmp_path / "mm2.properties"
        path.write_text("\n".join(f"{k} = {v}" for k, v in keys.items() if v is not None))
        return path

    return write


def run(*args, **environment):
    """Run it; returns (exit code, all that it said), and insists on an end without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "heliograph", "run", *map(str, args), "--once", "-o", "plain"],
        env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert SECRET not in said
    return done.returncode, said


def test_a_missing_file(tmp_path):
    code, said = run(tmp_path / "none.properties")
    assert code == BAD_CONFIG
    assert "none.properties" in said


def test_a_bad_option(config):
    code, said = run(config(), "--bogus")
    assert code == BAD_ARGUMENTS
    assert "--bogus" in said


def test_an_unknown_cluster_in_a_flow(config):
    code, said = run(config(**{"A->C.enabled": "true"}))
    assert code == BAD_CONFIG
    assert "A->C" in said
    assert "mm2.properties:" in said


def test_an_invalid_pattern(config):
    code, said = run(config(**{"A->B.topics": "orders[", "A->B.groups": "x"}))
    assert code == BAD_CONFIG
    assert "orders[" in said
    assert "A->B.topics" in said


def test_no_flow_at_all(config):
    code, said = run(config(**{"A->B.enabled": "false", "emit.heartbeats.enabled": "false"}))
    assert code == BAD_CONFIG
    assert "flow" in said.lower()


def test_a_secret_that_cannot_be_read(config, tmp_path):
    missing = tmp_path / "secrets.properties"
    path = config(
        **{
            "config.providers": "file",
            "config.providers.file.class":
                "org.apache.kafka.common.config.provider.FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(tmp_path),
            "B.sasl.jaas.config": f"${{file:{missing}:jaas}}",
            "B.security.protocol": "SASL_SSL",
            "B.sasl.mechanism": "PLAIN",
        }
    )  # fmt: skip
    code, said = run(path)
    assert code in {BAD_CONFIG, CANNOT_START}
    assert str(missing) in said


def test_a_cluster_that_is_not_there(config):
    [port] = free_ports(1)
    code, said = run(config(**{"B.bootstrap.servers": f"127.0.0.1:{port}"}))
    assert code == CANNOT_START
    assert "[cluster.unreachable]" in said
    assert f"127.0.0.1:{port}" in said
    assert "B.bootstrap.servers" in said
    assert "mm2.properties:" in said


def test_a_port_that_is_not_kafka(config):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                # The command may have given up meanwhile.
                with link, suppress(OSError):
                    link.recv(4096)
                    link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = listener.getsockname()[1]
        code, said = run(config(**{"A.bootstrap.servers": f"127.0.0.1:{port}"}))
        listener.shutdown(socket.SHUT_RDWR)
    assert code == CANNOT_START
    assert "[cluster.not-kafka]" in said
    assert "HTTP" in said


def test_the_same_cluster_on_both_sides(config, lab):
    code, said = run(config(**{"B.bootstrap.servers": lab["A"].bootstrap}))
    assert code == CANNOT_START
    assert "[flow.same-cluster]" in said


def test_wrong_credentials(config, lab):
    path = config(
        **{
            "B.security.protocol": "SASL_PLAINTEXT",
            "B.sasl.mechanism": "PLAIN",
            "B.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
            f' required username="alice" password="{SECRET}";',
        }
    )
    code, said = run(path)
    assert code == CANNOT_START
    assert "[cluster.authentication]" in said
    assert "B.sasl.*" in said


def test_a_replication_factor_larger_than_the_cluster(config, lab, topic_name):
    with ClusterClient(ClientSettings("A", lab["A"].client_properties()), "test") as client:
        assert not admin.create_topics(client, [admin.NewTopic(topic_name, 1, 1, {})], 30_000)
        wait_for(lambda: client.metadata([topic_name]).leader(topic_name, 0) >= 0)
    code, said = run(
        config(**{"A->B.topics": topic_name, "A->B.replication.factor": "3",
                  "A->B.heartbeats.replication.enabled": "false"})
    )  # fmt: skip
    assert code == CANNOT_START
    assert "replication.factor=3" in said
    assert "1 broker(s)" in said


def test_no_java(config, tmp_path):
    code, said = run(config(), PATH=str(tmp_path), JAVA_HOME="")
    assert code == CANNOT_START
    assert "[java.missing]" in said
    assert "JAVA_HOME" in said


def test_java_too_old(config, tmp_path):
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    fake.chmod(0o755)
    code, said = run(config(), JAVA_HOME=str(tmp_path))
    assert code == CANNOT_START
    assert "[java.too-old]" in said
    assert "11.0.2" in said
    assert "17" in said
