"""Whether a target holds what its source holds: comparing, and what executors do for it.

Knows no Spark.
"""
