"""Why a handover is not begun, or not gone on with: nothing was changed, or it was undone."""

from __future__ import annotations

from heliograph.errors import HeliographError

__all__ = ["HandoverFailed", "HandoverRefused"]


class HandoverRefused(HeliographError):
    """It must not be done as things are. Nothing was changed."""

    exit_code = 1


class HandoverFailed(HeliographError):
    """It was begun and could not be ended. The message says how things stand now."""

    exit_code = 1
