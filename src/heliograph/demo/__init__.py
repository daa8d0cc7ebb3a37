"""``heliograph demo``: two real clusters, a mirror killed in mid-copy, and the proof."""
