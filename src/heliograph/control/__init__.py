"""What keeps the copies usable beside the data path. Runs in the driver, in jobs of their own."""
