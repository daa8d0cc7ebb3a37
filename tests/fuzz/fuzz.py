"""Runs atheris over the decoders: ``python tests/fuzz/fuzz.py RUNS [DECODER ...]``.

Prints executions per decoder. An input that raises what nobody expects ends it with that input.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import atheris

_FED = ["heliograph.batch", "heliograph.connect", "heliograph.wire"]
with atheris.instrument_imports(include=_FED):
    import targets

_MEMORY_BYTES = 4 << 30


def main() -> None:
    logging.disable()  # what is skipped with a line is no finding
    runs, *chosen = sys.argv[1:]
    names = chosen or list(targets.TARGETS)
    counts: Counter[str] = Counter()
    # A decoder that asks for gigabytes is a finding, too.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    left = int(runs)

    def one(data: bytes) -> None:
        nonlocal left
        if not data:
            return
        index, content = data[0] % len(names), data[1:]
        counts[names[index]] += 1
        left -= 1
        try:
            targets.TARGETS[names[index]](content)
        except targets.expected(names[index]):
            pass
        if left <= 0:
            for name in names:
                print(f"{name}: {counts[name]} executions")
            sys.stdout.flush()
            # atheris has no other end.
            shutil.rmtree(corpus)
            os._exit(0)

    corpus = Path(tempfile.mkdtemp(prefix="heliograph-fuzz-"))
    for number, name in enumerate(names):
        for index, seed in enumerate(targets.seeds(name)):
            (corpus / f"{number}-{index}").write_bytes(bytes([number]) + seed)
    options = ["-seed=1", "-max_len=4096", "-verbosity=0", f"-artifact_prefix={corpus}/"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
