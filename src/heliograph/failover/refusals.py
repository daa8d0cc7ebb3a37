"""Why a handover is not begun, or not gone on with: nothing was changed, or it was undone."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.errors import HeliographError

__all__ = ["HandoverFailed", "HandoverRefused", "raise_refused"]


class HandoverRefused(HeliographError):
    """It must not be done as things are. Nothing was changed.

    Attributes:
        others: what else speaks against it; they are shown with this one.
    """

    exit_code = 1
    others: tuple[HandoverRefused, ...] = ()

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(str, self.others)])


class HandoverFailed(HeliographError):
    """It was begun and could not be ended. The message says how things stand now."""

    exit_code = 1


def raise_refused(refusals: Sequence[HandoverRefused]) -> None:
    """Raise the first one with all others, if there is any: nobody should be refused in turns."""
    if refusals:
        first, *others = refusals
        refused = HandoverRefused(first.code, str(first.args[0]), first.hint)
        refused.others = tuple(others)
        raise refused
