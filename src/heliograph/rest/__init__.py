"""HTTP: Connect's REST API and our own routes. Runs in the driver."""
