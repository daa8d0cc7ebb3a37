"""Brokers that do not answer: no request is sent to them until they do. Runs in executors.

A broker that is stopped or cut off accepts connections and does not answer. A request to it waits
for a timeout, and so does every partition of the lease that needs the same lane. So a thread of its
own finds out when it answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from heliograph.model import TopicPartition
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import ConnectionFailed, NoAnswer, WireError

#: A broker that takes longer to answer may have lost its partitions; others are asked, this often.
SILENT_SECONDS, ASK_SECONDS = 3.0, 2.0
#: Between two attempts, if one fails at once.
_AGAIN_SECONDS = 1.0


class UnresponsiveBrokers:
    """The brokers of one cluster that did not answer, as this process knows."""

    def __init__(self, client: ClusterClient, spare: ClusterClient) -> None:
        """``spare``: for `lost`, which is called by another thread than those of ``client``."""
        self._client = client
        self._spare = spare
        self._since: dict[int, float] = {}

    def refuse(self, node: int) -> None:
        """Raise ConnectionFailed if a broker is known not to answer."""
        since = self._since.get(node)
        if since is not None:
            raise ConnectionFailed(
                f"broker {node} of {self._client.alias} has not answered for"
                f" {time.time() - since:.0f} s; it is asked again and again whether it is back"
            )

    @contextmanager
    def noticed(self, node: int) -> Iterator[None]:
        """Whoever asks a broker does it in here: if there is no answer, others need not ask."""
        try:
            yield
        except NoAnswer:
            self.add(node)
            raise

    @property
    def nodes(self) -> set[int]:
        """All of them."""
        return set(self._since)

    def lost(self, node: int, partitions: Collection[TopicPartition]) -> bool:
        """Whether a broker that does not answer no longer leads all of these, by other brokers.

        Waits for their answer; raises WireError if there is none.
        """
        if self._client.known_brokers <= self._since.keys():
            return False
        found = self._spare.metadata(sorted({p.topic for p in partitions}))
        return any(found.leader(*p) != node for p in partitions)

    def add(self, node: int) -> None:
        """A broker does not answer."""
        if node in self._since:
            return
        self._since[node] = time.time()
        self._avoid()
        threading.Thread(
            target=self._ask, args=(node,), name=f"is broker {node} back", daemon=True
        ).start()

    def _ask(self, node: int) -> None:
        """Until it answers, or is no longer a broker of the cluster."""
        while (address := self._client.known_address(node)) is not None:
            begun = time.monotonic()
            try:
                self._client.probe(*address).close()
                break
            except WireError:
                time.sleep(max(0.0, begun + _AGAIN_SECONDS - time.monotonic()))
        del self._since[node]
        self._avoid()

    def _avoid(self) -> None:
        self._client.avoided = self._spare.avoided = self.nodes
