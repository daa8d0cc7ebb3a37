"""A fetch asked for before a partition was resumed must not be taken for what comes next."""

import itertools

import pytest

from heliograph.batch.pieces import Piece


@pytest.mark.parametrize("refused_batch", [2, 9, 30])
def test_batches_behind_a_refused_one_are_fetched_again(
    mirroring, topic_name, monkeypatch, refused_batch
):
    """The broker refuses a batch while a fetch far behind it is in flight: nothing is skipped."""
    mirroring = mirroring.but(fetch_max_bytes=1 << 20)
    mirroring.create(topic_name)
    values = (b"%06d" % n + b"x" * 2000 for n in range(4000))
    mirroring.write(
        topic_name, values, **{"batch.size": 64_000, "queue.buffering.max.messages": 5000}
    )
    calls = itertools.count()
    signed = Piece.signed

    def wrong_once(self, producer_id, sequence, epoch):
        # A sequence from the future is refused with error 45, and so is all that follows it.
        ahead = 100_000 if next(calls) == refused_batch else 0
        return signed(self, producer_id, sequence + ahead, epoch)

    monkeypatch.setattr(Piece, "signed", wrong_once)
    [receipt] = mirroring.copy(topic_name)
    assert receipt.resumes >= 1
    proof = mirroring.proof(topic_name)
    assert proof.identical, proof
    assert proof.compared == 4000
