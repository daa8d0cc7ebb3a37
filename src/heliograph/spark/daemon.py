"""The parent of Spark's Python workers. Runs once per executor.

Spark forks a worker from this process whenever it needs one. What is imported here is shared by all
of them: a worker is ready at once, and its memory is mostly its siblings'.
"""

# ruff: noqa: E402 - the path is settled before pyspark is imported

import ctypes
import gc
import sys
from contextlib import suppress

from heliograph.spark.archives import leave_out_archives

leave_out_archives(sys.path)

import pandas  # noqa: F401 - pyspark's worker imports it for every Arrow task
import pyarrow  # noqa: F401 - imported for the workers
import pyspark.sql.conversion
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401 - imported for the workers
from pyspark.daemon import manager

import heliograph.copy.loop
import heliograph.verify.checking  # noqa: F401 - imported for the workers

#: glibc's mallopt parameters: above the threshold memory comes from mmap and is given back at once.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def _keep_buffers() -> None:
    """Have malloc reuse the memory of fetched frames: new pages cost CPU."""
    with suppress(OSError, AttributeError):  # another libc manages by itself
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


if __name__ == "__main__":
    _keep_buffers()
    # Workers collect garbage after every task. Frozen objects are left out of that: it is quick,
    # and the pages they live on stay shared. In between there is little to find among the records
    # that are being merged, and looking for it would cost a fifth of the CPU.
    gc.collect()
    gc.freeze()
    gc.disable()
    manager()
