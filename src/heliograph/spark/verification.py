"""Comparing as a Spark job: one task per list of ranges, results out. Submitted by the driver.

Only the DataFrame API, as in `spark.rounds`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from heliograph.spark.rounds import tagged
from heliograph.verify.checking import check
from heliograph.verify.model import Range, RangeResult, VerifyContext
from heliograph.wire.driver import unsealed

Task = Sequence[Range]


def run_checks(
    session: SparkSession, tag: str, context: VerifyContext, tasks: Sequence[Task]
) -> list[RangeResult]:
    """Compare the ranges, each list in a task of its own, and wait for what they find."""
    count = len(tasks)
    rows = session.range(count, numPartitions=count).mapInArrow(
        partial(_check, context, list(tasks)), "found binary"
    )
    with tagged(session, tag):
        found = rows.collect()
    return [
        result
        for row in found
        for result in pickle.loads(row.found)  # noqa: S301 - what our own tasks wrote
    ]


def _check(
    context: VerifyContext, tasks: list[Task], rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The task: runs in an executor's Python worker."""
    context = replace(context, source=unsealed(context.source), target=unsealed(context.target))
    for row in rows:
        for index in row.column(0).to_pylist():
            found = pickle.dumps(check(context, tasks[index]))
            yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], ["found"])
