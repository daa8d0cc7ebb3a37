"""What an executor does with a lease: resume, compare-and-append, copy. Knows no Spark."""
