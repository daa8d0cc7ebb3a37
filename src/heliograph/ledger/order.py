"""The one order in which target logs and the ledger may be read. Any process.

A run is announced in the ledger before its first batch is written. So if a log is looked at first
and the ledger is read to its end second, every record that was seen has its run:

    writer:   run R announced ---- first batch of R written
    reader:                                 log looked at ---- ledger read: R is there

The other way round, a run that is announced and begun in between would be missed, and what lies
behind its gap would be taken for what lies before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from heliograph.ledger.store import LedgerStore

__all__ = ["logs_before_ledger"]


@contextmanager
def logs_before_ledger(ledger: LedgerStore) -> Iterator[None]:
    """Ask for ends and sequences of target logs in here; the ledger is read when that is done."""
    yield
    ledger.refresh()
