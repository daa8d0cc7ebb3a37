"""Small writes beside the copy loop, which never waits for them. Runs in executors."""

from __future__ import annotations

import time
import uuid

from heliograph.copy.background import Background
from heliograph.copy.links import Cluster
from heliograph.model import TopicPartition
from heliograph.wire.connection import Buffer, Connection
from heliograph.wire.errors import NONE, BrokerError, ConnectionFailed, WireError
from heliograph.wire.log import located
from heliograph.wire.produce import Producer


class SideWriter:
    """Batches for one partition of an internal topic; one request in flight at most.

    The first batch of a lease goes over an idle connection if the partition's leader is known and
    there is one. Otherwise it waits here until the cluster's spare lane has opened a connection.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, background: Background) -> None:
        self._cluster = cluster
        self._partition = partition
        self._background = background
        self._node = -1
        self._producer: Producer | None = None
        self._waiting: Buffer | None = None
        self._failure: WireError | None = None

    @property
    def connection(self) -> Connection | None:
        """To be watched for reading by the loop's selector, while an answer is due.

        Not else: a broker that hangs up would wake the loop for ever.
        """
        waiting = self._producer is not None and self._producer.connection.in_flight
        return self._producer.connection if self._producer and waiting else None

    @property
    def busy(self) -> bool:
        """Whether a batch is on its way, or waits for a connection."""
        return self._waiting is not None or self.connection is not None

    def is_free(self) -> bool:
        """Whether the next batch may be sent: what was sent before is answered.

        Raises WireError if that was refused or lost; the next batch goes over a new connection.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._waiting is not None:
            return False
        if self._producer is None or not self._producer.connection.in_flight:
            return True
        try:
            self._producer.connection.flush()
            answers = self._producer.receive()
        except WireError:
            self.close()
            raise
        if answers is None:
            return False
        self._check(answers[0].error)
        return True

    def send(self, batch: Buffer) -> None:
        """Send a batch, when `is_free`; never waits."""
        if self._producer is None and not self._attach():
            self._waiting = batch
            self._background.run(
                self._cluster.spare_lane, self._provide, self._provided, self._failed
            )
            return
        assert self._producer is not None  # noqa: S101 - attached
        try:
            self._producer.send([(self._partition, batch)])
        except WireError:
            self.close()
            raise

    def _attach(self) -> bool:
        """Take an idle connection to the leader, if both are known."""
        node, topic_id = self._cluster.located.get(self._partition, (-1, None))
        connection = self._cluster.take(node) if topic_id is not None else None
        if connection is None or topic_id is None:
            return False
        self._node = node
        self._producer = Producer(connection, {self._partition.topic: topic_id})
        return True

    def _provide(self) -> tuple[int, uuid.UUID]:
        """Find the leader and have an idle connection to it. Runs in the spare lane."""
        client = self._cluster.spare
        try:
            metadata, node = located(client, self._partition)
            self._cluster.provide(node, client)
        finally:
            # It is needed again after the next failure, not before.
            client.close()
        return node, metadata.topics[self._partition.topic].topic_id

    def _provided(self, found: tuple[int, uuid.UUID]) -> None:
        self._cluster.located[self._partition] = found
        batch, self._waiting = self._waiting, None
        assert batch is not None  # noqa: S101 - it waited for this
        try:
            # If somebody else was quicker to take the connection, once more.
            self.send(batch)
        except WireError as error:
            self._failure = error

    def _failed(self, error: WireError) -> None:
        self._waiting, self._failure = None, error

    def wait(self, until: float) -> None:
        """Wait for the answer that is due, if any, until a monotonic time; raises as `is_free`."""
        left = max(0.0, until - time.monotonic())
        self._background.wait(left, until=lambda: self._waiting is None)
        if self._waiting is not None:
            raise ConnectionFailed(f"no connection for {self._partition} in time")
        if self._failure is not None or self.connection is None:
            self.is_free()
            return
        try:
            frame = self.connection.wait(max(0.0, until - time.monotonic()))
        except WireError:
            self.close()
            raise
        assert self._producer is not None  # noqa: S101 - it has the connection
        self._check(self._producer.parse(frame)[0].error)

    def _check(self, error: int) -> None:
        if error != NONE:
            self.close()
            raise BrokerError(error, f"writing {self._partition}")

    def give_back(self) -> None:
        """Leave the connection to the next lease."""
        if self._producer is not None:
            self._cluster.give_back(self._node, self._producer.connection)
            self._producer = None

    def close(self) -> None:
        """Drop the connection; its request has an unknown outcome."""
        if self._producer is not None:
            self._producer.connection.close()
            self._producer = None
        # It may lead the partition no more.
        self._cluster.located.pop(self._partition, None)
