"""`heliograph verify`, as its users run it: one wrong record of each kind among ten million."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid

import pytest
from faulty_mirror import FaultyMirror, numbered

from heliograph.ledger.codec import Signature
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClientSettings, TopicPartition
from heliograph.policy import ledger_topic
from heliograph.wire import admin
from heliograph.wire.cluster import ClusterClient

BATCH = 5000
FAULTS = ("flipped", "missing", "doubled", "swapped")


def clients(lab):
    return [
        ClusterClient(ClientSettings(alias, lab[alias].client_properties()), "test")
        for alias in ("A", "B")
    ]


def prepare(lab, folder, topic, batches):
    """A topic of four partitions, with a fault in the middle of each; returns file and offset.

    A has an alias of its own, and so a ledger.
    """
    source, target = clients(lab)
    alias = f"A-{uuid.uuid4().hex[:8]}"
    ledger = ledger_topic(alias)
    unlimited = {"retention.ms": "-1"}
    for client, name, count, configs in (
        (source, topic, 4, unlimited),
        (target, f"{alias}.{topic}", 4, unlimited),
        (target, ledger, 1, {"cleanup.policy": "compact"}),
    ):
        assert not admin.create_topics(client, [admin.NewTopic(name, count, 1, configs)], 30_000)
        deadline = time.monotonic() + 60
        while any(client.metadata([name]).leader(name, i) < 0 for i in range(count)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    signature = admin.allocate_producer_id(target)
    ids = source.cluster_id(), target.cluster_id()
    LedgerStore(target, ledger).sign(Signature(signature, *ids))
    at = batches // 2
    for index, fault in enumerate(FAULTS):
        faulty = FaultyMirror(
            source, target, signature, ledger, TopicPartition(topic, index), alias
        )
        for n in range(batches):
            faulty.write(numbered(n * BATCH, BATCH), fault if n == at else "", 1234)
        faulty.finish()
    source.close()
    target.close()
    path = folder / "mm2.properties"
    path.write_text(f"""
        clusters = {alias}, B
        {alias}.bootstrap.servers = {lab["A"].bootstrap}
        B.bootstrap.servers = {lab["B"].bootstrap}
        {alias}->B.enabled = true
        {alias}->B.topics = {topic}
        heartbeats.replication.enabled = false
    """)
    return path, at * BATCH + 1234


def heliograph(*args):
    command = [sys.executable, "-m", "heliograph", "verify", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def facts(answer):
    return [
        (d["kind"], d["partition"], d["source_offset"], d["target_offset"])
        for d in answer["differences"]
    ]


def assert_found(answer, at, records):
    assert answer["exit_code"] == 1
    assert answer["totals"]["records"] == records
    assert facts(answer) == [
        ("changed", 0, at, at),
        ("missing", 1, at, None),
        ("extra", 2, None, at + 1),
        ("moved", 3, at, at + 1),
        ("moved", 3, at + 1, at),
    ]
    assert answer["differences"][2]["note"].startswith(f"doubled: equal to source offset {at};")
    # Where a fault is, batches do not end together; digests take over again behind it.
    assert answer["totals"]["batches_by_record"] <= 8


@pytest.mark.full
def test_f_verify_finds_one_wrong_record_of_each_kind(lab, topic_name, tmp_path):
    path, at = prepare(lab, tmp_path, topic_name, 10)
    done = heliograph(path, "-o", "json", "--complete")
    assert done.returncode == 1, done.stderr
    [flow] = json.loads(done.stdout)["flows"]
    assert_found(flow, at, 4 * 10 * BATCH)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_f_verify_finds_one_wrong_record_of_each_kind_among_ten_million(lab, topic_name, tmp_path):
    path, at = prepare(lab, tmp_path, topic_name, 500)
    done = heliograph(path, "-o", "json")
    assert done.returncode == 1, done.stderr
    [answer] = json.loads(done.stdout)["flows"]
    assert_found(answer, at, 10_000_000)
    totals = answer["totals"]
    rate = totals["bytes"] / answer["seconds"] / 1e6
    print(f"{totals['bytes'] / 1e6:.0f} MB in {answer['seconds']:.1f} s: {rate:.0f} MB/s")
    # Behind the faults all is identical; for people, on a page.
    page = tmp_path / "report.html"
    chosen = ("--topic", topic_name, "--range", f"{at + 10}:", "--sample", "50", "--seed", "7")
    done = heliograph(path, *chosen, "-o", "html", "--report", page)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "IDENTICAL" in done.stdout
    assert "50 %, seed 7" in page.read_text()
