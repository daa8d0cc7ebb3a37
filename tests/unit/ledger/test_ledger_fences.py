"""What a ledger knows of the fence of its cluster."""

from compacted_topic import CompactedTopic, follower_of

from heliograph.ledger.codec import decode, split
from heliograph.ledger.fences import Fences


def test_topics_are_fenced_until_they_are_cleared():
    topic = CompactedTopic()
    mine, others = Fences(follower_of(topic)), Fences(follower_of(topic), "team/a")
    mine.note(["orders", "a b/c"], "1f", "me@here")
    others.note(["clicks"], "2e", "you@there")
    assert mine.topics.keys() == {"orders", "a b/c"}
    assert mine.topics["orders"][:2] == ("1f", "me@here")
    mine.clear(["orders"])
    assert mine.topics.keys() == {"a b/c"}
    others.refresh()
    assert others.topics.keys() == {"clicks"}
    topic.compact(topic.end, tombstones=True)
    late = Fences(follower_of(topic))
    late.refresh()
    assert late.topics == mine.topics


def test_it_is_no_entry_of_a_place():
    topic = CompactedTopic()
    Fences(follower_of(topic)).note(["orders"], "1f", "me")
    [record] = topic.records
    assert split(record.key)[0] is None
    assert decode(record.key, record.value) is None
