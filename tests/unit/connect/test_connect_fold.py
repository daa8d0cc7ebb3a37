"""The rules by which Connect's workers read their storage topics."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.connect import records
from heliograph.connect.api import Initial, PartitionOffset, State
from heliograph.connect.fold import ConnectorsView, Kind, StorageFold, StoredConnector
from heliograph.connect.records import (
    LoggerLevel,
    RestartRequest,
    StoredStatus,
    TopicUse,
    encode_key,
    offset_key,
)
from heliograph.mm2.connect_json import encode_json

CONFIG = {"name": "C", "connector.class": "MirrorSourceConnector"}


class Log:
    """A fold and the offset of the next record."""

    def __init__(self, *entries):
        self.fold = StorageFold()
        self.offset = 0
        self.write(*entries)

    def write(self, *entries, kind=Kind.CONFIGS, at=0):
        for key, value in entries:
            data = None if value is None else encode_json(value)
            self.raw(encode_key(key) if isinstance(key, str) else key, data, kind, at)
        self.fold.publish(kind)
        return self

    def raw(self, key, value, kind=Kind.CONFIGS, at=0):
        self.fold.take(kind, self.offset, key, value, at)
        self.offset += 1

    @property
    def view(self):
        return self.fold.view

    @property
    def connector(self):
        return self.view.connectors.get("C")


def connector(config=None):
    return records.connector_entry("C", CONFIG if config is None else config)


def tasks(*configs):
    return records.task_entries("C", [{"task": config} for config in configs])


GONE = [records.connector_entry("C", None), records.target_entry("C", None)]


# -- configs ----------------------------------------------------------------------------------


def test_a_new_connector_runs_and_has_no_tasks():
    assert Log(connector()).connector == StoredConnector("C", CONFIG)


def test_an_initial_state_comes_before_its_connector():
    log = Log(records.target_entry("C", Initial.STOPPED))
    assert log.view.connectors == {}
    assert log.write(connector()).connector.target is Initial.STOPPED
    assert log.write(records.target_entry("C", None)).connector.target is Initial.RUNNING


def test_tasks_count_when_they_are_committed():
    log = Log(connector(), *tasks("a", "b")[:-1])
    assert log.connector.tasks == ()
    log.write(tasks("a", "b")[-1])
    assert log.connector.tasks == ({"task": "a"}, {"task": "b"})
    log.write(*tasks("c"))
    assert log.connector.tasks == ({"task": "c"},)
    assert log.write(*tasks()).connector.tasks == ()
    assert log.connector.consistent


def test_a_config_that_has_changed_since_its_tasks_were_made():
    log = Log(connector(), *tasks("a"), connector({"x": "y"}))
    assert log.connector.config == {"x": "y"}
    assert log.connector.tasks == ({"task": "a"},)


def test_an_incomplete_set_of_tasks_is_not_applied():
    log = Log(connector(), *tasks("a"))
    # Task 0 was compacted away.
    log.write(*tasks("b", "c")[1:])
    assert (log.connector.tasks, log.connector.consistent) == ((), False)
    # What was waiting does not wait for the next commit.
    log.write(tasks("b", "c")[0], tasks("b", "c")[2])
    assert not log.connector.consistent
    log.write(*tasks("b", "c"))
    assert log.connector.consistent
    assert log.connector.tasks == ({"task": "b"}, {"task": "c"})


def test_more_task_configs_than_tasks():
    log = Log(connector(), tasks("old", "old")[1], *tasks("new"))
    assert log.connector.tasks == ({"task": "new"},)


def test_a_commit_that_counts_more_tasks_than_anybody_has():
    log = Log(connector(), *tasks("a")[:1], ("commit-C", {"tasks": 2**31 - 1}))
    assert (log.connector.tasks, log.connector.consistent) == ((), False)


def test_tasks_of_a_connector_that_was_deleted_are_forgotten():
    log = Log(*tasks("old"), connector())
    assert log.connector == StoredConnector("C", CONFIG)
    log.write(*tasks("a"), *GONE)
    assert log.view.connectors == {}
    assert log.write(connector()).connector == StoredConnector("C", CONFIG)


def test_task_configs_do_not_wait_for_a_connector_of_the_same_name():
    log = Log(connector(), tasks("old")[0], *GONE, connector(), tasks("new")[1])
    assert (log.connector.tasks, log.connector.consistent) == ((), False)


def test_a_connector_that_is_deleted_keeps_its_state_until_that_is_deleted():
    log = Log(records.target_entry("C", Initial.PAUSED), connector(), GONE[0])
    assert log.view.connectors == {}
    assert log.write(connector()).connector.target is Initial.PAUSED


def test_names_with_dashes_are_told_from_numbers_of_tasks():
    name = "task-connector-7-"
    log = Log(
        records.connector_entry(name, CONFIG),
        *records.task_entries(name, [{"task": "a"}]),
    )
    assert log.view.connectors[name].tasks == ({"task": "a"},)


def test_requests_count_only_from_those_who_follow():
    restart = records.restart_entry("C", include_tasks=True, only_failed=False)
    level = records.logger_entry("root", "DEBUG")
    log = Log(restart, level)
    assert log.fold.requests.take() == []
    log.fold.set_live()
    log.write(restart, level)
    assert log.fold.requests.total == 2
    assert log.fold.requests.take() == [
        RestartRequest("C", True, False),
        LoggerLevel("root", "DEBUG"),
    ]
    assert log.fold.requests.take() == []
    log.fold.forget(Kind.CONFIGS)
    log.write(restart)
    assert log.fold.requests.take() == [], "what is read again was answered once"


def test_a_flood_of_requests_is_bounded():
    log = Log()
    log.fold.set_live()
    log.write(*[records.logger_entry(f"l{n}", "INFO") for n in range(3000)])
    expected = [LoggerLevel(f"l{n}", "INFO") for n in range(2000, 3000)]
    assert log.fold.requests.take() == expected


names = st.sampled_from(["C", "D"])
targets = st.sampled_from(Initial)
operations = st.one_of(
    st.tuples(st.just("put"), names, st.integers(0, 3)),
    st.tuples(st.just("tasks"), names, st.integers(0, 3)),
    st.tuples(st.just("target"), names, targets),
    st.tuples(st.just("delete"), names, st.none()),
)


def entries(operation, number):
    what, name, value = operation
    if what == "put":
        return [records.connector_entry(name, {"v": f"{number}"})]
    if what == "tasks":
        return records.task_entries(name, [{"v": f"{number}"}] * value)
    if what == "target":
        return [records.target_entry(name, value)]
    return [records.connector_entry(name, None), records.target_entry(name, None)]


@given(st.lists(operations, max_size=12), st.integers(0, 40), st.booleans())
def test_a_compacted_topic_says_the_same(operations, cut, without_tombstones):
    """Below ``cut`` only the last record of each key is left, tombstones perhaps not."""
    whole = [e for n, operation in enumerate(operations) for e in entries(operation, n)]
    last = {key: n for n, (key, _) in enumerate(whole)}
    left = [
        (key, value) for n, (key, value) in enumerate(whole)
        if n >= cut or (last[key] == n and not (value is None and without_tombstones))
    ]  # fmt: skip
    before, after = Log(*whole).view.connectors, Log(*left).view.connectors
    assert before.keys() == after.keys()
    for name, known in before.items():
        found = after[name]
        assert (found.config, found.target) == (known.config, known.target)
        # None, if its config was written after them: then Connect makes them anew.
        assert [*found.tasks] in ([*known.tasks], [])


# -- statuses ---------------------------------------------------------------------------------

RUNNING = StoredStatus(State.RUNNING, "w1", 5)


def statuses(*entries, at=0, log=None):
    return (log or Log()).write(*entries, kind=Kind.STATUSES, at=at)


def test_the_last_status_counts():
    log = statuses(
        records.status_entry("C", RUNNING),
        records.task_status_entry("C", 10, RUNNING),
        records.task_status_entry("C", 2, RUNNING),
        records.status_entry("C", StoredStatus(State.PAUSED, "w2", 1)),
    )
    found = log.view.statuses["C"]
    assert found.connector == StoredStatus(State.PAUSED, "w2", 1)
    assert [*found.tasks] == [2, 10]
    statuses(records.task_status_entry("C", 2, None), log=log)
    assert [*log.view.statuses["C"].tasks] == [10]


@pytest.mark.parametrize(
    ("known", "told", "counts"),
    [
        (RUNNING, StoredStatus(State.UNASSIGNED, "w2", 5), False),
        (RUNNING, StoredStatus(State.UNASSIGNED, "w1", 4), False),
        (RUNNING, StoredStatus(State.UNASSIGNED, "w2", 6), True),
        (RUNNING, StoredStatus(State.FAILED, "w2", 4), True),
        (StoredStatus(State.PAUSED, "w1", 5), StoredStatus(State.UNASSIGNED, "w2", 4), True),
    ],
)
def test_a_task_that_runs_is_not_unassigned_by_a_late_worker(known, told, counts):
    log = statuses(
        records.task_status_entry("C", 0, known), records.task_status_entry("C", 0, told)
    )
    assert log.view.statuses["C"].tasks[0] == (told if counts else known)


def test_the_rule_is_for_tasks_only():
    told = StoredStatus(State.UNASSIGNED, "w2", 4)
    log = statuses(records.status_entry("C", RUNNING), records.status_entry("C", told))
    assert log.view.statuses["C"].connector == told


def test_a_connector_takes_the_statuses_of_its_tasks_with_it():
    log = statuses(records.status_entry("C", RUNNING), records.task_status_entry("C", 0, RUNNING))
    statuses(records.status_entry("C", None), log=log, at=1)
    assert log.view.statuses == {}


def test_but_not_those_of_its_successor_in_another_partition():
    log = statuses(records.task_status_entry("C", 0, RUNNING), at=9)
    statuses(records.status_entry("C", None), log=log, at=5)
    statuses(records.status_entry("C", RUNNING), log=log, at=9)
    assert log.view.statuses["C"].tasks == {0: RUNNING}


def test_topics_of_a_connector():
    use = TopicUse("T", "C", 0, 1)
    log = statuses(
        records.topic_entry("C", "T", use), records.topic_entry("C", "U", TopicUse("U", "C", 0, 2))
    )
    assert log.view.topics("C")["T"] == use
    assert [*log.view.topics("C")] == ["T", "U"]
    statuses(records.topic_entry("C", "T", None), records.topic_entry("C", "U", None), log=log)
    assert log.view.topics("C") == log.view.topics("unknown") == {}


# -- offsets ----------------------------------------------------------------------------------


def at(partition, name="C"):
    return {"cluster": "A", "partition": partition, "topic": "t"}, name


def offsets(log, *pairs):
    return log.write(
        *[(offset_key(name, where), value) for (where, name), value in pairs], kind=Kind.OFFSETS
    )


def test_offsets_by_connector():
    log = offsets(Log(), (at(0), {"offset": 3}), (at(1), {"offset": 4}), (at(0), {"offset": 5}),
                  (at(0, "D"), {"offset": 9}))  # fmt: skip
    assert log.view.offsets("C") == [
        PartitionOffset(at(0)[0], {"offset": 5}),
        PartitionOffset(at(1)[0], {"offset": 4}),
    ]
    assert log.view.offset_keys("C") == [offset_key("C", at(n)[0]) for n in range(2)]
    offsets(log, (at(0), None), (at(1), None), (at(7), None))
    assert (log.view.offsets("C"), log.view.offset_keys("C")) == ([], [])
    assert len(log.view.offsets("D")) == 1


@pytest.mark.parametrize("first", [True, False])
def test_the_key_that_connect_looks_up_counts(first):
    where = at(0)[0]
    odd = b'["C", {"topic":"t", "partition":0, "cluster":"A"}]'
    written = [(offset_key("C", where), {"offset": 5}), (odd, {"offset": 6})]
    log = Log().write(*(written if first else written[::-1]), kind=Kind.OFFSETS)
    assert log.view.offsets("C") == [PartitionOffset(where, {"offset": 5})]
    assert len(log.view.offset_keys("C")) == 2


def test_values_that_are_no_offsets_are_left_out(caplog):
    log = Log()
    log.raw(offset_key("C", {"a": 1}), b"{", Kind.OFFSETS)
    log.raw(offset_key("C", {"a": 2}), b"null", Kind.OFFSETS)
    log.fold.publish(Kind.OFFSETS)
    assert log.view.offsets("C") == []
    assert len(caplog.records) == 1


# -- views ------------------------------------------------------------------------------------


def test_a_view_does_not_change():
    log = Log(connector(), *tasks("a"))
    statuses(records.task_status_entry("C", 0, RUNNING), log=log)
    offsets(log, (at(0), {"offset": 1}))
    old = log.view
    log.write(*GONE)
    statuses(records.task_status_entry("C", 0, None), log=log)
    offsets(log, (at(0), {"offset": 2}))
    assert old.connectors["C"].tasks == ({"task": "a"},)
    assert old.statuses["C"].tasks == {0: RUNNING}
    assert old.offsets("C") == [PartitionOffset(at(0)[0], {"offset": 1})]
    for attribute in ("connectors", "statuses"):
        with pytest.raises(TypeError):
            getattr(old, attribute)["C"] = None
    with pytest.raises(TypeError):
        old.connectors["C"].config["a"] = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        old.config_offset = 7


def test_views_share_what_did_not_change():
    log = Log(connector(), records.connector_entry("D", CONFIG))
    statuses(records.status_entry("C", RUNNING), log=log)
    old = log.view
    log.write(*tasks("a"))
    assert log.view.statuses is old.statuses
    assert log.view.connectors["D"] is old.connectors["D"]
    old = log.view
    statuses(records.status_entry("C", RUNNING), log=log)
    assert log.view is old, "the same again is nothing new"


def test_a_view_says_how_far_the_config_topic_was_read():
    assert ConnectorsView().config_offset == -1
    log = Log(connector(), ("session-key", {"key": "s3cret"}))
    assert log.view.config_offset == 2


@pytest.mark.parametrize("kind", list(Kind))
def test_a_topic_that_is_read_again_replaces_what_it_said(kind):
    def write(log, names):
        for name in names:
            log.write(records.connector_entry(name, CONFIG))
            used = records.topic_entry(name, "T", TopicUse("T", name, 0, 1))
            statuses(records.status_entry(name, RUNNING), used, log=log)
            offsets(log, (at(0, name), {"offset": 1}))

    log = Log()
    write(log, ["C", "D"])
    old = log.view
    log.fold.forget(kind)
    assert log.view is old
    write(log, ["D"])
    left = ["D"] if kind is Kind.CONFIGS else ["C", "D"]
    assert [*log.view.connectors] == left
    left = ["D"] if kind is Kind.STATUSES else ["C", "D"]
    assert [*log.view.statuses] == left
    assert [name for name in "CD" if log.view.topics(name)] == left
    left = ["D"] if kind is Kind.OFFSETS else ["C", "D"]
    assert [name for name in "CD" if log.view.offsets(name)] == left


# -- hostile records --------------------------------------------------------------------------


def test_a_bad_record_is_one_line_without_its_value(caplog):
    log = Log(connector())
    for kind in Kind:
        caplog.clear()
        log.raw(b"connector-C\n\x1b[2J", b'{"password":"s3cret', kind)
        assert len(caplog.records) == 1
        line = caplog.records[0].getMessage()
        assert line.isprintable()
        assert "s3cret" not in line
        caplog.clear()
        log.raw(None, b"s3cret", kind)
        assert len(caplog.records) == 1
    log.fold.publish(Kind.CONFIGS)
    assert log.connector == StoredConnector("C", CONFIG)


keys = st.sampled_from(
    [b"connector-C", b"target-state-C", b"task-C-0", b"task-C-1", b"commit-C", b"session-key",
     b"restart-connector-C", b"logger-cluster-L", b"status-connector-C", b"status-task-C-0",
     b"status-topic-T:connector-C", offset_key("C", at(0)[0])]
)  # fmt: skip
values = st.sampled_from(
    [None, b"null", b"[]", b"{}", b'{"properties":{}}', b'{"properties":{"a":[1]}}',
     b'{"tasks":1}', b'{"tasks":-1}', b'{"state":"STARTED"}', b'{"state":"STOPPED"}',
     b'{"state":"RUNNING","worker_id":"w","generation":1}', b'{"level":"INFO"}', b'{"offset":1}']
)  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from(Kind), st.none() | keys | st.binary(), values | st.binary()),
        max_size=20,
    )
)
def test_no_record_does_any_harm(told):
    log = Log()
    log.fold.set_live()
    for kind, key, value in told:
        log.raw(key, value, kind)
    for kind in Kind:
        log.fold.publish(kind)
    for name, known in log.view.connectors.items():
        assert known.name == name
        assert log.view.offsets(name) is not None
