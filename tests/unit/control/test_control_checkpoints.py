"""When a checkpoint is written, what it says, and when it is taken away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.groups.checkpoints import goes_back, next_checkpoint, perhaps_gone
from heliograph.control.groups.translated import TranslatedGroup, TranslatedOffset
from heliograph.mm2.formats import Checkpoint
from heliograph.model import TopicPartition
from heliograph.wire.groups import ListedGroup

KEY = ("g", "A.orders", 0)
numbers = st.integers(0, 1000)


def offset(upstream, downstream, *, end=1000, metadata="", replaced=False):
    return TranslatedOffset(upstream, downstream, metadata, 0, end, replaced)


def last(upstream, downstream, metadata=""):
    return Checkpoint(*KEY, upstream, downstream, metadata)


def test_s68_the_first_one_says_what_was_translated():
    assert next_checkpoint(KEY, offset(7, 5), None) == last(7, 5)


def test_nothing_new_is_the_same_checkpoint():
    assert next_checkpoint(KEY, offset(7, 5, metadata="m"), last(7, 5, "m")) == last(7, 5, "m")


def test_metadata_alone_is_news():
    assert next_checkpoint(KEY, offset(7, 5, metadata="new"), last(7, 5)) == last(7, 5, "new")


def test_s61_downstream_does_not_go_back_for_the_same_upstream():
    assert next_checkpoint(KEY, offset(7, 3), last(7, 5)) == last(7, 5)
    assert next_checkpoint(KEY, offset(8, 3), last(7, 5)) == last(8, 5)


def test_s62_it_goes_back_with_the_group():
    assert next_checkpoint(KEY, offset(6, 3), last(7, 5)) == last(6, 3)


def test_it_is_never_beyond_the_end_of_a_target_that_lost_records():
    new = next_checkpoint(KEY, offset(7, 2, end=4), last(7, 5))
    assert new == last(7, 2)
    assert goes_back(new, last(7, 5))


def test_what_was_said_of_an_earlier_target_topic_does_not_bind():
    new = next_checkpoint(KEY, offset(7, 2, replaced=True), last(7, 5))
    assert new == last(7, 2)
    assert goes_back(new, last(7, 5))


def test_a_group_that_rewinds_is_nothing_to_warn_of():
    assert not goes_back(last(6, 3), last(7, 5))
    assert not goes_back(last(7, 5), None)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_s61_s62_downstream_goes_back_only_with_upstream(cycles):
    """On a target that only grows, whatever the translation says."""
    known = None
    end = 0
    for upstream, downstream in cycles:
        end = max(end, downstream)
        new = next_checkpoint(KEY, offset(upstream, downstream, end=end), known)
        assert new.upstream == upstream
        assert new.downstream >= downstream
        if known is not None and upstream >= known.upstream:
            assert new.downstream == max(downstream, known.downstream)
        else:
            assert new.downstream == downstream
        known = new


@given(numbers, numbers, numbers, numbers, numbers)
def test_it_is_never_beyond_the_targets_end(upstream, downstream, end, last_up, last_down):
    downstream = min(downstream, end)
    new = next_checkpoint(KEY, offset(upstream, downstream, end=end), last(last_up, last_down))
    assert downstream <= new.downstream <= end


# -- checkpoints without an offset --------------------------------------------------------------


def group(*partitions, untranslated=(), error=""):
    return TranslatedGroup(
        ListedGroup("g", "classic", "consumer", "Stable"),
        {TopicPartition("A.orders", p): offset(1, 1) for p in partitions},
        {TopicPartition("orders", p): "because" for p in untranslated},
        error,
    )


def candidates(groups, known=(KEY,), accepts=lambda _: True):
    return perhaps_gone(known, groups, accepts, lambda topic: topic.removeprefix("A."))


ASK = {("g", TopicPartition("orders", 0)): KEY}


def test_a_group_that_is_not_listed_is_asked_about():
    assert candidates({}) == ASK


def test_a_partition_without_an_offset_is_asked_about():
    assert candidates({"g": group(1, 2)}) == ASK


def test_a_translated_offset_is_there():
    assert candidates({"g": group(0)}) == {}


def test_an_offset_that_cannot_be_translated_now_is_still_there():
    assert candidates({"g": group(untranslated=[0])}) == {}


def test_a_group_that_could_not_be_asked_keeps_everything():
    assert candidates({"g": group(error="its coordinator is away")}) == {}


def test_groups_that_the_filter_leaves_out_are_left_alone():
    assert candidates({}, accepts=lambda _: False) == {}


def test_a_topic_that_cannot_be_named_on_the_source_is_left_alone():
    assert perhaps_gone([KEY], {}, lambda _: True, lambda _: None) == {}
