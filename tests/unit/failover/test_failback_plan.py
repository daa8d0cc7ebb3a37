"""Saved plans of a failback, and what of an earlier run is still to be settled."""

import json

import pytest

from heliograph.errors import ConfigError
from heliograph.failover.failback_plan import SavedPlan
from heliograph.failover.refusals import HandoverFailed
from heliograph.failover.unmirrored import Choice, Unmirrored, merged, noted, read_noted
from heliograph.model import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PARTITION = {"partition": 0, "source_parts_at": 5, "source_end": 8, "only_source": 3}
PLAN = {
    "failover": {"id": "1"},
    "topics": [
        {"topic": "orders", "choice": "keep", "partitions": [PARTITION]},
        {"topic": "clicks", "choice": None, "partitions": [PARTITION | {"only_source": 0}]},
    ],
}


def test_what_a_saved_plan_expects(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN))
    assert SavedPlan.of(path) == SavedPlan({"orders": Choice.KEEP}, "1", {P0: (5, 8)})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("", "Expecting value"),
        (json.dumps(PLAN)[:-20], "Unterminated"),
        ("[]", "list indices"),
        ("{}", "'topics' is missing"),
        (json.dumps(PLAN | {"failover": None}), "not subscriptable"),
        (json.dumps(PLAN | {"topics": ["orders"]}), "str"),
        (json.dumps(PLAN).replace('"keep"', '"kep"'), "'kep' is not a valid Choice"),
        (json.dumps(PLAN).replace('"source_end"', '"end"'), "'source_end' is missing"),
        (json.dumps(PLAN).replace("8", '"eight"'), "eight"),
    ],
)
def test_a_plan_that_is_damaged_is_named(tmp_path, text, why):
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        SavedPlan.of(path)
    assert caught.value.code == "failback.plan"
    assert f"{path} is no plan of 'heliograph failback --save-plan': " in str(caught.value)
    assert why in str(caught.value)
    assert "keep, export or rebuild" in caught.value.hint


def test_a_plan_that_is_no_text(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="is no plan"):
        SavedPlan.of(path)


def unmirrored(p=P0, begin=5, end=8, records=3, topic_id="a", choice=Choice.EXPORT):
    return Unmirrored(p, TopicPartition("A.orders", p.partition), begin, end, records, topic_id,
                      choice)  # fmt: skip


def test_the_ledger_gives_back_what_was_noted():
    made = [unmirrored(), unmirrored(P1), unmirrored(TopicPartition("clicks", 0), topic_id="")]
    assert read_noted(json.loads(json.dumps(noted(made)))) == made


def test_ten_thousand_partitions_fit_into_a_record():
    made = [unmirrored(TopicPartition("orders", n), 10**9, 10**9 + 1000) for n in range(10_000)]
    assert len(json.dumps(noted(made))) < 500_000


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ([], [unmirrored()], [unmirrored()]),
        # It was deleted, as it was to be.
        ([unmirrored()], [], [unmirrored()]),
        ([unmirrored()], [unmirrored(end=0, records=0, topic_id="")], [unmirrored()]),
        # Somebody has written meanwhile, and retention has deleted.
        ([unmirrored()], [unmirrored(end=9, records=4)], [unmirrored(end=9, records=4)]),
        ([unmirrored()], [unmirrored(begin=7, records=1)], [unmirrored()]),
        ([unmirrored()], [unmirrored(P1)], [unmirrored(), unmirrored(P1)]),
        # It was gone from the beginning, and somebody has made it anew.
        ([unmirrored(topic_id="", records=0)], [unmirrored()], [unmirrored()]),
    ],
)
def test_what_an_earlier_run_has_to_settle_and_what_is_there_now(before, now, found):
    assert merged(before, now) == found


def test_a_topic_that_somebody_has_made_anew_meanwhile_is_named():
    with pytest.raises(HandoverFailed) as caught:
        merged([unmirrored()], [unmirrored(topic_id="b")])
    assert caught.value.code == "failback.writers"
    assert "orders was created anew on the old source" in str(caught.value)
