"""A round: one Spark job, one task per lease, receipts out. Submitted by the driver.

Only the DataFrame API, so that the same code runs over Spark Connect.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from heliograph.copy.loop import CopyLoop
from heliograph.model import Lease, Receipt
from heliograph.wire.driver import unsealed

_RECEIPT_DDL = (
    "flow string, topic string, partition int, source_position long, target_end long,"
    " records long, bytes long, batches long, resumes int, quarantined long, error string,"
    " serial long, lease_report string, counts string"
)
_RECEIPT_SCHEMA = pa.schema([
    ("flow", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
    ("source_position", pa.int64()), ("target_end", pa.int64()), ("records", pa.int64()),
    ("bytes", pa.int64()), ("batches", pa.int64()), ("resumes", pa.int32()),
    ("quarantined", pa.int64()), ("error", pa.string()), ("serial", pa.int64()),
    ("lease_report", pa.string()), ("counts", pa.string()),
])  # fmt: skip


#: Of prctl, and the longest name that the kernel keeps.
_PR_SET_NAME, _MOST_NAME_BYTES = 15, 15


def run_round(session: SparkSession, tag: str, leases: Sequence[Lease]) -> list[Receipt]:
    """Run the leases, each in a task of its own, and wait for their receipts.

    The job has a tag, by which it can be cancelled.
    """
    count = len(leases)
    tasks = session.range(count, numPartitions=count)
    receipts = tasks.mapInArrow(partial(_hold, list(leases)), _RECEIPT_DDL)
    with tagged(session, tag):
        return [Receipt(*row) for row in receipts.collect()]


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Jobs that this thread starts meanwhile have the tag."""
    # The context's, not the session's: those can be cancelled only by the thread that added them.
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        with suppress(Exception):  # the JVM may be gone
            context.removeJobTag(tag)


def warm_up(session: SparkSession, tasks: int) -> None:
    """Run empty tasks: the first job of a session loads classes and forks workers for seconds.

    Leases that begin to run out meanwhile would be of little use.
    """
    session.range(tasks, numPartitions=tasks).mapInArrow(_echo, "id long").collect()


def _echo(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


def _is_retried() -> bool:
    """Whether this task ran before: its first attempt was killed a moment ago."""
    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def _name_process(name: str) -> None:
    """Show in ``top`` and ``ps -o comm`` which flow a worker copies."""
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:_MOST_NAME_BYTES])


def _hold(leases: list[Lease], rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: runs in an executor's Python worker."""
    for row in rows:
        for index in row.column(0).to_pylist():
            lease = leases[index]
            context = replace(
                lease.context,
                source=unsealed(lease.context.source),
                target=unsealed(lease.context.target),
            )
            _name_process(context.label)
            receipts = CopyLoop(replace(lease, context=context), again=_is_retried()).run()
            _name_process("idle")
            columns = zip(*map(astuple, receipts), strict=True)
            arrays = [
                pa.array(column, field.type)
                for column, field in zip(columns, _RECEIPT_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_RECEIPT_SCHEMA)
