"""The mirror as a running thing: flows, rounds, the monitor. Runs in the driver."""
