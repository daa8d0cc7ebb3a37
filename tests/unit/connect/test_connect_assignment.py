"""Who runs what: evenly, with as few moves as possible, and the same for whoever works it out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.connect.assignment import assign

names = st.sets(st.text("abcdef", min_size=1, max_size=3), max_size=20)
owners = st.dictionaries(st.text("xyz", min_size=1, max_size=3), names, min_size=1, max_size=6)


@given(names, owners)
def test_every_connector_has_one_worker_and_no_worker_two_more_than_another(connectors, owned):
    shares = assign(connectors, owned)
    assert shares.keys() == owned.keys()
    assert sorted(c for share in shares.values() for c in share) == sorted(connectors)
    counts = [len(share) for share in shares.values()]
    assert max(counts) - min(counts) <= 1


@given(names, owners)
def test_what_was_assigned_stays_where_it_is(connectors, owned):
    shares = assign(connectors, owned)
    assert assign(connectors, shares) == shares


@given(names, owners)
def test_only_as_many_move_as_a_new_worker_needs(connectors, owned):
    shares = assign(connectors, owned)
    after = assign(connectors, {**shares, "new": ()})
    moved = sum(len(set(shares[w]) - set(after[w])) for w in shares)
    assert moved == len(after["new"])
    assert set().union(*after.values()) == connectors


@given(names, owners)
def test_a_worker_that_is_gone_disturbs_nobody_else(connectors, owned):
    shares = assign(connectors, {**owned, "gone": ()})
    after = assign(connectors, {w: share for w, share in shares.items() if w != "gone"})
    for worker, share in after.items():
        assert set(shares[worker]) <= set(share)


def test_a_worker_that_comes_back_gets_what_others_stood_in_for():
    before = {"x": ("c0", "c3", "c6", "c9"), "y": ("c1", "c4", "c7", "ca"),
              "z": ("c2", "c5", "c8", "cb")}  # fmt: skip
    connectors = {c for share in before.values() for c in share}
    alone = assign(connectors, {"x": before["x"], "y": before["y"]})
    # As workers tell it: what they have had longest first.
    told = {
        w: (*before[w], *(c for c in share if c not in before[w])) for w, share in alone.items()
    }
    after = assign(connectors, {**told, "z": ()})
    assert {w: sorted(share) for w, share in after.items()} == {
        w: sorted(share) for w, share in before.items()
    }
