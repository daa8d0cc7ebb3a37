"""What becomes of a partition whose batch the target refused. In executors.

Four ways: another writer was first, and the partition is resumed at once; the reason passes, and it
is resumed after a pause; the records are read again, to be split or set aside; or it fails, with
what an operator can do.
"""

from __future__ import annotations

from heliograph.copy.lease_state import LeaseState
from heliograph.copy.partition import Outgoing, PartitionCopy
from heliograph.errors import PartitionError
from heliograph.model import FlowContext
from heliograph.shown import shown
from heliograph.wire.errors import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    error_name,
    is_retriable,
)
from heliograph.wire.produce import Produced
from heliograph.wire.rights import denied, missing_right

#: A broker's word for: not the next sequence, or of an era that is over.
_ANOTHER_FIRST = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH})


def refuse_batch(state: LeaseState, p: PartitionCopy, outgoing: Outgoing, answer: Produced) -> None:
    """The target refused a batch that was in flight: decide what becomes of its partition."""
    name = error_name(answer.error)
    p.holed = None if answer.error in _ANOTHER_FIRST else outgoing
    if answer.error in _ANOTHER_FIRST:
        # The usual end of a race, and no reason to wait; but a second one in a row is.
        state.disturb(p, f"another writer was first: {name}", pause=p.attempts > 0)
        p.attempts += 1
    elif answer.error == CORRUPT_MESSAGE:
        # The records of large batches are not read here: look closer when reading them again,
        # so that damage on the source is told from damage on the way.
        p.rules = p.rules._replace(suspicious=True)
        state.disturb(p, f"{p.target} refused a batch: {name}")
    elif is_retriable(answer.error):
        state.disturb(p, _hindrance(p, state.context, answer.error))
    else:
        _refuse_records(state, p, outgoing, answer)


def _refuse_records(
    state: LeaseState, p: PartitionCopy, outgoing: Outgoing, answer: Produced
) -> None:
    """The target does not want these records, whatever is done: find out which, then policy."""
    name = error_name(answer.error)
    if answer.error == MESSAGE_TOO_LARGE and not answer.records:
        # Read it again, and split it, if the topic takes less than we thought.
        p.too_large = _refusal(p, state.context, outgoing, answer)
        state.disturb(p, f"{p.target} refused a batch: {name}", pause=False)
        return
    if answer.records and state.context.quarantine_topic is not None:
        offsets = outgoing.offsets()
        refused = {offsets[i]: f"{name}: {why}" for i, why in answer.records.items()}
        p.rules = p.rules._replace(refused={**p.rules.refused, **refused})
        state.disturb(p, f"{p.target} refused {len(refused)} records", pause=False)
        return
    state.fail(p, _refusal(p, state.context, outgoing, answer))


def _hindrance(p: PartitionCopy, context: FlowContext, error: int) -> str:
    """Why a partition cannot be written at the moment, and what to do if that does not pass."""
    name, where = error_name(error), f"{p.target} on {context.flow.target}"
    if error in {NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND}:
        return (
            f"{where} has fewer replicas in sync than its min.insync.replicas: {name}; copying goes"
            f" on when its brokers are back, or min.insync.replicas of the topic is lowered"
        )
    if error == KAFKA_STORAGE_ERROR:
        return (
            f"broker {p.target_leader} cannot write {where} to its disk (is it full?): {name};"
            " copying goes on when there is room, or another broker leads the partition"
        )
    return f"writing {where}: {name}"


def _refusal(
    p: PartitionCopy, context: FlowContext, outgoing: Outgoing, answer: Produced
) -> PartitionError:
    """What to tell about records that the target does not take."""
    if denied(answer.error):
        return PartitionError(
            "target.refused",
            f"{p.target} cannot be written on {context.flow.target}: {error_name(answer.error)}",
            missing_right(context.target, "Write", "topic", p.target.topic),
        )
    offsets = outgoing.offsets()
    named = [f"source offset {offsets[i]} ({why})" for i, why in list(answer.records.items())[:3]]
    more = f" and {len(answer.records) - 3} more" if len(answer.records) > 3 else ""
    which = ", ".join(named) + more
    if not named:
        which = f"source offsets {outgoing.first_source} to {outgoing.last_source}"
        which += f" ({shown(answer.message)})" if answer.message else ""
    return PartitionError(
        "target.refused",
        f"{p.target} on {context.flow.target} refuses records of {p.source}:"
        f" {error_name(answer.error)}: {which}",
        "compare the topic's configs on both sides (max.message.bytes, cleanup.policy,"
        " message.timestamp.*), or set heliograph.on.refused=quarantine to set such records aside",
    )
