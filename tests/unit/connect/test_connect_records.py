"""Records of Connect's storage topics, to the byte as Connect 4.3.1's own converter has them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.connect import records
from heliograph.connect.api import Initial, State
from heliograph.connect.records import (
    BadRecord,
    Commit,
    ConnectorConfig,
    LoggerLevel,
    RestartRequest,
    StatusRecord,
    StoredStatus,
    Target,
    TaskConfig,
    TopicRecord,
    TopicUse,
    decode_config,
    decode_offset,
    decode_offset_key,
    decode_status,
    encode_key,
    offset_key,
    supersedes,
)
from heliograph.mm2.connect_json import decode_json, encode_json, hash_map_order
from heliograph.mm2.partitioner import murmur2, partition_of

#: What UTF-8 can hold.
texts = st.text(st.characters(exclude_categories=["Cs"]))
names = texts.filter(bool)
configs = st.dictionaries(texts, texts)
numbers = st.integers(0, 2**31 - 1)
statuses = st.builds(
    StoredStatus, st.sampled_from(State), texts, st.integers(-1, 2**31 - 1), texts,
    texts.filter(lambda v: v != "undefined"),
)  # fmt: skip
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts


def written(entry):
    key, value = entry
    return encode_key(key), None if value is None else encode_json(value)


# -- golden bytes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "key", "value"),
    [
        (records.connector_entry("C", {"name": "C", "u": "é😀"}),
         "connector-C", r'{"properties":{"name":"C","u":"é\uD83D\uDE00"}}'),
        (records.connector_entry("A->B.C", None), "connector-A->B.C", None),
        (records.target_entry("C", Initial.STOPPED),
         "target-state-C", '{"state":"PAUSED","state.v2":"STOPPED"}'),
        (records.target_entry("C", Initial.PAUSED),
         "target-state-C", '{"state":"PAUSED","state.v2":"PAUSED"}'),
        (records.target_entry("C", Initial.RUNNING),
         "target-state-C", '{"state":"STARTED","state.v2":"STARTED"}'),
        (records.target_entry("C", None), "target-state-C", None),
        (records.task_entries("C", [])[0], "commit-C", '{"tasks":0}'),
        (records.task_entries("C", [{"a": "1"}, {"a": "2"}])[1],
         "task-C-1", '{"properties":{"a":"2"}}'),
        (records.task_entries("C", [{"a": "1"}, {"a": "2"}])[2], "commit-C", '{"tasks":2}'),
        (records.restart_entry("C", include_tasks=True, only_failed=False),
         "restart-connector-C", '{"include-tasks":true,"only-failed":false}'),
        (records.logger_entry("root", "DEBUG"), "logger-cluster-root", '{"level":"DEBUG"}'),
        (records.status_entry("C", StoredStatus(State.RUNNING, "w:1", 3)), "status-connector-C",
         '{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":3,"version":null}'),
        (records.task_status_entry("C", 7, StoredStatus(State.FAILED, "w:1", 3, "a\n\tb", "4.3.1")),
         "status-task-C-7",
         r'{"state":"FAILED","trace":"a\n\tb","worker_id":"w:1","generation":3,"version":"4.3.1"}'),
        (records.topic_entry("C", "T", TopicUse("T", "C", 0, 1700000000000)),
         "status-topic-T:connector-C",
         '{"topic":{"name":"T","connector":"C","task":0,"discoverTimestamp":1700000000000}}'),
        (records.topic_entry("C", "T", None), "status-topic-T:connector-C", None),
    ],
)  # fmt: skip
def test_what_connect_writes(entry, key, value):
    assert written(entry) == (key.encode(), None if value is None else value.encode())


@pytest.mark.parametrize(
    ("partition", "key", "of_25"),
    [
        ({"topic": "t", "partition": 0, "cluster": "A"},
         '["C",{"cluster":"A","partition":0,"topic":"t"}]', 23),
        ({"group": 'g\x1b\n\x7f\u2028é😀/"\\<', "topic": "t", "partition": 3},
         '["C",{"partition":3,"topic":"t","group":"g\\u001B\\n\x7f\u2028é\\uD83D\\uDE00/\\"\\\\<"}]',
         3),
        ({"targetClusterAlias": "B", "sourceClusterAlias": "A"},
         '["C",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]', 2),
        ({"lone": "\ud800x"}, r'["C",{"lone":"\uD800x"}]', 1),
        ({"b": True, "f": 1.5, "filename": None, "l": 2**63 - 1},
         '["C",{"b":true,"filename":null,"f":1.5,"l":9223372036854775807}]', 22),
    ],
)  # fmt: skip
def test_keys_of_offsets(partition, key, of_25):
    assert offset_key("C", partition) == key.encode()
    assert partition_of(key.encode(), 25) == of_25


def test_a_backslash_before_a_u_is_no_escape():
    assert encode_json("\\u001b") == rb'"\\u001b"'
    assert encode_json("\\\x1b") == rb'"\\\u001B"'


def test_the_order_of_a_java_hash_map():
    colliding = ["Aa", "BB", "AaAa", "BBBB", "AaBB", "é", "zz", "file", "position"]
    assert hash_map_order(colliding) == [
        "Aa", "BB", "zz", "file", "é", "position", "AaAa", "BBBB", "AaBB",
    ]  # fmt: skip
    # More than 12 and more than 24: the table has grown twice.
    many = hash_map_order(f"key{n}" for n in range(30))
    assert [int(key[3:]) for key in many] == [
        1, 2, 0, 5, 6, 3, 4, 9, 7, 8, 22, 21, 20, 15, 14, 13, 12, 19, 18, 17, 16, 11, 10, 26, 25,
        24, 23, 29, 28, 27,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "expected", "of_5"),
    [
        ("21", -973932308, 0),
        ("foobar", -790332482, 1),
        ("abc", 479470107, 2),
        ("connector-A->B.MirrorSourceConnector", -344438641, 2),
        ("status-task-é-0", 1679602597, 2),
        ("", 275646681, 1),
    ],
)
def test_partitions_as_java_chooses_them(key, expected, of_5):
    assert murmur2(key.encode()) == expected % 2**32
    assert partition_of(key.encode(), 5) == of_5


# -- round trips ------------------------------------------------------------------------------


@given(names, configs, st.lists(configs, max_size=3), st.sampled_from(Initial))
def test_configs_come_back(name, config, tasks, target):
    read = [
        decode_config(*written(entry))
        for entry in (
            records.connector_entry(name, config), records.connector_entry(name, None),
            records.target_entry(name, target), records.target_entry(name, None),
            *records.task_entries(name, tasks),
        )
    ]  # fmt: skip
    assert read == [
        ConnectorConfig(name, config), ConnectorConfig(name, None),
        Target(name, target), Target(name, None),
        *(TaskConfig(name, n, task) for n, task in enumerate(tasks)),
        Commit(name, len(tasks)),
    ]  # fmt: skip


@given(names, texts, st.booleans(), st.booleans())
def test_requests_come_back(name, level, tasks, failed):
    restart = records.restart_entry(name, include_tasks=tasks, only_failed=failed)
    assert decode_config(*written(restart)) == RestartRequest(name, tasks, failed)
    logger = records.logger_entry(name, level)
    assert decode_config(*written(logger)) == LoggerLevel(name, level)


@given(names, numbers, statuses)
def test_statuses_come_back(name, task, status):
    of_it = written(records.status_entry(name, status))
    assert decode_status(*of_it) == StatusRecord(name, None, status)
    of_task = written(records.task_status_entry(name, task, status))
    assert decode_status(*of_task) == StatusRecord(name, task, status)
    gone = written(records.task_status_entry(name, task, None))
    assert decode_status(*gone) == StatusRecord(name, task, None)


@given(names, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), numbers, numbers)
def test_topics_come_back(name, topic, task, since):
    use = TopicUse(topic, name, task, since)
    read = decode_status(*written(records.topic_entry(name, topic, use)))
    assert read == TopicRecord(name, topic, use)


@given(names, st.dictionaries(texts, plain), st.dictionaries(texts, plain))
def test_offsets_come_back(name, partition, offset):
    key = offset_key(name, partition)
    assert decode_offset_key(key) == (name, partition)
    assert offset_key(*decode_offset_key(key)) == key
    assert decode_offset(encode_json(offset)) == offset


@given(st.recursive(plain, lambda v: st.lists(v) | st.dictionaries(texts, v), max_leaves=10))
def test_json_is_what_others_read(value):
    assert json.loads(encode_json(value)) == value == decode_json(encode_json(value))


# -- what others wrote ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (None, None), (b"", None), (b" \n", None), (b"null", None), (b'{"a":1}x', {"a": 1}),
        (b'{"a":1,"a":2}', {"a": 2}), (b"\xef\xbb\xbf[1]", [1]), (rb'"\ud800x"', "\ufffdx"),
        (rb'"\ud83d\ude00"', "😀"), (rb'{"\udc00":["\udc00"]}', {"\ufffd": ["\ufffd"]}),
    ],
)  # fmt: skip
def test_json_as_connect_reads_it(data, value):
    assert decode_json(data) == value


@pytest.mark.parametrize(
    "data",
    [b"{", b"\xff", b'{"a":NaN}', b"[" * 100_000, b'{"a":' * 5000 + rb'"\u0041"', b"9" * 5000,
     b'"\xed\xa0\x80"'],
)  # fmt: skip
def test_what_is_no_json(data):
    with pytest.raises(ValueError):
        decode_json(data)


@pytest.mark.parametrize("value", [b'{"state":"STARTED"}', b'{"state":"STARTED","state.v2":3}',
                                   b'{"state":"x","state.v2":"STARTED"}'])  # fmt: skip
def test_target_states_of_older_workers(value):
    assert decode_config(b"target-state-C", value) == Target("C", Initial.RUNNING)


def test_a_value_of_nothing_is_a_deletion_in_the_config_topic():
    for value in (None, b"", b"null"):
        assert decode_config(b"connector-C", value) == ConnectorConfig("C", None)
        assert decode_config(b"target-state-C", value) == Target("C", None)


def test_numbers_in_a_config_become_text_and_nulls_are_left_out():
    value = b'{"properties":{"a":3,"b":true,"c":null,"d":1.5,"e":"x"}}'
    expected = {"a": "3", "b": "true", "d": "1.5", "e": "x"}
    assert decode_config(b"connector-C", value) == ConnectorConfig("C", expected)


def test_flags_of_a_restart_that_are_not_said_are_false():
    value = b'{"include-tasks":"true"}'
    assert decode_config(b"restart-connector-C", value) == RestartRequest("C", False, False)


def test_a_status_without_a_word_of_trace_or_version():
    value = b'{"state":"RUNNING","worker_id":null,"generation":1,"version":"undefined"}'
    status = StoredStatus(State.RUNNING, "", 1)
    assert decode_status(b"status-connector-C", value) == StatusRecord("C", None, status)
    gone = value.replace(b"RUNNING", b"DESTROYED")
    assert decode_status(b"status-connector-C", gone) == StatusRecord("C", None, None)


@pytest.mark.parametrize("key", [b"session-key", b"tasks-fencing-C"])
def test_records_that_do_not_concern_us(key):
    assert decode_config(key, b"{") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"), (b"nonsense", b"{}"), (b"connector-", b'{"properties":{}}'),
        (b"connector-C", b"[]"), (b"connector-C", b"{}"), (b"connector-C", b'{"properties":[]}'),
        (b"connector-C", b'{"properties":{"a":{}}}'), (b"connector-C", b'{"properties":{"a":[]}}'),
        (b"target-state-C", b'{"state":"RUNNING"}'), (b"target-state-C", b'{"state":1}'),
        (b"target-state-C", b'{"state":"STARTED","state.v2":"x"}'),
        (b"task-C", b'{"properties":{}}'), (b"task-C-x", b'{"properties":{}}'),
        ("task-C-\u0663".encode(), b'{"properties":{}}'), (b"task-C-+1", b'{"properties":{}}'),
        (b"task-C-2147483648", b'{"properties":{}}'), (b"task-C-" + b"9" * 5000, b"{}"),
        (b"task-C-0", None), (b"task-C-0", b"{}"),
        (b"commit-C", None), (b"commit-C", b'{"tasks":-1}'), (b"commit-C", b'{"tasks":true}'),
        (b"commit-C", b'{"tasks":1.0}'), (b"commit-C", b'{"tasks":2147483648}'),
        (b"restart-connector-C", None), (b"logger-cluster-L", b"{}"),
        (b"logger-cluster-L", None),
    ],
)  # fmt: skip
def test_what_is_no_config_record(key, value):
    with pytest.raises(BadRecord):
        decode_config(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"connector-C", b"{}"), (b"status-connector-", None), (b"status-task-C", None),
        (b"status-task--0", None), (b"status-topic-T", None), (b"status-topic-:connector-C", None),
        (b"status-topic-T:connector-", None), (b"status-connector-C", b"null"),
        (b"status-connector-C", b'{"state":"x","worker_id":"w","generation":1}'),
        (b"status-connector-C", b'{"state":["RUNNING"],"worker_id":"w","generation":1}'),
        (b"status-connector-C", b'{"state":"RUNNING","worker_id":1,"generation":1}'),
        (b"status-connector-C", b'{"state":"RUNNING","worker_id":"w"}'),
        (b"status-connector-C", b'{"state":"RUNNING","worker_id":"w","generation":1,"trace":1}'),
        (b"status-topic-T:connector-C", b"{}"),
        (b"status-topic-T:connector-C", b'{"topic":{"name":"T","connector":"C","task":0}}'),
    ],
)  # fmt: skip
def test_what_is_no_status_record(key, value):
    with pytest.raises(BadRecord):
        decode_status(key, value)


@pytest.mark.parametrize("key", [b"", b"[]", b'["C"]', b'["C",null]', b'[1,{}]', b'{"C":{}}',
                                 b'["C",{},1]', b'["C",{"a":{}}]', b'["C",{"a":[]}]'])  # fmt: skip
def test_what_is_no_key_of_an_offset(key):
    with pytest.raises(BadRecord):
        decode_offset_key(key)


def test_messages_repeat_no_values():
    for value in (b'"s3cret', b'{"properties":{"password":["s3cret"]}}', b'{"state":"s3cret"}'):
        for key in (b"connector-C", b"target-state-C", b"commit-C"):
            with pytest.raises(BadRecord) as caught:
                decode_config(key, value)
            assert "s3cret" not in str(caught.value)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None


prefixes = st.sampled_from(
    [b"connector-C", b"target-state-C", b"task-C-0", b"commit-C", b"restart-connector-C",
     b"logger-cluster-L", b"status-connector-C", b"status-task-C-0",
     b"status-topic-T:connector-C"]
)  # fmt: skip


@given(prefixes | st.binary(), st.none() | st.binary())
def test_anything_is_read_or_refused(key, value):
    for decode in (decode_config, decode_status, lambda k, _: decode_offset_key(k),
                   lambda _, v: decode_offset(v or b"")):  # fmt: skip
        try:
            decode(key, value)
        except BadRecord:
            continue


# -- who may write what -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "worker", "generation", "may"),
    [
        (State.UNASSIGNED, "other", 4, False), (State.FAILED, "other", 4, False),
        (State.UNASSIGNED, "other", 5, True), (State.FAILED, "other", 6, True),
        (State.UNASSIGNED, "known", 4, True), (State.FAILED, "known", 1, True),
        (State.RUNNING, "other", 4, True), (State.PAUSED, "other", 4, True),
    ],
)  # fmt: skip
def test_a_worker_that_is_late_does_not_overwrite_its_successor(state, worker, generation, may):
    known = StoredStatus(State.RUNNING, "known", 5)
    assert supersedes(StoredStatus(state, worker, generation), known) is may
    assert supersedes(StoredStatus(state, worker, generation), None)
