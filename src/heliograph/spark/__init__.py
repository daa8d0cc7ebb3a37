"""What Spark does: the session, and rounds of leases. Only importer of pyspark."""
