"""Lost, repeated, out of order, aborted but visible, wrongly translated: a checker as Jepsen's.

The model is the source's own log as a read_committed consumer sees it: what Kafka made of records
whose producer never learnt their fate is the source's business, and the mirror's copy is compared
with that. Acknowledged records are compared with the source separately, so that a loss there is not
taken for one of a mirror's. Records that a mirror names as repeated, by target offsets, are counted
apart, and so are those that the fault kit itself wrote to the target.

Every record says in 16 bytes which stream it belongs to, whether its transaction was to abort, and
its number, which is unique in its partition and grows. So tens of millions are checked with a byte
per number and log, in numpy, while everything runs.
"""

import time
from array import array
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

RECORD = np.dtype([("stream", "<u4"), ("flags", "<u4"), ("number", "<u8")])
ABORTED = 1
#: The stream of records that the fault kit writes to the target itself.
FOREIGN = 0xFFFFFFFF
#: Offsets of every record whose number is a multiple of this are kept, to check translation by.
SAMPLE_EVERY = 2048
_CONSUME_RECORDS = 20_000


def encode(stream, number, *, aborted=False):
    """The value of one record."""
    return np.array((stream, ABORTED if aborted else 0, number), RECORD).tobytes()


class Log:
    """One partition of one cluster as it is read, in order: how often each number was there."""

    def __init__(self):
        self.counts = np.zeros(1024, np.uint8)
        self.records = self.distinct = 0
        self.highest = -1
        self.reordered = 0
        self.flagged = set()  # numbers that say of themselves that they were aborted
        self.offsets = {}  # of sampled numbers, where they were first
        self.first_at = np.full(1024, -1, np.int64)  # where each number was first
        self.again = array("q")  # offsets of records that were there before
        self.before = array("q")  # where those had been first
        self.late = array("q")  # offsets of records that were out of order
        self.foreign = array("q")
        self.examples = []

    def take(self, numbers, offset_of=None):
        """The next numbers (int64), ``offset_of(i)`` being the offset of the i-th."""
        if not len(numbers):
            return
        self._grow(int(numbers.max()) + 1)
        before = np.maximum.accumulate(np.concatenate(([self.highest], numbers)))[:-1]
        if offset_of is not None:
            offsets = np.array([offset_of(i) for i in range(len(numbers))], np.int64)
            known = self.first_at[numbers]
            # Backwards: of several in here, the first one is written last.
            self.first_at[numbers[::-1]] = np.where(known < 0, offsets, known)[::-1]
        if (numbers > before).all():
            first = np.ones(len(numbers), bool)
        else:
            first = np.zeros(len(numbers), bool)
            first[np.unique(numbers, return_index=True)[1]] = True
            first &= self.counts[numbers] == 0
            late = first & (numbers < before)
            self.reordered += int(late.sum())
            self._example("out of order", numbers[late])
            if offset_of is not None:
                self.again.extend(offsets[~first].tolist())
                self.before.extend(self.first_at[numbers[~first]].tolist())
                self.late.extend(offsets[late].tolist())
        self._count(numbers)
        self.records += len(numbers)
        self.distinct += int(first.sum())
        self.highest = max(self.highest, int(numbers.max()))
        if offset_of is not None:
            for i in np.flatnonzero(first & (numbers % SAMPLE_EVERY == 0)):
                self.offsets[int(numbers[i])] = offset_of(int(i))

    def _count(self, numbers):
        # A byte is enough: whoever has a record 255 times has made his point.
        if len(numbers) == 1 or (np.diff(numbers) > 0).all():
            once, times = numbers, 1
        else:
            once, times = np.unique(numbers, return_counts=True)
        self.counts[once] = np.minimum(self.counts[once].astype(np.int64) + times, 255)

    def _grow(self, size):
        if size > len(self.counts):
            grown = np.zeros(max(size, 2 * len(self.counts)), np.uint8)
            grown[: len(self.counts)] = self.counts
            self.counts = grown
            places = np.full(len(grown), -1, np.int64)
            places[: len(self.first_at)] = self.first_at
            self.first_at = places

    def _example(self, what, numbers):
        if len(numbers) and len(self.examples) < 5:
            self.examples.append(f"{what}: {_ranges(numbers)}")


