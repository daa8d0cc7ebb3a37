"""Record batches: the 61-byte header, stamping without decoding, and the lanes around it."""
