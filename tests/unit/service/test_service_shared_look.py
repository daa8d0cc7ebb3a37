"""A look that takes long, and many who ask for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from heliograph.service.shared_look import LookTakesLong, SharedLook


class Looked:
    """Counts looks; each waits until it may go on."""

    def __init__(self):
        self.count = 0
        self.begun = threading.Semaphore(0)
        self.may = threading.Semaphore(0)

    def __call__(self):
        self.count += 1
        mine = self.count
        self.begun.release()
        assert self.may.acquire(timeout=60)
        return mine


def test_all_who_ask_meanwhile_share_one_look():
    looked = Looked()
    shared = SharedLook(looked, fresh_seconds=60.0, patience_seconds=60.0)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(shared.get) for _ in range(8)]
        assert looked.begun.acquire(timeout=60)
        looked.may.release()
        assert [one.result(60) for one in asked] == [1] * 8
    assert shared.get() == 1


def test_who_is_impatient_is_told_and_the_look_goes_on():
    looked = Looked()
    shared = SharedLook(looked, fresh_seconds=60.0, patience_seconds=0.05)
    with pytest.raises(LookTakesLong):
        shared.get()
    looked.may.release()
    patient = SharedLook(shared.get, 0.0, 60.0)
    with ThreadPoolExecutor(1) as pool:
        while pool.submit(_none_if_long, patient).result(60) is None:
            pass
    assert looked.count == 1


def _none_if_long(shared):
    try:
        return shared.get()
    except LookTakesLong:
        return None


def test_what_began_before_a_change_is_not_shown_after_it():
    looked = Looked()
    shared = SharedLook(looked, fresh_seconds=60.0, patience_seconds=60.0)
    with ThreadPoolExecutor(2) as pool:
        before = pool.submit(shared.get)
        assert looked.begun.acquire(timeout=60)
        shared.forget()
        after = pool.submit(shared.get)
        looked.may.release()
        assert before.result(60) == 1
        looked.may.release()
        assert after.result(60) == 2
    assert shared.get() == 2


def test_each_gets_the_error_and_what_is_old_is_looked_at_again():
    def fail():
        raise ValueError("no")

    shared = SharedLook(fail, fresh_seconds=60.0, patience_seconds=60.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            shared.get()
    counting = iter(range(9))
    stale = SharedLook(lambda: next(counting), fresh_seconds=-1.0, patience_seconds=60.0)
    assert [stale.get(), stale.get()] == [0, 1]
