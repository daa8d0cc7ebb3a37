"""An executor that is stopped and goes on after its lease must not write any more."""

import multiprocessing
import os
import signal
import time

import pytest
from consumers import same
from copying import endless
from mirroring import wait_for
from proxy import WRITE_MARKERS, Faults
from sources import numbered, transactions

from heliograph.copy.loop import CopyLoop
from heliograph.model import TopicPartition
from heliograph.wire import admin, connection

LEASE_SECONDS = 20
GAP = 2500


def hold(lease, unsent):
    """In a process of its own, which says how many bytes did not leave it."""
    loop = CopyLoop(lease)
    pump = loop._target.pump

    def note():
        pump()
        unsent.value = sum(link.connection._unsent for link in loop._target.links.values())

    loop._target.pump = note
    loop.run()


@pytest.mark.full
def test_f05_an_executor_stopped_within_a_request_does_not_finish_it_later(
    flow, net, topic_name, monkeypatch
):
    """What is left of its markers is in its memory, and another lease has written them since."""
    flow = flow.leasing(identical=True, paddable=True)
    topics = [f"{topic_name}-{n}" for n in range(2)]
    for topic in topics:
        flow.create(topic)
        transactions(flow, topic, [(numbered(3, "a"), True)])
    flow.copy(*topics)
    for topic in topics:
        transactions(flow, topic, [(numbered(GAP, "x"), False), (numbered(3, "b"), True)])
    wanted = {topic: flow.ends(topic)[TopicPartition(topic, 0)] for topic in topics}

    def ends():
        found = {t: flow.offsets(flow.target, f"A.{t}", admin.LATEST) for t in topics}
        return {t: offset for t, offsets in found.items() for offset in offsets.values()}

    monkeypatch.setattr(connection, "_SOCKET_BUFFER_BYTES", 4096)
    # The broker gets the first request for markers, and nothing of those behind it.
    net.proxies.set(net.b, Faults(stall=True, api=WRITE_MARKERS))
    lease = endless(flow.lease(topics, LEASE_SECONDS))
    context = multiprocessing.get_context("fork")
    unsent = context.Value("q", 0)
    first = context.Process(target=hold, args=(lease, unsent))
    first.start()
    try:
        wait_for(lambda: unsent.value)
        os.kill(first.pid, signal.SIGSTOP)
        # What has left it arrives.
        net.proxies.heal()
        wait_for(lambda: time.time() > lease.deadline)
        assert all(ends()[topic] < wanted[topic] for topic in topics)
        flow.copy(*topics)
        assert ends() == wanted
        os.kill(first.pid, signal.SIGCONT)
        first.join(60)
        assert first.exitcode == 0
    finally:
        first.kill()
        first.join()
    for topic in topics:
        transactions(flow, topic, [(numbered(2, "c"), True)])
    flow.copy(*topics)
    for topic in topics:
        values = [value for _, _, value, *_ in same(flow, topic)]
        assert values == numbered(3, "a") + numbered(3, "b") + numbered(2, "c")
