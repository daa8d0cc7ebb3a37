"""Who mirrors a flow: its signature and its claims, read from the ledger topic. In the driver.

This is the one view in the driver that has a follower and a client of its own, besides the
`FlowLedger` that everything else shares. An owner must have read the claims within
`CONFIDENT_SECONDS`. With a shared follower it would wait for the first reading of a large ledger,
which takes minutes, or for the retries of another reader whose request got lost. It folds claims
and the signature only, so that its own first reading unpacks no runs and keeps none in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from urllib.parse import quote

from heliograph.claims.log import KIND, Claim, ClaimLog, claim_key, decode_claim, encode_claim
from heliograph.ledger.codec import Signature, decode
from heliograph.ledger.follower import LedgerFollower, View
from heliograph.ledger.topic_log import Pair
from heliograph.wire.cluster import ClusterClient

_CLAIM = f"{KIND}/".encode()
_SIGNATURE = b"signature/"


class _AnyClaims(View):
    """The claims of a pair of clusters, whatever their scope."""

    def __init__(self) -> None:
        self.claims = ClaimLog()

    def forget(self) -> None:
        """Begin again."""
        self.claims = ClaimLog()

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if key.startswith(_CLAIM):
            claim_id = key.removeprefix(_CLAIM).decode()
            claim = decode_claim(claim_id, value) if value is not None else None
            self.claims.apply(offset, claim_id, claim)


def longest_lease(client: ClusterClient, topic: str) -> float:
    """How long leases of mirrors that have claims in a ledger last at most; 0: there are none.

    Reads all of it. Raises WireError.
    """
    follower, found = LedgerFollower(client, topic), _AnyClaims()
    follower.attach(found)
    follower.refresh()
    return max((s.claim.lease_seconds for s in found.claims.standing.values()), default=0.0)


class Registry(View):
    """The signature and the claims of a flow, and appending claims. One thread at a time.

    Flows with different topics may share a ledger: each has a *scope* of its own, and sees only the
    claims of that.

    Attributes:
        claims: replaced as a whole if the topic loses records.
        signature: the first one in the topic counts, for everybody.
    """

    def __init__(self, follower: LedgerFollower, scope: str = "") -> None:
        #: Ids of claims begin with it; those of a flow without a name have no slash.
        self._scope = f"{quote(scope, safe='')}/" if scope else ""
        self._follower = follower
        self.claims = ClaimLog()
        self.signature: Signature | None = None
        follower.attach(self)

    def forget(self) -> None:
        """Begin again."""
        self.claims = ClaimLog()
        self.signature = None

    def take(self, offset: int, key: bytes, value: bytes | None) -> None:
        """One record of the topic."""
        if key.startswith(_CLAIM):
            claim_id = key.removeprefix(_CLAIM).decode()
            scope, slash, _ = claim_id.rpartition("/")
            if scope + slash == self._scope:
                claim = decode_claim(claim_id, value) if value is not None else None
                self.claims.apply(offset, claim_id, claim)
        elif key.startswith(_SIGNATURE) and value is not None and self.signature is None:
            fact = decode(key, value)
            self.signature = fact if isinstance(fact, Signature) else None

    def new_id(self) -> str:
        """An id for a claim of this scope."""
        return self._scope + uuid.uuid4().hex

    def refresh(self) -> None:
        """Read to the end of the topic."""
        self._follower.refresh()

    def tell(self, claims: Iterable[Claim], ended: Iterable[str] = ()) -> None:
        """Append claims, then the ends of claims, in one batch."""
        pairs: list[Pair] = [encode_claim(claim) for claim in claims]
        pairs += [(claim_key(claim_id), None) for claim_id in ended]
        self._follower.append(pairs)
