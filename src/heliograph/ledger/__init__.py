"""The ledger: which source record is where on the target, exactly; and MM2's own record formats."""
