"""Every codec through every lane, read back by a real consumer."""

from __future__ import annotations

import pytest
from consumers import same
from sources import numbered, transactions

from heliograph.copy.counts import Counts

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: Where the lane matters more than the codec; `make chaos` goes through all of them.
ONE_CODEC = ["zstd", *(pytest.param(c, marks=pytest.mark.full) for c in CODECS[:-1])]


@pytest.fixture(params=["dense", "identical"])
def flow(request, mirroring):
    return mirroring.leasing(identical=request.param == "identical", paddable=True)


def tiny(flow, topic, count, codec, name="tiny"):
    """One record per batch."""
    settings = {"batch.num.messages": 1, "linger.ms": 0, "compression.type": codec}
    flow.write(topic, numbered(count, name), **settings)


@pytest.mark.parametrize("codec", CODECS)
def test_f20_large_small_and_split_batches(flow, topic_name, codec):
    flow.create(topic_name, target_configs={"max.message.bytes": "20000"})
    large = {"linger.ms": 100, "compression.type": codec}
    # 100 KB at once: passed through if it compresses, split if it does not fit.
    flow.write(topic_name, [b"x%05d" % n * 170 for n in range(100)], **large)
    tiny(flow, topic_name, 300, codec)
    flow.write(topic_name, numbered(200, "middle"), **large)
    tiny(flow, topic_name, 50, codec, "again")
    [receipt] = flow.copy(topic_name)
    assert len(same(flow, topic_name)) == receipt.records == 650
    assert receipt.batches < 100, "small ones were merged"
    counts = Counts.decode(receipt.counts)
    assert counts.passed + counts.merged + counts.rewritten == receipt.batches
    assert counts.merged, "and told so"
    assert counts.age.seen >= counts.latency.seen == receipt.batches, "some were read twice"
    assert 0 <= counts.age.least <= counts.latency.greatest


@pytest.mark.parametrize("codec", ONE_CODEC)
def test_f21_append_time_becomes_create_time(flow, topic_name, codec):
    flow.create(
        topic_name,
        configs={"message.timestamp.type": "LogAppendTime"},
        target_configs={"message.timestamp.type": "CreateTime"},
    )
    flow.write(topic_name, numbered(50), **{"linger.ms": 50, "compression.type": codec})
    tiny(flow, topic_name, 20, codec)
    flow.copy(topic_name)
    there = flow.seen(topic_name)
    here = [(r.value, r.timestamp) for r in flow.source_records(topic_name)]
    assert [(r.value, r.timestamp) for r in there] == here
    assert min(r.timestamp for r in there) > 1_750_000_000_000, "not the producer's of 2023"


@pytest.mark.parametrize("codec", ONE_CODEC)
def test_f18_f20_transactions_of_small_batches(flow, topic_name, codec):
    flow.create(topic_name)
    plan = [(numbered(1 + n % 3, f"t{n}"), n % 3 != 0) for n in range(40)]
    committed = transactions(flow, topic_name, plan, **{"compression.type": codec})
    flow.copy(topic_name)
    assert flow.values(topic_name) == committed
    if flow.options["identical"]:
        same(flow, topic_name)


def test_f20_all_codecs_in_turn(flow, topic_name):
    flow.create(topic_name)
    for n in range(3):
        for codec in CODECS:
            tiny(flow, topic_name, 7, codec, f"{n}{codec}")
            flow.write(topic_name, [b"y" * 20_000] * 2, **{"compression.type": codec})
    flow.copy(topic_name)
    assert len(same(flow, topic_name)) == 3 * 5 * 9


def test_a_configured_codec_is_for_what_is_built_anew(mirroring, topic_name):
    flow = mirroring.but(codec=4)
    flow.create(topic_name)
    tiny(flow, topic_name, 500, "none", "the same again and again")
    [receipt] = flow.copy(topic_name)
    assert receipt.bytes < 500 * 20
    same(flow, topic_name)
