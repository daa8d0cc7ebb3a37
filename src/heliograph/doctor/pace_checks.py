"""Judges whether a flow keeps up: with what is written, and with what the source deletes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.doctor.cluster_checks import reached
from heliograph.doctor.facts import Behind, FlowFacts, Sample, SourceLogs, TopicsFacts
from heliograph.doctor.findings import (
    Missing,
    Said,
    Scope,
    check,
    ok,
    problem,
    some,
    unchecked,
    warning,
)
from heliograph.model import TopicPartition
from heliograph.units import amount, counted, duration, latency

_SLOW_BYTES_PER_SECOND = 1e6
#: Smaller samples measure round trips.
_SAMPLE_BYTES = 1 << 20
#: Of what the source keeps: from here on it is told, and from there on it is late to act.
_SOON, _LATE = 0.5, 0.9


@check(
    "bandwidth", Scope.FLOW, "whether records can be fetched here as quickly as they are written"
)
def _bandwidth(facts: FlowFacts) -> Iterable[Said]:
    sample = facts.sample
    if isinstance(sample, Missing):
        return [unchecked(sample)]
    if sample is None:
        return [ok("there are no records to measure it with")]
    text = f"{amount(sample.bytes)}B of {sample.partition} in {latency(sample.seconds)}"
    rate = _measured(sample)
    if rate is None:
        return [ok(f"{text}: too few to measure it")]
    text += f": {amount(rate)}B a second, on one connection"
    written = _written(facts)
    if written is not None:
        text += f"; {amount(written)}B a second are written to its topics now"
    # Each broker is read from on a connection of its own.
    if written is not None and written > rate * _connections(facts):
        do = (
            "give the link more room, or mirror fewer topics: the lag grows as long as that much is"
            " written"
        )
        return [warning(text, do)]
    if rate < _SLOW_BYTES_PER_SECOND:
        do = "look for a narrow link, a quota of the source's brokers, or a slow disk there"
        return [warning(text, do)]
    return [ok(text)]


def _measured(sample: Sample | Missing | None) -> float | None:
    """Bytes a second on one connection; None if that was not, or too shortly, measured."""
    if sample is None or isinstance(sample, Missing):
        return None
    if sample.bytes < _SAMPLE_BYTES and sample.seconds < 1:
        return None
    return sample.bytes / max(sample.seconds, 1e-6)


def _written(facts: FlowFacts) -> float | None:
    """Bytes a second that producers write to the flow's topics; None if it is not told."""
    if isinstance(facts.logs, Missing) or not facts.logs.sizes:
        return None
    return sum(map(facts.logs.bytes_per_second, facts.logs.recent))


def _connections(facts: FlowFacts) -> int:
    return max(1, len(reached(facts.source)))


@check("lag", Scope.FLOW, "records that the source will delete before they are mirrored")
def _lag(facts: FlowFacts) -> Iterator[Said]:
    topics, ledger = facts.topics, facts.ledger
    if isinstance(topics, Missing) or isinstance(ledger, Missing):
        yield unchecked(topics if isinstance(topics, Missing) else "its ledger cannot be read")
        return
    found = []
    for p, behind in ledger.behind.items():
        found += [_by_age(topics, p, behind), _by_size(topics, facts.logs, p, behind)]
    late = [(used, text) for used, text in found if used > _SOON]
    records = sum(b.records for b in ledger.behind.values())
    if not late:
        yield ok(f"{amount(records)} records of {len(ledger.begun)} partitions wait")
        return
    names = [name for _, name in late]
    text = f"{some(names, 'partitions')}: what waits is nearly all that the source keeps"
    do = "raise retention.ms and retention.bytes now; then look why the mirror is behind"
    say = problem if max(used for used, _ in late) > _LATE else warning
    yield say(text, do, names)