@dataclass
class Verdict:
    """What a target's log is, beside its source's.

    ``lost`` are records that are missing before others that are there: nobody will bring them any
    more. ``behind`` are those at the end: not there yet, or never, if the mirror has given up.
    ``named`` are records repeated or out of order where the mirror says that they are; those are
    in no other figure.
    """

    checked: int = 0
    lost: int = 0
    behind: int = 0
    repeated: int = 0
    reordered: int = 0
    named: int = 0
    aborted_visible: int = 0
    foreign: int = 0
    mistranslated: int = 0
    translated: int = 0
    examples: list = field(default_factory=list)

    @property
    def exact(self):
        return not (
            self.lost or self.behind or self.repeated or self.reordered or self.aborted_visible
            or self.foreign or self.mistranslated
        )  # fmt: skip

    def add(self, other):
        for name in (
            "checked", "lost", "behind", "repeated", "reordered", "named", "aborted_visible",
            "foreign", "mistranslated", "translated",
        ):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples += other.examples


def compare(source, target, where="", named=()):
    """The verdict on one partition: ``target`` is to be ``source``, number by number.

    But for the target offsets ``named``, (first, until) each: records there may be there twice. A
    write that comes late may be before or behind the other copy; an event names one of the two.
    """
    size = max(len(source.counts), len(target.counts))
    here, there = (
        np.pad(log.counts, (0, size - len(log.counts))).astype(np.int64) for log in (source, target)
    )
    missing = np.maximum(here - there, 0)
    reached = target.highest + 1
    known = here > 0
    stray = np.flatnonzero((there > 0) & ~known)
    visible = [n for n in stray.tolist() if n in target.flagged]
    repeated = int(np.maximum(there - here, 0)[known].sum())
    copies = _inside(target.again, named) | _inside(target.before, named)
    told = min(repeated, int(copies.sum())), int(_inside(target.late, named).sum())
    verdict = Verdict(
        checked=int(here.sum()),
        lost=int(missing[:reached].sum()),
        behind=int(missing[reached:].sum()),
        repeated=repeated - told[0],
        reordered=target.reordered - told[1],
        named=sum(told),
        aborted_visible=len(visible),
        foreign=len(stray) - len(visible),
    )
    unnamed = np.asarray(target.again, np.int64)[~copies] if verdict.repeated else ()
    for what, numbers in (
        ("lost", np.flatnonzero(missing[:reached])),
        ("not there", reached + np.flatnonzero(missing[reached:])),
        ("repeated", np.flatnonzero(known & (there > here)) if verdict.repeated else ()),
        ("repeated, at target offsets", unnamed),
        ("aborted but visible or never written", stray),
    ):
        if len(numbers):
            verdict.examples.append(f"{where} {what}: {_ranges(numbers)}")
    if verdict.reordered:
        verdict.examples += [f"{where} {e}" for e in target.examples]
    return verdict


def _inside(offsets, ranges):
    """Which offsets are in any of the ranges, (first, until) each."""
    found = np.asarray(offsets, np.int64)
    inside = np.zeros(len(found), bool)
    for first, until in ranges:
        inside |= (first <= found) & (found < until)
    return inside


