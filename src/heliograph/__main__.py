"""``python -m heliograph``."""

from heliograph.cli import main

main()