def _by_age(topics: TopicsFacts, p: TopicPartition, behind: Behind) -> tuple[float, str]:
    """How much of the source's retention time the first record that waits has used."""
    keeps = _keeps_seconds(topics, p)
    if keeps is None or behind.age_seconds is None:
        return 0.0, ""
    return behind.age_seconds / keeps, f"{p} ({duration(behind.age_seconds)} of {duration(keeps)})"


def _by_size(
    topics: TopicsFacts, logs: SourceLogs | Missing, p: TopicPartition, behind: Behind
) -> tuple[float, str]:
    """How much of what the source keeps of a partition are the records that wait."""
    keeps = _keeps_bytes(topics, p)
    waits = None if isinstance(logs, Missing) else logs.bytes_of(p, behind.records)
    if keeps is None or waits is None:
        return 0.0, ""
    return waits / keeps, f"{p} ({amount(waits)}B of {amount(keeps)}B)"


def _keeps_seconds(topics: TopicsFacts, p: TopicPartition) -> float | None:
    """For how long the source keeps records; None for ever."""
    milliseconds = int(topics.source_configs.value(p.topic, "retention.ms", "-1"))
    return milliseconds / 1000 if milliseconds > 0 and _deletes(topics, p) else None


def _keeps_bytes(topics: TopicsFacts, p: TopicPartition) -> float | None:
    """How many bytes of a partition the source keeps; None if that has no limit."""
    size = int(topics.source_configs.value(p.topic, "retention.bytes", "-1"))
    return float(size) if size > 0 and _deletes(topics, p) else None


def _deletes(topics: TopicsFacts, p: TopicPartition) -> bool:
    return "delete" in topics.source_configs.value(p.topic, "cleanup.policy", "delete")


@check("first-copy", Scope.FLOW, "records that the source will delete before a partition is begun")
def _first_copy(facts: FlowFacts) -> Iterator[Said]:
    topics, ledger, logs = facts.topics, facts.ledger, facts.logs
    if isinstance(topics, Missing) or isinstance(ledger, Missing) or isinstance(logs, Missing):
        yield unchecked("its topics, their logs or its ledger cannot be read")
        return
    if facts.config.auto_offset_reset != "earliest":
        yield ok(
            f"nothing is copied of the past: auto.offset.reset={facts.config.auto_offset_reset}"
        )
        return
    unbegun = ledger.unbegun
    due = [
        text for p, behind in unbegun.items()
        # Whose log begins at 0 lost nothing yet. What was deleted before the first start of a
        # mirror is no news: only if it runs, and others are begun, something is wrong there.
        if ledger.begun or logs.starts.get(p, 0) == 0
        for used, text in [_by_age(topics, p, behind)] if used > _LATE
    ]  # fmt: skip
    if due:
        yield warning(
            f"{some(due, 'partitions')}: not begun, and the source deletes the first records soon",
            "start the mirror before, or raise retention.ms until it is in step",
            due,
        )
    size = sum(logs.bytes_of(p, behind.records) or 0.0 for p, behind in unbegun.items())
    rate = _measured(facts.sample)
    if not size or rate is None:
        if not due:
            yield ok(f"{counted(len(unbegun), 'partition')} to begin")
        return
    takes = size / (rate * _connections(facts))
    slow = sorted({p.topic for p in unbegun if takes > _SOON * _gone_in(topics, logs, p)})
    text = f"{amount(size)}B of {counted(len(unbegun), 'partition')} take {duration(takes)}"
    if slow:
        yield warning(
            f"{some(slow, 'topics')}: the source deletes records during the first copy: {text} at"
            " the measured speed",
            "raise retention.ms and retention.bytes there until the mirror is in step",
            slow,
        )
    elif not due:
        yield ok(f"{text} at the measured speed")


def _gone_in(topics: TopicsFacts, logs: SourceLogs, p: TopicPartition) -> float:
    """After how many seconds the source has deleted what is in a partition now."""
    size, written = _keeps_bytes(topics, p), logs.bytes_per_second(p)
    ages = [_keeps_seconds(topics, p), size / written if size is not None and written else None]
    return min((age for age in ages if age is not None), default=float("inf"))
