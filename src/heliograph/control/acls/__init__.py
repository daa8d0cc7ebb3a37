"""ACLs of a flow's remote topics. Runs in the driver."""
