"""When a source has come to rest, and who is to blame if it does not."""

from hypothesis import given
from hypothesis import strategies as st

from heliograph.failover.quiet import Ends, QuietWatch, grown
from heliograph.model import TopicPartition

P0, P1 = (TopicPartition("orders", i) for i in range(2))


def at(*ends):
    """P0 and P1 end there; a pair is (last stable offset, end)."""
    pairs = [end if isinstance(end, tuple) else (end, end) for end in ends]
    return {p: Ends(*pair) for p, pair in zip((P0, P1), pairs, strict=True)}


def test_it_is_quiet_when_nothing_has_changed_for_long_enough():
    watch = QuietWatch(2.0, 3.0)
    assert not watch.look(at(5, 7), 100.0)
    assert not watch.look(at(5, 7), 101.9)
    assert watch.look(at(5, 7), 102.0)


def test_what_was_on_its_way_begins_the_wait_anew_and_is_nobodys_fault():
    watch = QuietWatch(2.0, 3.0)
    watch.look(at(5, 7), 100.0)
    assert not watch.look(at(6, 7), 101.5)
    assert not watch.look(at(6, 7), 103.4)
    assert watch.look(at(6, 7), 103.5)
    assert not watch.writers


def test_who_writes_later_is_found_and_counted():
    watch = QuietWatch(2.0, 3.0)
    watch.look(at(5, 7), 100.0)
    assert not watch.look(at(5, 9), 103.5)
    assert not watch.look(at(5, 12), 103.7)
    assert watch.writers == {P1: 5}
    assert not watch.look(at(5, 12), 200.0)


def test_an_open_transaction_is_waited_for_and_its_marker_is_no_writer():
    watch = QuietWatch(2.0, 3.0)
    watch.look(at((4, 5), 7), 100.0)
    assert not watch.look(at((4, 5), 7), 110.0)
    assert watch.waits_for == {P0}
    assert not watch.look(at(6, 7), 111.0)
    assert not watch.writers
    assert watch.look(at(6, 7), 113.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 2.0)), min_size=1, max_size=20))
def test_it_is_never_quiet_sooner_than_after_the_last_change(steps):
    """``steps``: by how much a partition grows, and how long it is until the look after it."""
    watch, end, now, changed = QuietWatch(2.0, 1000.0), 0, 0.0, 0.0
    watch.look(at(0, 0), now)
    for growth, pause in steps:
        now += pause
        end += growth
        changed = now if growth else changed
        assert watch.look(at(end, 0), now) == (now - changed >= 2.0)
    assert not watch.writers


def test_growth_is_told_of_partitions_that_were_there_before():
    before = {P0: Ends(5, 5)}
    assert grown(before, at(8, 9)) == {P0: 3}
    assert grown(before, at(5, 9)) == {}
