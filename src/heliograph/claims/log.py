"""Claims: which mirrors of a flow are there, and whose turn is it? Pure values.

    claim/<id> -> JSON: the process, for people and for `Process`; nothing: the claim has ended

A mirror announces itself in the ledger before it reads it, so that all mirrors see the same claims
in the same order. The oldest one that stands owns the flow. Whoever stands may remove another's
claim; who may do so, and when, is `heliograph.claims.ownership`'s matter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

KIND = "claim"


class Process(NamedTuple):
    """A process, told from every other one as far as the system lets us.

    ``boot`` names the host's current boot and ``namespace`` the container's process numbers; both
    are empty where unknown. ``started`` is in the kernel's own ticks after that boot.
    """

    host: str
    pid: int
    boot: str = ""
    namespace: str = ""
    started: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a mirror says of itself.

    Attributes:
        id: of this claim; a mirror that lost its claim makes another one.
        process: the driver.
        since_ms: when it was made, by its host's clock: for people, never compared.
        lease_seconds: how long its leases last at most.
        first: offset of the claim's first record, repeated because compaction removes that one;
            -1 in the first record itself.
        established: it has begun to hand out leases, so all before it have ended.
        left: the last record of a mirror that stopped in order.
        rest: addresses of its REST API, for commands that look for it; empty if it has none.
    """

    id: str
    process: Process
    since_ms: int
    lease_seconds: float
    first: int = -1
    established: bool = False
    left: bool = False
    rest: tuple[str, ...] = ()


class Standing(NamedTuple):
    """A claim that has not ended: the offsets of its first and its latest record."""

    claim: Claim
    first: int
    latest: int


class ClaimLog:
    """The claims of a flow, folded from the ledger's records in their order.

    A function of the log alone: whoever has read as far sees the same claims. An end is final;
    what a mirror writes under its claim after that, because it does not know yet, counts nothing.
    """

    def __init__(self) -> None:
        self.standing: dict[str, Standing] = {}
        self.ended: set[str] = set()
        #: Claims that were removed while they stood, by the offset of that: by others, since a
        #: mirror that stops in order says so first.
        self.removed: dict[str, int] = {}

    def apply(self, offset: int, claim_id: str, claim: Claim | None) -> None:
        """Take in the next record about a claim."""
        if claim_id in self.ended:
            return
        known = self.standing.get(claim_id)
        if claim is None or claim.left:
            self.ended.add(claim_id)
            if known is not None:
                del self.standing[claim_id]
                if claim is None:
                    self.removed[claim_id] = offset
            return
        told = claim.first if claim.first >= 0 else offset
        first = min(known.first, told) if known is not None else told
        self.standing[claim_id] = Standing(claim, first, offset)

    @property
    def owner(self) -> Standing | None:
        """The oldest claim that stands."""
        return min(self.standing.values(), key=lambda s: s.first, default=None)


def encode_claim(claim: Claim) -> tuple[bytes, bytes]:
    """(key, value) of a claim's record."""
    process = claim.process
    value = {
        "host": process.host, "pid": process.pid, "boot": process.boot,
        "pid.namespace": process.namespace, "started": process.started, "since": claim.since_ms,
        "lease.seconds": claim.lease_seconds, "first": claim.first,
        "established": claim.established, "left": claim.left, "rest": list(claim.rest),
    }  # fmt: skip
    return claim_key(claim.id), json.dumps(value).encode()


def claim_key(claim_id: str) -> bytes:
    """The key of a claim's records; one without a value ends the claim."""
    return f"{KIND}/{claim_id}".encode()


def decode_claim(claim_id: str, value: bytes) -> Claim:
    """Inverse of `encode_claim`; what another version leaves out is unknown, not an error."""
    content = json.loads(value)
    process = Process(
        content.get("host", "unknown"), content.get("pid", 0), content.get("boot", ""),
        content.get("pid.namespace", ""), content.get("started", 0),
    )  # fmt: skip
    return Claim(
        claim_id, process, content.get("since", 0), content.get("lease.seconds", 0.0),
        content.get("first", -1), content.get("established", False), content.get("left", False),
        tuple(content.get("rest", ())),
    )  # fmt: skip
