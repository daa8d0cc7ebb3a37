"""What other programs need of a mirror: sync, small, without Spark."""
