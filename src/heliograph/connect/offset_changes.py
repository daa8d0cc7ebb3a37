"""What it means to change a connector's offsets. In the driver, while the connector is stopped.

Of a source connector, ``{"offset": n}`` says: the record at source offset n was copied last.
Copying goes on at n + 1, behind what is on the target. Records that were copied before are then
there twice, and positions in them are translated to the newer copies; records that are skipped have
no copy. None says: as if the partition had never been copied, so it is copied again from the start
(or from the end, by ``auto.offset.reset``). Exactly once begins anew at that point.

The decision is written to the ledger, where whoever copies next finds it
(`heliograph.ledger.moves`), and to the offsets topic, where a real Connect would.

Checkpoints and heartbeats have no positions: their offsets are stored, and mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.config import FlowConfig
from heliograph.connect.api import ConnectError, PartitionOffset
from heliograph.connect.connectors import plan_connector
from heliograph.connect.fold import StoredConnector
from heliograph.connect.records import offset_key
from heliograph.connect.storage import StorageTopics
from heliograph.connect.worker_config import WorkerConfig
from heliograph.control.moves import NoSuchOffset, set_positions
from heliograph.errors import HeliographError
from heliograph.mm2.connect_json import hash_map_order
from heliograph.model import TopicPartition
from heliograph.service.snapshot import CHECKPOINTS, COPYING
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["OffsetChanges"]

_TIMEOUT_SECONDS = 10.0
_EMPTY = "Partitions / offsets need to be provided for an alter offsets request"


class OffsetChanges:
    """Changes offsets of connectors of one worker's cluster. One thread at a time."""

    def __init__(self, worker: WorkerConfig, storage: StorageTopics) -> None:
        self._worker = worker
        self._storage = storage

    def alter(self, stored: StoredConnector, offsets: Sequence[PartitionOffset]) -> None:
        """Set some offsets; raises ConnectError as MM2's connectors do."""
        if not offsets:
            raise ConnectError(400, _EMPTY)
        part, flow = self._plan(stored)
        for change in offsets:
            _check(part, change)
        if part == COPYING:
            # As in MM2, whatever is stored may be forgotten; some of it may be no partition.
            wanted = {_partition(c.partition): c.offset for c in offsets if _is_source(c.partition)}
            self._move(flow, {p: None if o is None else int(o["offset"]) + 1
                              for p, o in wanted.items()})  # fmt: skip
        entries = [(offset_key(stored.name, c.partition), c.offset) for c in offsets]
        self._write(entries)

    def reset(self, stored: StoredConnector) -> None:
        """Forget all offsets of a connector."""
        part, flow = self._plan(stored)
        known = self._storage.view.offsets(stored.name)
        if part == COPYING:
            partitions = [_partition(c.partition) for c in known if _is_source(c.partition)]
            self._move(flow, dict.fromkeys(partitions))
        self._write([(key, None) for key in self._storage.view.offset_keys(stored.name)])

    def _plan(self, stored: StoredConnector) -> tuple[str, FlowConfig]:
        try:
            plan = plan_connector(stored.name, stored.config, self._worker)
        except HeliographError as error:
            raise ConnectError(500, str(error)) from error
        return plan.part, plan.flow

    def _write(self, entries: Sequence[tuple[bytes, Mapping[str, Any] | None]]) -> None:
        try:
            self._storage.append_offsets(entries)
            self._storage.refresh()
        except WireError as error:
            raise ConnectError(500, str(error)) from error

    def _move(self, flow: FlowConfig, positions: Mapping[TopicPartition, int | None]) -> None:
        """Write down where the flow goes on; None: where it would begin."""
        if not positions:
            return
        name = f"{flow.flow}|offsets"
        with (
            ClusterClient(flow.source_admin, name, request_timeout=_TIMEOUT_SECONDS) as source,
            ClusterClient(flow.target_admin, name, request_timeout=_TIMEOUT_SECONDS) as target,
        ):
            try:
                set_positions(flow, source, target, positions)
            except NoSuchOffset as error:
                raise ConnectError(400, error.args[0]) from error
            except (WireError, HeliographError) as error:
                raise ConnectError(500, str(error)) from error


# -- MM2's checks -----------------------------------------------------------------------------

_FIELDS = {
    COPYING: ("cluster", "topic", "partition"),
    CHECKPOINTS: ("group", "topic", "partition"),
}
_HEARTBEAT = ("sourceClusterAlias", "targetClusterAlias")


def _check(part: str, change: PartitionOffset) -> None:
    """Refuse what MM2's connectors refuse, with their status and words; nulls are not checked."""
    if change.offset is None:
        return
    partition = f"Source partition {_java(change.partition)}"
    for name in _FIELDS.get(part, _HEARTBEAT):
        _check_field(partition, change.partition, name)
    whole = f"Source offset {_java(change.offset)} for s{partition[1:]}"
    _check_number(whole, change.offset, "offset")
    offset = change.offset["offset"]
    if part != COPYING and offset != 0:
        raise ConnectError(
            500, f"{whole} has an invalid value {offset} for the 'offset' key; the only accepted"
            " value is 0",
        )  # fmt: skip


def _check_field(whole: str, partition: Mapping[str, Any], name: str) -> None:
    if name == "partition":
        _check_number(whole, partition, name)
        return
    value = _required(whole, partition, name)
    if not isinstance(value, str):
        raise ConnectError(
            500, f"{whole} has an invalid value {value} for the '{name}' key, which must be a"
            " string",
        )  # fmt: skip


def _check_number(whole: str, values: Mapping[str, Any], name: str) -> None:
    value = _required(whole, values, name)
    wrong = ""
    if not isinstance(value, int) or isinstance(value, bool):
        wrong = "must be an integer"
    elif value < 0:
        wrong = "cannot be negative"
    if wrong:
        raise ConnectError(
            500, f"{whole} has an invalid value {value} for the '{name}' key, which {wrong}"
        )


def _required(whole: str, values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    if value is None:
        raise ConnectError(500, f"{whole} is missing the '{name}' key, which is required")
    return value


def _is_source(partition: Mapping[str, Any]) -> bool:
    return isinstance(partition.get("topic"), str) and isinstance(partition.get("partition"), int)


def _partition(partition: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(partition["topic"], partition["partition"])


def _java(values: Mapping[str, Any]) -> str:
    """As Java prints a map."""
    return "{" + ", ".join(f"{k}={values[k]}" for k in hash_map_order(values)) + "}"
