"""Heliograph beside the real MirrorMaker 2: ``python -m benchmarks``, see README.md."""
