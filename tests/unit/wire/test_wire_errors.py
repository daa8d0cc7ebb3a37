"""The one judge of what is worth another try."""

from __future__ import annotations

import pytest

from heliograph.wire.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    NotKafka,
    check,
    error_name,
    is_retriable,
)

RETRIABLE = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    41: "NOT_CONTROLLER",
    56: "KAFKA_STORAGE_ERROR",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
FINAL = {
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    38: "INVALID_REPLICATION_FACTOR",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    87: "INVALID_RECORD",
}


@pytest.mark.parametrize("code", RETRIABLE, ids=RETRIABLE.values())
def test_goes_away_by_itself(code):
    assert is_retriable(code)
    assert is_retriable(BrokerError(code, "asking"))


@pytest.mark.parametrize("code", FINAL, ids=FINAL.values())
def test_stays(code):
    assert not is_retriable(code)
    assert not is_retriable(BrokerError(code, "asking"))


def test_connections_come_back_and_refusals_do_not():
    assert is_retriable(ConnectionFailed("gone"))
    assert not is_retriable(NotKafka("http"))
    assert not is_retriable(AuthenticationFailed("no"))
    assert not is_retriable(ValueError("a bug of ours"))


@pytest.mark.parametrize(
    ("code", "name"), [(1, "OFFSET_OUT_OF_RANGE (1)"), (45, "OUT_OF_ORDER_SEQUENCE_NUMBER (45)")]
)
def test_names_are_kafkas(code, name):
    assert error_name(code) == name


def test_check_says_what_and_why():
    check(0, "fine")
    with pytest.raises(BrokerError, match=r"creating t: INVALID_TOPIC \(17\) \(bad\)"):
        check(17, "creating t", "bad")


def test_an_unknown_code_still_has_a_name():
    assert "(9999)" in error_name(9999)
    assert not is_retriable(9999)
