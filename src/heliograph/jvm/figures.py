"""What a Java process says of itself in the file that it keeps for ``jstat``. Any process.

Java maps the file ``/tmp/hsperfdata_<user>/<pid>`` and counts in it, so reading it costs the Java
process nothing. Java removes it when it ends. With ``-XX:-UsePerfData`` there is none.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JvmFigures", "jvm_figures", "parse_figures"]

_MAGIC = b"\xca\xfe\xc0\xc0"
_PROLOGUE, _ENTRY = 32, 20
_MOST_BYTES = 1 << 20
#: Java uses /tmp on Linux whatever TMPDIR says, and TMPDIR on macOS.
_FOLDERS = ("/tmp", tempfile.gettempdir())  # noqa: S108 - only files of this user are read


@dataclass(frozen=True, slots=True)
class JvmFigures:
    """Attributes: ``collections`` are (number, seconds) by the name of the collector."""

    heap_bytes: int
    metaspace_bytes: int
    threads: int
    collections: Mapping[str, tuple[int, float]]


def jvm_figures(pid: int) -> JvmFigures | None:
    """Of the Java process with that id; None if it does not say."""
    for folder in dict.fromkeys(_FOLDERS):
        for path in Path(folder).glob(f"hsperfdata_*/{pid}"):
            with suppress(OSError, ValueError):
                if path.stat().st_uid == os.getuid():
                    with path.open("rb") as file:
                        return parse_figures(file.read(_MOST_BYTES))
    return None


def parse_figures(data: bytes) -> JvmFigures:
    """From the contents of such a file; raises ValueError for anything else."""
    try:
        values = _values(data)
        ticks = int(values["sun.os.hrt.frequency"])
        return JvmFigures(
            sum(int(v) for k, v in values.items()
                if k.startswith("sun.gc.generation.") and ".space." in k and k.endswith(".used")),
            int(values.get("sun.gc.metaspace.used", 0)),
            int(values["java.threads.live"]),
            {str(values[f"{k}.name"]): (int(values[f"{k}.invocations"]),
                                        int(values[f"{k}.time"]) / ticks)
             for k in (f"sun.gc.collector.{n}" for n in range(8)) if f"{k}.name" in values},
        )  # fmt: skip
    except (KeyError, struct.error, ZeroDivisionError) as error:
        raise ValueError(f"not Java's performance data: {error!r}") from error


def _values(data: bytes) -> dict[str, int | str]:
    """Every number and text in the file, by name."""
    if data[:4] != _MAGIC or len(data) < _PROLOGUE:
        raise ValueError("not Java's performance data")
    order = "<" if data[4] else ">"
    at, number = struct.unpack_from(f"{order}ii", data, 24)
    found: dict[str, int | str] = {}
    for _ in range(number):
        length, name_at, items = struct.unpack_from(f"{order}iii", data, at)
        kind, value_at = data[at + 12 : at + 13], struct.unpack_from(f"{order}i", data, at + 16)[0]
        if length < _ENTRY:
            raise ValueError("an entry without a length")
        name_end = data.find(b"\0", at + name_at)
        name = data[at + name_at : name_end].decode("ascii", "replace")
        if kind == b"J" and not items:
            found[name] = struct.unpack_from(f"{order}q", data, at + value_at)[0]
        elif kind == b"B":
            text = data[at + value_at : at + value_at + items]
            found[name] = text.partition(b"\0")[0].decode("utf-8", "replace")
        at += length
    return found
