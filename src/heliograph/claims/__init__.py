"""Which of several mirrors runs a flow: claims in the ledger topic, and who may remove whom."""
