"""How soon credentials that a cluster refused are tried again. Runs wherever a socket is opened.

A password that is tried several times a second locks its account. So after a refusal the whole
cluster is left alone for a while, by all clients of this process and of those that were forked from
it: Spark's workers share this memory. Credentials that have changed since are tried at once.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import time
from hashlib import blake2b

from heliograph.wire.errors import CredentialsRefused

__all__ = ["FIRST_SECONDS", "MOST_SECONDS", "forget", "refuse_early", "refused"]

FIRST_SECONDS, MOST_SECONDS = 2.0, 60.0
#: Cluster, credentials, refusals in a row, time of the next try, length of the reason.
_SLOT = struct.Struct("=QQidH")
_SLOT_BYTES, _SLOTS = 1024, 64
_TEXT_BYTES = _SLOT_BYTES - _SLOT.size
#: Anonymous and shared: on no disk, and the same for all that are forked later.
_memory = mmap.mmap(-1, _SLOT_BYTES * _SLOTS)
#: Credentials are compared by a digest that means nothing outside these processes.
_KEY = secrets.token_bytes(16)


def refuse_early(cluster: str, credentials: object) -> None:
    """Raises CredentialsRefused if it is too early to try these credentials again."""
    found = _find(cluster)
    if found is None:
        return
    at, (_, known, count, again_at, length) = found
    if known != _digest(credentials):
        return
    left = again_at - time.time()
    if 0 < left <= MOST_SECONDS:
        text = _memory[at + _SLOT.size : at + _SLOT.size + length].decode("utf-8", "ignore")
        raise CredentialsRefused(f"{text}; tried again in {left:.0f} s, or when they change")
    # Whoever comes next waits for the outcome of this try.
    _write(at, cluster, known, count, time.time() + _pause(count), None)


def refused(cluster: str, credentials: object, why: str) -> None:
    """A broker of the cluster has refused these credentials."""
    found = _find(cluster)
    digest = _digest(credentials)
    at = found[0] if found else _free(cluster)
    count = found[1][2] + 1 if found and found[1][1] == digest else 1
    text = why.encode()[:_TEXT_BYTES]
    _write(at, cluster, digest, count, time.time() + _pause(count), text)


def forget(cluster: str) -> None:
    """The cluster has accepted us."""
    found = _find(cluster)
    if found is not None:
        _memory[found[0] : found[0] + 8] = bytes(8)


def _pause(count: int) -> float:
    return min(FIRST_SECONDS * (1 << min(max(count - 1, 0), 10)), MOST_SECONDS)


def _digest(value: object) -> int:
    made = blake2b(repr(value).encode(), digest_size=8, key=_KEY).digest()
    return int.from_bytes(made, "big") or 1


def _find(cluster: str) -> tuple[int, tuple[int, int, int, float, int]] | None:
    wanted = _digest(cluster)
    for at in range(0, len(_memory), _SLOT_BYTES):
        slot = _SLOT.unpack_from(_memory, at)
        if slot[0] == wanted:
            return at, slot
    return None


def _free(cluster: str) -> int:
    """A slot that nobody uses; if all are in use, one that is as good as any other."""
    for at in range(0, len(_memory), _SLOT_BYTES):
        if not _SLOT.unpack_from(_memory, at)[0]:
            return at
    return _digest(cluster) % _SLOTS * _SLOT_BYTES


def _write(
    at: int, cluster: str, credentials: int, count: int, again_at: float, text: bytes | None
) -> None:
    length = _SLOT.unpack_from(_memory, at)[4] if text is None else len(text)
    _SLOT.pack_into(_memory, at, _digest(cluster), credentials, count, again_at, length)
    if text is not None:
        _memory[at + _SLOT.size : at + _SLOT.size + length] = text
