"""Which worker runs which connector: evenly, and with as few moves as possible. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

__all__ = ["assign"]


def assign(
    connectors: Collection[str], owned: Mapping[str, Iterable[str]]
) -> dict[str, tuple[str, ...]]:
    """Share connectors among workers.

    No worker gets two more than another. A worker keeps what it has, unless it has too many: then
    it gives up what it was given last. The outcome depends on nothing but the arguments.

    Args:
        connectors: all that there are.
        owned: what each worker has now, by worker, in the order in which it was given. At least
            one worker.
    """
    workers = sorted(owned)
    free = set(connectors)
    kept: dict[str, list[str]] = {}
    for worker in workers:
        # In order, each once. A worker that was away takes back what others stood in for: what
        # they had before goes on undisturbed.
        kept[worker] = [c for c in dict.fromkeys(owned[worker]) if c in free]
        free -= set(kept[worker])
    least, over = divmod(len(connectors), len(workers))
    # Those that have most may have one more than the others.
    for worker in sorted(workers, key=lambda w: (-len(kept[w]), w)):
        most = least + (1 if over > 0 and len(kept[worker]) > least else 0)
        over -= most - least
        free |= set(kept[worker][most:])
        del kept[worker][most:]
    for connector in sorted(free):
        worker = min(workers, key=lambda w: (len(kept[w]), w))
        kept[worker].append(connector)
    return {worker: tuple(sorted(kept[worker])) for worker in workers}
