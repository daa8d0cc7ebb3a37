"""Positions that an operator has decided on (Connect's PATCH and DELETE of offsets)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sources import numbered

from heliograph.copy import links
from heliograph.copy.loop import CopyLoop
from heliograph.model import Move


def _moved(mirroring, identical, source, move):
    # Another process, as after a restart.
    links.close()
    return mirroring.leasing(identical=identical, paddable=identical, move=Move(source, move))


@pytest.mark.parametrize("identical", [True, False], ids=["identical", "dense"])
def test_copying_goes_on_where_it_was_told_to_once(mirroring, topic_name, identical):
    first, more = numbered(100), [b"more %d" % n for n in range(10)]
    mirroring.create(topic_name)
    mirroring.write(topic_name, first)
    plain = mirroring.leasing(identical=identical, paddable=identical)
    plain.copy(topic_name)

    _moved(plain, identical, 40, "one").copy(topic_name)  # back
    assert mirroring.values(topic_name) == first + first[40:]
    mirroring.write(topic_name, more)
    _moved(plain, identical, 40, "one").copy(topic_name)  # it was carried out
    assert mirroring.values(topic_name) == first + first[40:] + more
    ledger = mirroring.ledger(topic_name)
    assert [ledger.to_target(n) for n in (0, 39, 40, 99, 100, 109)] == [0, 39, 100, 159, 160, 169]

    mirroring.write(topic_name, more)
    _moved(plain, identical, 115, "two").copy(topic_name)  # forward
    assert mirroring.values(topic_name)[-5:] == more[5:]
    assert len(mirroring.values(topic_name)) == 175
    ledger = mirroring.ledger(topic_name)
    assert ledger.to_target(112) == ledger.to_target(115) == 170
    assert ledger.to_source(170) == 115


def test_a_partition_that_was_never_mirrored_begins_where_it_was_told_to(mirroring, topic_name):
    values = numbered(50)
    mirroring.create(topic_name)
    mirroring.write(topic_name, values)
    _moved(mirroring, True, 30, "one").copy(topic_name)
    _moved(mirroring, True, 30, "one").copy(topic_name)
    assert mirroring.values(topic_name) == values[30:]
    assert mirroring.ledger(topic_name).to_target(30) == 0


def test_of_two_decisions_at_one_place_the_last_counts(mirroring, topic_name):
    values = numbered(50)
    mirroring.create(topic_name)
    mirroring.write(topic_name, values)
    plain = mirroring.leasing(identical=False)
    plain.copy(topic_name)
    # A lease that ends where it begins carries the decision out and copies nothing.
    for source, move in ((10, "back"), (45, "forth")):
        links.close()
        lease = plain.leasing(identical=False, move=Move(source, move)).lease([topic_name])
        [leased] = lease.partitions
        [receipt] = CopyLoop(replace(lease, partitions=(replace(leased, until=source),))).run()
        assert receipt.error == ""
    links.close()
    plain.copy(topic_name)
    assert mirroring.values(topic_name) == values + values[45:]
