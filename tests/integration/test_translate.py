"""``heliograph translate`` on what a flow has mirrored, source up and down."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from heliograph.cli.translate import translate_command
from heliograph.client.offsets import FlowOffsets, TranslationError
from heliograph.config import load
from heliograph.ledger.translation import Translation
from heliograph.model import TopicPartition
from heliograph.wire import admin


@pytest.fixture
def flow(mirroring, tmp_path, monkeypatch):
    """The flow's file; its ledger is the one of ``mirroring``. The source is never asked."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"""
        clusters = A, B
        A.bootstrap.servers = localhost:1
        B.bootstrap.servers = {mirroring.lab["B"].bootstrap}
        A->B.enabled = true
        """
    )
    monkeypatch.setattr(
        "heliograph.client.offsets.ledger_topic", lambda _: mirroring.context.ledger_topic
    )
    return path


def offsets_of(path) -> FlowOffsets:
    return FlowOffsets(next(f for f in load(path).flows if f.enabled))


def holes(mirroring, topic):
    """500 records, of which the first 100 were deleted: dense offsets are 100 less."""
    mirroring.create(topic)
    mirroring.write(topic, [b"v"] * 500)
    mirroring.trim(mirroring.source, TopicPartition(topic, 0), 100)
    mirroring.leasing(identical=False).copy(topic)


def test_there_and_back_while_the_source_is_away(mirroring, flow, topic_name):
    holes(mirroring, topic_name)
    with offsets_of(flow) as offsets:
        assert offsets.to_target(topic_name, 0, 495) == Translation(395, exact=True)
        assert offsets.to_source(topic_name, 0, 395) == Translation(495, exact=True)
        assert offsets.to_target(topic_name, 0, 500) == Translation(400, exact=True)
        ahead = offsets.to_target(topic_name, 0, 501)
    assert (ahead.offset, ahead.exact) == (400, False)


def test_the_command_says_it_in_a_sentence_and_in_json(mirroring, flow, topic_name):
    holes(mirroring, topic_name)
    asked = [str(flow), "--flow", "A->B", "--topic", topic_name, "--partition", "0"]
    done = CliRunner().invoke(translate_command, [*asked, "--offset", "495"])
    assert done.output == f"{topic_name}-0 on A: 495 is 395 on B, A.{topic_name}-0\n"
    done = CliRunner().invoke(
        translate_command, [*asked, "--reverse", "--offset", "395", "-o", "json"]
    )
    answer = json.loads(done.output)
    assert (answer["from"], answer["to"], answer["translated"]) == ("B", "A", 495)
    assert answer["exact"]


def test_what_cannot_be_translated_says_why(mirroring, flow, topic_name):
    mirroring.create(topic_name, 2)
    asked = [str(flow), "--topic", topic_name, "--partition", "1", "--offset", "7"]
    done = CliRunner().invoke(translate_command, asked)
    assert done.exit_code == 1
    assert "cannot be translated: nothing of it is mirrored yet" in done.output
    with offsets_of(flow) as offsets:
        with pytest.raises(TranslationError, match="has no partition 9; it has 2"):
            offsets.to_target(topic_name, 9, 0)
        with pytest.raises(TranslationError, match=r"has no topic A\.elsewhere"):
            offsets.to_target("elsewhere", 0, 0)


def test_a_flow_that_never_ran_has_no_ledger(mirroring, flow, monkeypatch, topic_name):
    mirroring.create(topic_name)
    monkeypatch.setattr("heliograph.client.offsets.ledger_topic", lambda _: "mm2-ledger.Z.internal")
    with offsets_of(flow) as offsets, pytest.raises(TranslationError, match="never mirrored"):
        offsets.to_target(topic_name, 0, 0)


def test_a_source_topic_that_was_created_again_is_told_apart(mirroring, flow, topic_name):
    mirroring = mirroring.but(on_recreation="continue")
    mirroring.create(topic_name)
    mirroring.write(topic_name, [b"old"] * 10)
    mirroring.leasing(identical=False).copy(topic_name)
    mirroring.delete(mirroring.source, topic_name)
    admin.create_topics(mirroring.source, [admin.NewTopic(topic_name, 1, 1, {})], 30_000)
    mirroring.await_topic(mirroring.source, topic_name, 1)
    mirroring.write(topic_name, [b"new"] * 5)
    mirroring.leasing(identical=False).copy(topic_name)
    with offsets_of(flow) as offsets:
        assert offsets.to_target(topic_name, 0, 2) == Translation(12, exact=True)
        assert offsets.to_source(topic_name, 0, 12) == Translation(2, exact=True)
        old = offsets.to_source(topic_name, 0, 4)
    assert (old.offset, old.exact) == (4, False)
    assert "was deleted on A since" in old.note
