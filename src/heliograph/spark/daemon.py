"""The parent of Spark's Python workers. Runs once per executor.

Spark forks a worker from this process whenever it needs one. What is imported here is shared by all
of them: a worker is ready at once, and its memory is mostly its siblings'.
"""

import gc

import pandas  # noqa: F401 - pyspark's worker imports it for every Arrow task
import pyarrow  # noqa: F401 - imported for the workers
import pyspark.sql.conversion
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401 - imported for the workers
from pyspark.daemon import manager

import heliograph.copy.loop  # noqa: F401 - imported for the workers

if __name__ == "__main__":
    # Workers collect garbage after every task. Frozen objects are left out of that: it is quick,
    # and the pages they live on stay shared.
    gc.collect()
    gc.freeze()
    manager()
