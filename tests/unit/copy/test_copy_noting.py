"""What was acknowledged is written down, and nothing that was answered keeps the loop awake."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.copy import known_positions as noting
from heliograph.copy.known_positions import KnownPositions
from heliograph.ledger.codec import Place
from heliograph.ledger.known import Known
from heliograph.model import TopicPartition
from heliograph.wire.errors import ConnectionFailed

PLACE = Place("t", 0, None, None)


class Writer:
    """As `SideWriter`: one request in flight at most."""

    def __init__(self, *_):
        self.sent, self.answered, self.lost = [], True, False

    @property
    def connection(self):
        return None if self.answered else "in flight"

    @property
    def busy(self):
        return not self.answered

    def is_free(self):
        if self.lost:
            self.lost, self.answered = False, True
            raise ConnectionFailed("lost")
        # An answer that is here is taken in.
        return self.answered

    def send(self, batch):
        self.sent.append(batch)
        self.answered = False

    def wait(self, until):
        self.answered = True

    def give_back(self):
        pass


@pytest.fixture
def notes(monkeypatch):
    monkeypatch.setattr(noting, "SideWriter", Writer)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    context: Any = SimpleNamespace(ledger_topic="ledger")
    return KnownPositions(context, None, None)


def partition(sequence=1):
    known = Known(sequence, 1, 1, 1, 0)
    return SimpleNamespace(source=TopicPartition("t", 0), known=known, known_in=PLACE)


def test_answers_are_taken_in_also_when_nothing_is_due(notes, monkeypatch):
    """Else the answer would stay in the socket and wake the loop for ever."""
    asked = []
    monkeypatch.setattr(notes._writer, "is_free", lambda: asked.append(1) or True)
    notes.pump(100.5)
    assert asked


def test_notes_wait_for_their_time_or_for_enough_bytes(notes):
    notes.acknowledged(partition(), 10)
    notes.pump(101.0)
    assert not notes._writer.sent
    notes.pump(102.0)
    assert len(notes._writer.sent) == 1
    notes._writer.answered = True
    notes.acknowledged(partition(2), 64 << 20)
    notes.pump(102.1)
    assert len(notes._writer.sent) == 2


def test_what_was_lost_is_sent_again(notes):
    notes.acknowledged(partition(), 10)
    notes.pump(102.0)
    notes._writer.lost = True
    notes.pump(102.1)
    notes.pump(104.2)
    assert len(notes._writer.sent) == 2


def test_at_the_end_all_is_written(notes):
    notes.acknowledged(partition(), 10)
    notes.finish(200.0)
    assert len(notes._writer.sent) == 1
    assert notes._writer.answered
