"""Numbered records for the checker: plain and in transactions, several codecs, without a pause.

The load talks to the brokers through their back door: what hits brokers hits it too, what hits the
links of the mirrors does not.
"""

import random
import threading
import time
from dataclasses import dataclass

import numpy as np
from checker import ABORTED, RECORD
from confluent_kafka import KafkaError, KafkaException, Producer

_TICK_SECONDS = 0.05
_MOST_WAITING = 40_000
_TRANSACTION_SECONDS = 0.25
_ABORTED_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """``first_stream`` is the stream of partition 0; the others follow.

    ``rest_seconds`` follow on each second of work.
    """

    name: str
    codec: str
    transactional: bool
    partitions: int
    first_stream: int
    per_second: int
    rest_seconds: float = 0.0


class Load:
    """All topics, one thread each. Lives in a process of its own."""

    def __init__(self, bootstrap, topics, seed, dated_back=0.0):
        """``dated_back``: records are so many hours older than they are."""
        self._writers = [
            (_TransactionalWriter if t.transactional else _PlainWriter)(
                bootstrap, t, seed, dated_back
            )
            for t in topics
        ]
        for writer in self._writers:
            writer.start()

    def work(self):
        """Nothing: the threads do."""
        return False

    def written(self):
        """Numbers given out so far."""
        return sum(sum(writer.next) for writer in self._writers)

    def troubles(self):
        """What producers met, by text; transactions that failed are among them."""
        found = {}
        for writer in self._writers:
            for text, count in writer.troubles.items():
                found[text] = found.get(text, 0) + count
        return found

    def stop(self):
        """Write no more; all that is under way is delivered or given up. {stream: acked ranges}."""
        for writer in self._writers:
            writer.stopping.set()
        acked = {}
        for writer in self._writers:
            writer.join()
            acked |= writer.acked
        return acked

    def close(self):
        for writer in self._writers:
            writer.stopping.set()


class _Writer(threading.Thread):
    def __init__(self, bootstrap, topic, seed, dated_back):
        super().__init__(daemon=True, name=topic.name)
        self._servers, self._topic = bootstrap, topic
        self._dated_back = dated_back
        self._dice = random.Random(f"{seed}-{topic.name}")
        self.stopping = threading.Event()
        self.next = [0] * topic.partitions
        self.acked = {topic.first_stream + p: [] for p in range(topic.partitions)}
        self.troubles = {}

    def _config(self):
        return {
            "bootstrap.servers": self._servers, "client.id": "load", "enable.idempotence": True,
            "compression.type": self._topic.codec, "linger.ms": 40, "log_level": 0,
            "delivery.report.only.error": True, "queue.buffering.max.messages": 200_000,
            "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000,
        }  # fmt: skip

    def _produce(self, producer, count, *, aborted=False):
        """``count`` records, evenly over the partitions; returns {partition: (first, after)}."""
        each = max(1, count // self._topic.partitions)
        ranges = {}
        for p in range(self._topic.partitions):
            first = self.next[p]
            after = first + each
            records = np.zeros(each, RECORD)
            records["stream"] = self._topic.first_stream + p
            records["flags"] = ABORTED if aborted else 0
            records["number"] = np.arange(first, after)
            values = records.view(f"V{RECORD.itemsize}").tolist()
            # The numbers are spent, whatever becomes of the records.
            self.next[p], ranges[p] = after, (first, after)
            self._hand_over(producer, p, values)
        return ranges

    def _hand_over(self, producer, partition, values):
        name = self._topic.name
        if self._dated_back:
            # Batches cannot be given timestamps.
            stamp = int((time.time() - 3600 * self._dated_back) * 1000)
            try:
                for value in values:
                    producer.produce(name, value, partition=partition, timestamp=stamp)
            except BufferError as error:
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from error
            return
        messages = [{"value": value} for value in values]
        if producer.produce_batch(name, messages, partition=partition) != len(values):
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL))

    def _acknowledged(self, ranges):
        for p, (first, after) in ranges.items():
            known = self.acked[self._topic.first_stream + p]
            if known and known[-1][1] == first:
                known[-1] = (known[-1][0], after)
            else:
                known.append((first, after))

    def _trouble(self, error):
        text = f"{self._topic.name}: {error.name() if isinstance(error, KafkaError) else error}"
        self.troubles[text] = self.troubles.get(text, 0) + 1


class _PlainWriter(_Writer):
    """Idempotent; records wait for as long as it takes."""

    _fatal = False

    def run(self):
        producer, pending = self._new(), []
        due = time.monotonic()
        while not self.stopping.is_set():
            due = max(due + _TICK_SECONDS, time.monotonic() - 1)
            if len(producer) < _MOST_WAITING and not self._rests(due):
                count = round(self._topic.per_second * _TICK_SECONDS)
                pending.append(self._produce(producer, count))
            producer.poll(max(0.0, due - time.monotonic()))
            time.sleep(max(0.0, due - time.monotonic()))
            if self._fatal:
                # Everything that was waiting has an unknown outcome.
                producer, pending, self._fatal = self._new(), [], False
        if producer.flush(120) == 0 and not self._fatal:
            for ranges in pending:
                self._acknowledged(ranges)

    def _rests(self, now):
        return now % (1 + self._topic.rest_seconds) >= 1

    def _new(self):
        self._fatal = False

        def failed(error):
            self._trouble(error)
            self._fatal = self._fatal or error.fatal()

        config = self._config() | {"message.timeout.ms": 0, "error_cb": failed}
        return Producer(config | {"on_delivery": self._undelivered})

    def _undelivered(self, error, _message):
        if error is not None:
            self._trouble(error)
            self._fatal = True


class _TransactionalWriter(_Writer):
    """Transactions of a quarter of a second, of which some abort."""

    def run(self):
        producer = None
        while not self.stopping.is_set():
            try:
                producer = producer or self._new()
                self._transaction(producer)
            except KafkaException as failure:
                error = failure.args[0]
                self._trouble(error)
                if not self._abort(producer, error):
                    producer = None

    def _new(self):
        # A new producer of the same id fences the one before and ends its transaction.
        producer = Producer(
            self._config()
            | {"transactional.id": f"load-{self._topic.name}", "transaction.timeout.ms": 60_000}
        )
        producer.init_transactions(60)
        return producer

    def _transaction(self, producer):
        began = time.monotonic()
        aborted = self._dice.random() < _ABORTED_SHARE
        producer.begin_transaction()
        count = round(self._topic.per_second * _TRANSACTION_SECONDS)
        ranges = self._produce(producer, count, aborted=aborted)
        # On the log before the decision: what was never sent could not become visible.
        producer.flush(30)
        if aborted:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            self._acknowledged(ranges)
        self.stopping.wait(began + _TRANSACTION_SECONDS - time.monotonic())

    def _abort(self, producer, error):
        if producer is None or error.fatal():
            time.sleep(0.5)
            return False
        try:
            producer.abort_transaction(60)
        except KafkaException as failure:
            self._trouble(failure.args[0])
            return False
        return True
