"""Topics of a flow: creation, growth, configs, deletion. Runs in the driver."""
