"""When requests leave for a target broker, and when its answers are looked at."""

from __future__ import annotations

from typing import Any

from heliograph.copy.target_link import Sent, TargetLink

ANSWER_BYTES = 90


class Connection:
    def __init__(self):
        self.wakes_for = None

    def wake_for(self, count):
        self.wakes_for = count


class Producer:
    def __init__(self):
        self.connection = Connection()


def link(shortest_answer):
    producer: Any = Producer()
    made: Any = TargetLink(1, producer, shortest_answer=shortest_answer)
    made.ready = {"something": None}
    return made


def send_all(target):
    count = 0
    while target.may_send():
        target.sent.append(Sent(markers=False, at=0.0, answer_bytes=ANSWER_BYTES))
        count += 1
    target.gather()
    return count


def answered(target, count):
    for _ in range(count):
        target.sent.popleft()


def test_a_broker_that_is_near_is_given_three_requests_at_a_time():
    near = link(0.0005)
    assert send_all(near) == 5
    assert near.connection.wakes_for == 3 * ANSWER_BYTES
    answered(near, 2)
    assert send_all(near) == 0
    assert near.connection.wakes_for == ANSWER_BYTES
    answered(near, 1)
    assert send_all(near) == 3


def test_a_broker_that_is_far_always_has_five():
    far = link(0.05)
    assert send_all(far) == 5
    assert far.connection.wakes_for == 1
    answered(far, 1)
    assert send_all(far) == 1


def test_what_is_little_is_sent_at_once():
    near = link(0.0005)
    near.sent.extend([Sent(markers=False, at=0.0, answer_bytes=ANSWER_BYTES)] * 3)
    assert near.may_send()
    near.gather()
    assert near.connection.wakes_for == 1


def test_with_nothing_more_to_send_every_answer_is_looked_at():
    near = link(0.0005)
    send_all(near)
    answered(near, 3)
    near.ready = {}
    assert send_all(near) == 0
    assert near.connection.wakes_for == 1
