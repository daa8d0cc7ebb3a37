"""What the tasks of a flow have to know, by its configuration. Runs in the driver, in commands."""

from __future__ import annotations

from heliograph.config import FlowConfig
from heliograph.control.topics import internal as internal_topics
from heliograph.model import FlowContext, OffsetSyncsTopic
from heliograph.policy import ledger_topic, quarantine_topic

__all__ = ["flow_context"]

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def flow_context(
    config: FlowConfig, name: str, producer_id: int, marker_id: int = -1
) -> FlowContext:
    """The context of a flow; without ``marker_id`` no gaps are filled."""
    syncs = None
    if config.emit_offset_syncs_enabled:
        on_source = config.offset_syncs_topic_location == "source"
        syncs = OffsetSyncsTopic(internal_topics.offset_syncs_topic(config), on_source)
    return FlowContext(
        flow=config.flow,
        name=name,
        source=config.source_client,
        target=config.target_client,
        producer_id=producer_id,
        ledger_topic=ledger_topic(config.flow.source),
        offset_syncs=syncs,
        offset_lag_max=config.offset_lag_max,
        read_committed=config.isolation_level == "read_committed",
        start_at_latest=config.auto_offset_reset == "latest",
        on_data_loss=config.on_data_loss,
        on_truncation=config.on_truncation,
        on_recreation=config.on_recreation,
        fetch_max_bytes=config.fetch_max_bytes,
        buffer_max_bytes=config.buffer_max_bytes,
        marker_id=marker_id,
        codec=_CODECS.get(config.compression_type),
        quarantine_topic=(
            quarantine_topic(config.flow.source) if config.on_refused == "quarantine" else None
        ),
    )
