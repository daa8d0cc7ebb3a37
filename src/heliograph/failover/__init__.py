"""The bad day: failover, switchover, failback and drill of a flow.

Runs in commands, and in the driver for a REST API that was asked to. All of it works from the
target and this machine alone where the source may be gone. What was done is in the flow's ledger
(`heliograph.ledger.handovers`, `heliograph.ledger.holds`), so a command that was killed is
repeated, and goes on.
"""
