"""kill -9 in the middle of padding, of filling gaps and of merging: nothing is lost or doubled."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import pytest
from consumers import same
from sources import compacted_source, fill, numbered, transactions

from heliograph.copy.loop import CopyLoop
from heliograph.model import TopicPartition
from heliograph.wire import admin, markers
from heliograph.wire.produce import Producer

KILLS = 4
MANY = 30_000


def hold_again(lease):
    """As Spark's second attempt of a task."""
    return CopyLoop(lease, again=True).run()


def hold_until_killed(lease, answers, again):
    """Hold a lease; kill -9 when the target has answered so many of its writes."""
    [remote] = {p.target_topic for p in lease.partitions}

    def deadly(parse):
        def parsed(*args):
            nonlocal answers
            found = parse(*args)
            answers -= any(answer.partition.topic == remote for answer in found)
            if answers <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return parsed

    Producer.parse = deadly(Producer.parse)
    markers.parse = deadly(markers.parse)
    CopyLoop(lease, again=again).run()


def kill_and_finish(flow, topic, chance, most):
    """Processes that are killed after at most so many writes each; the last one finishes."""
    fork = multiprocessing.get_context("fork")

    def end():
        return sum(flow.offsets(flow.target, f"A.{topic}", admin.LATEST).values())

    ends = [end()]
    for number in range(KILLS):
        given = (flow.lease([topic]), chance.randint(1, most), number > 0)
        process = fork.Process(target=hold_until_killed, args=given)
        process.start()
        process.join()
        ends.append(end())
    with fork.Pool(1) as pool:
        [receipt, *_] = pool.map(hold_again, [flow.lease([topic])])[0]
    assert receipt.error == ""
    return ends


@pytest.fixture
def chance(request):
    return random.Random(request.node.name)


def test_f05_killed_while_padding(mirroring, topic_name, chance):
    flow = mirroring.leasing(identical=True, paddable=True)
    flow.create(topic_name)
    start = 10_000_000
    fill(flow, TopicPartition(topic_name, 0), start)
    flow.write(topic_name, numbered(2000))
    ends = kill_and_finish(flow, topic_name, chance, 20)
    assert any(0 < end < start for end in ends), "killed in the middle"
    assert [o for o, *_ in same(flow, topic_name)] == list(range(start, start + 2000))


@pytest.mark.full
def test_f05_killed_while_filling_gaps(mirroring, topic_name, chance):
    flow = mirroring.leasing(identical=True, paddable=True)
    flow.create(topic_name)
    plan = []
    for n in range(300):
        plan += [(numbered(chance.randint(1, 40), f"t{n}"), chance.random() > 0.4)]
    committed = transactions(flow, topic_name, plan)
    ends = kill_and_finish(flow, topic_name, chance, 30)
    whole = flow.offsets(flow.source, topic_name, admin.LATEST)[TopicPartition(topic_name, 0)]
    assert any(0 < end < whole for end in ends), "killed in the middle"
    assert [value for _, _, value, *_ in same(flow, topic_name)] == committed


@pytest.mark.full
def test_f05_f17_killed_while_filling_the_holes_of_a_compacted_topic(quick, topic_name, chance):
    """The target forgets producers at once, too: what is missing is found in its log."""
    flow = quick.leasing(identical=True, paddable=True)
    keys = range(20_000)
    compacted_source(quick, topic_name, [keys, chance.sample(keys, 10_000)])
    ends = kill_and_finish(flow, topic_name, chance, 100)
    whole = flow.offsets(flow.source, topic_name, admin.LATEST)[TopicPartition(topic_name, 0)]
    assert any(0 < end < whole for end in ends), "killed in the middle"
    assert len(same(flow, topic_name)) > len(keys)


@pytest.mark.full
@pytest.mark.parametrize("identical", [pytest.param(False, marks=pytest.mark.full), True])
def test_f05_killed_while_merging(mirroring, topic_name, chance, identical):
    # In small steps, so that there is a middle.
    flow = mirroring.but(fetch_max_bytes=128 << 10).leasing(identical=identical, paddable=True)
    flow.create(topic_name)
    flow.write(topic_name, numbered(MANY), **{"batch.num.messages": 1, "linger.ms": 0})
    ends = kill_and_finish(flow, topic_name, chance, 4)
    assert any(0 < end < MANY for end in ends), "killed in the middle"
    assert [value for _, _, value, *_ in same(flow, topic_name)] == numbered(MANY)
