"""Whether consumers of a group could go on at the target now. Runs in the driver.

Judged from what the jobs have seen anyway: one look at the group on the source, and how it stands
on the target. Only what is known to skip no record is ready.
"""

from __future__ import annotations

from heliograph.control.groups.offset_sync import GroupStanding, held
from heliograph.control.groups.translated import TranslatedGroup, unsupported
from heliograph.model import Flow
from heliograph.wire.errors import error_name

__all__ = ["readiness"]


def readiness(
    flow: Flow, group: TranslatedGroup, standing: GroupStanding | None, *, synced: bool
) -> tuple[bool | None, str]:
    """(whether it is ready, None if that is not known; why not, or what to know before it moves).

    Args:
        flow: from where to where.
        group: on the source.
        standing: after the last sync, with what it wrote; None if it has nothing to write.
        synced: whether offsets are committed on the target at all.
    """
    if group.error:
        return (False if unsupported(group.listed) else None), group.error
    if not group.offsets and not group.untranslated:
        return None, group.summary()
    if group.untranslated:
        partition, why = min(group.untranslated.items())
        return False, f"{partition}: {why}{_more(len(group.untranslated))}"
    if not synced:
        return False, (
            f"its offsets are not committed on {flow.target} (sync.group.offsets.enabled=false):"
            " set them by its checkpoints before it starts there"
        )
    return _standing(flow, group, standing or GroupStanding(""))


def _standing(
    flow: Flow, group: TranslatedGroup, standing: GroupStanding
) -> tuple[bool | None, str]:
    if standing.reason:
        unknown = standing.state.lower() in {"", "unknown"}
        # An error before there was anything to write: nobody knows what is committed there.
        unknown = unknown or (standing.error is not None and not standing.writes)
        return (None if unknown else False), standing.reason
    if standing.ahead:
        partition, by = max(standing.ahead.items(), key=lambda item: item[1])
        return False, (
            f"{partition} is committed {by} ahead on {flow.target}: going on there skips what it"
            f" has not read on {flow.source}{_more(len(standing.ahead))}"
        )
    compared = standing.in_step + len(standing.writes) + len(standing.unclear)
    if standing.unclear:
        partition, code = min(standing.unclear.items())
        return None, f"{partition}: {error_name(code)}{_more(len(standing.unclear))}"
    if compared < len(group.offsets):
        return None, held(standing) if standing.held else "not all partitions could be compared"
    gone = {p: o.deleted for p, o in group.offsets.items() if o.deleted}
    if gone:
        partition, count = min(gone.items())
        return None, (
            f"{partition}: {flow.target} has deleted the {count} offset(s) from its place on;"
            f" {flow.source} may still have them{_more(len(gone))}"
        )
    said = []
    if group.behind:
        said.append(f"{group.behind} offset(s) that it has read are not mirrored yet: it will read"
                    " them again")  # fmt: skip
    if standing.held:
        said.append(held(standing))
    return True, "; ".join(said)


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
