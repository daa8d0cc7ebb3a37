"""Consumer groups of a flow: translated offsets, checkpoints, offset sync. Runs in the driver."""
