"""``python -m heliograph``."""

import sys

if not sys.flags.safe_path:
    # Python puts the working directory first: whoever can write there could have us import it.
    del sys.path[0]

from heliograph.cli import main

main()