def translations(samples, to_target, most=50):
    """(checked, wrong, examples): source offsets must lead to the very same record.

    Args:
        samples: (number, source offset, target offset) of records of one partition.
        to_target: takes a source offset and returns a target offset.
        most: about how many are looked at, evenly spread.
    """
    chosen = samples[:: max(1, len(samples) // most)]
    wrong = [
        f"record {number} is at {here} and {there}, translated to {told}"
        for number, here, there in chosen
        if (told := to_target(here)) != there
    ]
    return len(chosen), len(wrong), wrong[:3]


def unacknowledged(source, acked_ranges):
    """How many acknowledged numbers the source itself does not have: Kafka's loss, not a mirror's.

    Args:
        source: the source's log.
        acked_ranges: (first, after the last) pairs.
    """
    lost = 0
    for first, after in acked_ranges:
        counts = source.counts[first:after]
        lost += (after - first) - int(np.count_nonzero(counts))
    return lost


def _ranges(numbers, most=3):
    """``5-9, 12 and 3 more``."""
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    shown = [
        f"{numbers[a]}" if a == b else f"{numbers[a]}-{numbers[b]}"
        for a, b in zip(starts[:most], ends[:most], strict=True)
    ]
    more = len(starts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


class LogReader:
    """Reads topics of one cluster, read_committed, by librdkafka: none of the product's own code.

    Args:
        bootstrap: use ``Cluster.back_door``; no fault of the network is to fool the checker.
        prefix: of the topics' names on this cluster.
        streams: {(topic, partition): stream}, topics without prefix.
    """

    def __init__(self, bootstrap, prefix, streams):
        self._prefix, self._streams = prefix, streams
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": f"checker-{prefix or 'source'}",
            "client.id": "checker", "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "check.crcs": True, "log_level": 0,
            "fetch.wait.max.ms": 500, "fetch.min.bytes": 32768, "queued.min.messages": 100_000,
            "reconnect.backoff.max.ms": 1000, "topic.metadata.refresh.interval.ms": 5000,
            "allow.auto.create.topics": False, "enable.partition.eof": True,
        })  # fmt: skip
        self._assigned = set()
        self.reached = {}  # where reading goes on, by (topic, partition)
        self._look_at = 0.0
        self.logs = {stream: Log() for stream in streams.values()}
        self.misplaced = 0
        self.busy_at = time.monotonic()

    def assign_new(self):
        """Begin with topics that exist by now."""
        if len(self._assigned) == len(self._streams) or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + 1.0
        known = self._consumer.list_topics(timeout=10).topics
        for topic, partition in self._streams:
            found = known.get(self._prefix + topic)
            if found and partition in found.partitions and (topic, partition) not in self._assigned:
                self._assigned.add((topic, partition))
                wanted = TopicPartition(self._prefix + topic, partition, 0)
                self._consumer.incremental_assign([wanted])

    def read(self, timeout=0.05):
        """Take in what is there; returns how many records."""
        found = self._consumer.consume(_CONSUME_RECORDS, timeout)
        messages = [m for m in found if m.error() is None]
        for m in found:
            if m.error() is not None and m.error().code() == KafkaError._PARTITION_EOF:
                # Markers are offsets, too, but no messages.
                self.reached[m.topic(), m.partition()] = m.offset()
        if not messages:
            return 0
        self.busy_at = time.monotonic()
        records = np.frombuffer(b"".join([m.value() for m in messages]), RECORD)
        where = defaultdict(list)
        for i, m in enumerate(messages):
            where[m.topic(), m.partition()].append(i)
        for (topic, partition), chosen in where.items():
            here = messages[chosen[-1]].offset() + 1
            self.reached[topic, partition] = max(self.reached.get((topic, partition), 0), here)
            self._take(records[chosen], self._streams[topic[len(self._prefix) :], partition],
                       [messages[i] for i in chosen])  # fmt: skip
        return len(messages)

    def _take(self, records, stream, messages):
        at_home = records["stream"] == stream
        if not at_home.all():
            foreign = records["stream"] == FOREIGN
            self.logs[stream].foreign.extend(messages[i].offset() for i in np.flatnonzero(foreign))
            self.misplaced += int((~at_home & ~foreign).sum())
            messages = [m for m, here in zip(messages, at_home, strict=True) if here]
            records = records[at_home]
        log = self.logs[stream]
        numbers = records["number"].astype(np.int64)
        log.take(numbers, lambda i: messages[i].offset())
        if (flagged := records["flags"] & ABORTED).any():
            log.flagged.update(numbers[flagged.astype(bool)].tolist())

    @property
    def distinct(self):
        return sum(log.distinct for log in self.logs.values())

    def close(self):
        self._consumer.close()


class Checker:
    """The source's log and every mirror's, read side by side. Lives in a process of its own."""

    def __init__(self, source, target, prefixes, streams):
        self._streams = streams
        self._source = LogReader(source, "", streams)
        self._targets = {name: LogReader(target, p, streams) for name, p in prefixes.items()}

    def work(self):
        """A round of reading; returns whether anything was there."""
        found = 0
        for reader in (self._source, *self._targets.values()):
            reader.assign_new()
            found += reader.read()
        return found > 0

    def progress(self):
        """Records of the source, {mirror: distinct records}, {mirror: repeated so far}."""
        there = {name: reader.distinct for name, reader in self._targets.items()}
        repeated = {
            name: sum(log.records for log in reader.logs.values()) - there[name]
            for name, reader in self._targets.items()
        }
        return self._source.distinct, there, repeated

    def quiet_for(self):
        """Seconds since the last record was found, by reader."""
        now = time.monotonic()
        readers = {"source": self._source, **self._targets}
        return {name: now - reader.busy_at for name, reader in readers.items()}

    def reached(self, name):
        """{(remote topic, partition): the next offset} of what was read of a mirror's copies."""
        return dict(self._targets[name].reached)

    def extras(self, name, starts):
        """{(topic, partition): (least, most)} records that a target has beyond its source's.

        ``starts``: where the target's logs begin. Of records that are there twice nobody here knows
        which one the mirror counts on: one may be deleted, and the other not.
        """
        found = {}
        for place, stream in self._streams.items():
            log, start = self._targets[name].logs[stream], starts.get(place, 0)
            foreign = sum(offset >= start for offset in log.foreign)
            again = sum(offset >= start for offset in log.again)
            found[place] = (foreign if start else foreign + again, foreign + again)
        return found

    def source_records(self):
        """{(topic, partition): how many records the source has}."""
        return {place: self._source.logs[s].records for place, s in self._streams.items()}

    def verdict(self, name, named):
        """The verdict on a mirror, over all partitions; ``named`` are ranges by partition."""
        whole = Verdict()
        for (topic, partition), stream in self._streams.items():
            target, told = self._targets[name].logs[stream], named.get((topic, partition), ())
            whole.add(compare(self._source.logs[stream], target, f"{topic}-{partition}", told))
        whole.foreign += self._targets[name].misplaced
        return whole

    def source_loss(self, acked):
        """Acknowledged numbers that the source lost; ``acked`` is ranges by stream."""
        return sum(
            unacknowledged(self._source.logs[stream], ranges) for stream, ranges in acked.items()
        )

    def source_anomalies(self):
        """(repeated, out of order) within the source itself; both are to be 0."""
        logs = self._source.logs.values()
        repeated = sum(log.records - log.distinct for log in logs)
        return repeated, sum(log.reordered for log in logs)

    def samples(self, name):
        """{(topic, partition): [(number, source offset, target offset)]}."""
        found = {}
        for place, stream in self._streams.items():
            here, there = (
                self._source.logs[stream].offsets,
                self._targets[name].logs[stream].offsets,
            )
            # Of what is there twice, either may be meant.
            once = self._targets[name].logs[stream].counts
            numbers = sorted(n for n in here.keys() & there.keys() if once[n] == 1)
            found[place] = [(n, here[n], there[n]) for n in numbers]
        return found

    def close(self):
        for reader in (self._source, *self._targets.values()):
            reader.close()
