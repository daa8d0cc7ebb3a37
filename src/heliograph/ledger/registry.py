"""Who mirrors a flow: its signature and its claims, read from the ledger topic without its runs."""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.ledger.claims import KIND, Claim, ClaimLog, claim_key, decode_claim, encode_claim
from heliograph.ledger.store import LedgerStore, Pair
from heliograph.wire.cluster import ClusterClient

_CLAIM = f"{KIND}/".encode()
_SIGNATURE = b"signature/"


class Registry(LedgerStore):
    """Follows the ledger topic for its signature and claims, and appends both.

    Used by the driver, in one thread at a time. It leaves runs out, because it is read when a
    mirror starts, where those that nobody asks for would cost time and memory.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self.claims = ClaimLog()

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        if key.startswith(_CLAIM):
            claim_id = key.removeprefix(_CLAIM).decode()
            claim = decode_claim(claim_id, value) if value is not None else None
            self.claims.apply(offset, claim_id, claim)
            return True
        return key.startswith(_SIGNATURE) and super()._take(offset, key, value)

    def tell(self, claims: Iterable[Claim], ended: Iterable[str] = ()) -> None:
        """Append claims, then the ends of claims, in one batch."""
        pairs: list[Pair] = [encode_claim(claim) for claim in claims]
        pairs += [(claim_key(claim_id), None) for claim_id in ended]
        self._append_all(pairs)
