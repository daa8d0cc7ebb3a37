"""Heliograph mirrors Apache Kafka clusters: MirrorMaker 2's contract, exactly once, on Spark.

`heliograph.Mirror` runs a mirror inside another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph.embedded import Mirror

__all__ = ["Mirror", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what a program asks for, and not before: executors import this package, too."""
    if name == "Mirror":
        from heliograph.embedded import Mirror  # noqa: PLC0415 - see above

        return Mirror
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
