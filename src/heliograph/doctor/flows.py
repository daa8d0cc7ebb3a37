"""Facts about a flow: topics, rights, ledger, other mirrors. Runs in a command; reads.

Topics that would be created and properties that would be changed are shown to the target with
``validate_only``: it says what it would refuse, and changes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import cast

from heliograph.batch.records import decode
from heliograph.claims.process_identity import is_gone, this_process
from heliograph.claims.registry import Registry
from heliograph.config import FlowConfig
from heliograph.control.positions import bounds_of
from heliograph.control.topics import internal
from heliograph.control.topics.preview import preview
from heliograph.control.topics.refresh import Comparison, TopicPlan, TopicRefresh
from heliograph.doctor.facts import (
    Behind,
    ClusterFacts,
    FlowFacts,
    InternalTopic,
    LedgerFacts,
    MirrorsFacts,
    RightsFacts,
    Sample,
    SourceLogs,
    TopicsFacts,
)
from heliograph.doctor.findings import Missing
from heliograph.doctor.parallel import Progress, ask_all
from heliograph.ledger.flow_ledger import FlowLedger
from heliograph.ledger.reverse import ReverseFlow, looping
from heliograph.ledger.signatures import written_by_others
from heliograph.mm2.connect_offsets import LatestRecords, decode_position
from heliograph.mm2.formats import Heartbeat
from heliograph.model import TopicPartition
from heliograph.policy import (
    TopicSelection,
    group_filter_from,
    ledger_topic,
    policy_from,
    topic_filter_from,
)
from heliograph.takeover.mm2_worker import MM2Worker
from heliograph.takeover.takeover import place_of
from heliograph.wire import acls, admin, configs, log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.ends import timestamps_at
from heliograph.wire.errors import BrokerError
from heliograph.wire.groups import GroupClient
from heliograph.wire.log_sizes import log_sizes
from heliograph.wire.rights import denied, missing_right

__all__ = ["look_at_flow"]

#: A name of a topic, not an expression; a dot in it is taken for a dot.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
#: Where a cluster keeps its groups.
_GROUPS_TOPIC = "__consumer_offsets"
#: Heartbeats of all flows into a cluster are in one topic; of each there is one a second.
_LAST_HEARTBEATS = 200
#: Few seconds, few megabytes: a mirror that runs is hardly disturbed.
_SAMPLE_BYTES, _SAMPLE_SECONDS, _SAMPLE_PIECE_BYTES = 8 << 20, 2.0, 1 << 20
#: What is written to topics now; shorter, and producers that write by the minute are not seen.
_RECENT_SECONDS = 300.0
_READ_CLIENTS = ("source_client", "source_admin")
_WRITE_CLIENTS = ("target_client", "target_admin")


class _Asking:
    """The clients of a flow, and the questions to ask with them."""

    def __init__(
        self, config: FlowConfig, opposite: FlowConfig | None, seconds: float, stack: ExitStack
    ) -> None:
        self.config = config
        self.opposite = opposite
        self.clients = {
            name: stack.enter_context(
                ClusterClient(getattr(config, name), "doctor", request_timeout=seconds)
            )
            for name in (*_READ_CLIENTS, *_WRITE_CLIENTS)
        }
        self.source, self.target = self.clients["source_admin"], self.clients["target_admin"]

    def topics(self) -> TopicsFacts:
        compared = TopicRefresh(self.config, self.source, self.target).compare()
        there = [name for name in compared.remote.values() if name in compared.target.topics]
        named = {
            name for name in self.config.topics
            if _PLAIN_NAME.fullmatch(name) and name not in compared.source.topics
        }  # fmt: skip
        absent = admin.absent_topics(self.source, named) if named else set()
        selected = TopicSelection(self.config).includes
        coming = {
            name for name in self._created_by_opposite() - compared.source.topics.keys()
            if name in absent or selected(name)
        }  # fmt: skip
        return TopicsFacts(
            compared,
            configs.describe(self.source, compared.remote),
            configs.describe(self.target, there),
            frozenset(absent),
            frozenset(named - absent),
            frozenset(coming),
        )

    def _created_by_opposite(self) -> set[str]:
        """The topics of our source that the flow in the opposite direction has or will make."""
        if self.opposite is None:
            return set()
        return set(TopicRefresh(self.opposite, self.target, self.source).compare().remote.values())

    def internal(self) -> Sequence[InternalTopic]:
        found = []
        for wanted in internal.all_wanted(self.config, self.source, self.target):
            topic = wanted.client.metadata([wanted.topic]).topics.get(wanted.topic)
            told = configs.describe(wanted.client, [wanted.topic] if topic else [])
            entries = told.found.get(wanted.topic, {})
            found.append(
                InternalTopic(
                    wanted.client.alias,
                    wanted.topic,
                    wanted.key,
                    wanted.replication_factor,
                    wanted.configs,
                    len(topic.partitions) if topic else 0,
                    min(p.replicas for p in topic.partitions.values()) if topic else 0,
                    {name: e.value for name, e in entries.items() if e.value is not None},
                )
            )
        return found

    def rights(self, topics: TopicsFacts) -> RightsFacts:
        compared = topics.compared
        own = [
            (w.client.alias, w.topic)
            for w in internal.all_wanted(self.config, self.source, self.target)
        ]
        clusters, allowed = {}, {}
        for name, client in self.clients.items():
            with suppress(BrokerError):  # before 2.8, which does not tell
                clusters[name] = admin.cluster_operations(client)
            on_source = name in _READ_CLIENTS
            there = compared.remote if on_source else compared.target.topics
            asked = [*there, *(topic for alias, topic in own if alias == client.alias)]
            found = admin.topic_operations(client, asked) if asked else {}
            allowed[name] = {topic: frozenset(codes) for topic, codes in found.items() if codes}
        selected = self._selected_groups()
        known = self._has_groups() if self.config.sync_group_offsets_enabled else False
        groups, hidden = self._groups(selected) if known else ({}, frozenset())
        return RightsFacts(
            clusters, allowed, groups, hidden, known, self._authorizer(), tuple(selected)
        )

    def _has_groups(self) -> bool | None:
        """Whether the target has groups; None if it cannot be seen.

        To a cluster that has none, a question about one of them creates the topic that they are
        kept in. Nothing is created here, so it is not asked.
        """
        found = self.target.metadata([_GROUPS_TOPIC])
        if _GROUPS_TOPIC in found.topics or GroupClient(self.target).list_groups().groups:
            return True
        return None if _GROUPS_TOPIC in found.denied else False

    def _selected_groups(self) -> Sequence[str]:
        selected = group_filter_from(self.config)
        listed = GroupClient(self.source).list_groups().groups
        return sorted(g for g in listed if selected.should_replicate_group(g))

    def _groups(self, wanted: Sequence[str]) -> tuple[Mapping[str, frozenset[int]], frozenset[str]]:
        answers = GroupClient(self.target).operations(wanted)
        hidden = frozenset(
            group for group, error in answers.errors.items()
            if isinstance(error, BrokerError) and denied(error.code)
        )  # fmt: skip
        return {g: codes for g, codes in answers.found.items() if codes}, hidden

    def _authorizer(self) -> bool | None:
        try:
            acls.describe(self.source, "TOPIC")
        except acls.NoAuthorizer:
            return False
        except BrokerError as error:
            return None if denied(error.code) else False
        return True

    def ledger(self, topics: TopicsFacts) -> LedgerFacts:
        compared = topics.compared
        partitions = compared.partitions
        plan = TopicPlan(partitions, {}, compared.source, compared.target)
        targets = {p: TopicPartition(name, p.partition) for p, name in partitions.items()}
        ask = partial(admin.list_offsets, self.target, compared.target, targets.values())
        starts, ends = ask(admin.EARLIEST), ask(admin.LATEST)
        full = {p for p, t in targets.items() if ends.get(t, 0) > starts.get(t, 0)}
        name = ledger_topic(self.config.flow.source)
        full -= self._filled_by_others({p: targets[p] for p in full}, compared, name)
        every = self._all(topics)
        if name not in self.target.metadata([name]).topics:
            return LedgerFacts(filled=frozenset(full), unbegun=self._unbegun(topics, every))
        ledger = FlowLedger(self.target, name)
        registry = Registry(ledger.store.follower)
        ledger.store.refresh()
        here = this_process()
        standing = [s.claim for s in registry.claims.standing.values()]
        begun, waiting = set(), {}
        for p, t in targets.items():
            known = ledger.store.at(place_of(plan, p))
            bounds = bounds_of(known, ends.get(t, 0))
            if known.runs:
                begun.add(p)
            if bounds is not None and bounds.copied:
                waiting[p] = bounds.least
        return LedgerFacts(
            registry.signature,
            [(claim, is_gone(claim.process, here)) for claim in standing],
            self._behind(topics, waiting),
            frozenset(begun),
            frozenset(full - begun),
            self._unbegun(topics, [p for p in every if p not in begun]),
        )

    def _filled_by_others(
        self, targets: Mapping[TopicPartition, TopicPartition], compared: Comparison, own: str
    ) -> set[TopicPartition]:
        """Those whose target has records that another flow brought, or that began there.

        They began there if the flow in the opposite direction mirrors them to our source.
        """
        if not targets:
            return set()
        flow, ids = self.config.flow, {n: t.topic_id for n, t in compared.target.topics.items()}
        brought = written_by_others(self.target, own)
        found = {p for p, t in targets.items() if (ids[t.topic], t.partition) in brought}
        names = {p.topic for p in targets}
        back = looping(policy_from(self.config), names, flow.source, flow.target)
        reverse = ReverseFlow(self.source, self.target.cluster_id())
        reverse.look(self.source.metadata())
        wanted = {p: t.topic for p, t in targets.items() if p.topic in back}
        guards = reverse.guards(wanted, compared.source, compared.target)
        found |= {p for p, guard in guards.items() if guard.paired}
        if self.opposite is not None:
            # It will, though it has not begun.
            chosen = topic_filter_from(self.opposite).should_replicate_topic
            found |= {p for p, remote in wanted.items() if chosen(remote)}
        return found

    def _unbegun(
        self, topics: TopicsFacts, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Behind]:
        ask = partial(admin.list_offsets, self.clients["source_client"], topics.compared.source)
        return self._behind(topics, ask(partitions, admin.EARLIEST))

    def _behind(
        self, topics: TopicsFacts, positions: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Behind]:
        client, metadata = self.clients["source_client"], topics.compared.source
        ends = admin.list_offsets(client, metadata, positions, admin.LATEST)
        late = {p: at for p, at in positions.items() if ends.get(p, 0) > at}
        written, now = timestamps_at(client, metadata, late), time.time()
        return {
            p: Behind(ends[p] - at, max(0.0, now - written[p]) if p in written else None)
            for p, at in late.items()
        }

    def mirrors(self, topics: TopicsFacts) -> MirrorsFacts:
        config = self.config
        worker = MM2Worker(config, str(config.flow), self.target)
        # Only groups that are listed are asked for (see `_has_groups`).
        listed = GroupClient(self.target).list_groups()
        there = config.mm2_group in listed.groups
        running = worker.seen(self._all(topics)) if there else ""
        stored = LatestRecords(self.target, config.mm2_offsets_topic)
        known: set[TopicPartition] = set()
        if self._refreshed(stored):
            for key, (value, atomic) in stored.all.items():
                position = decode_position(key, value, atomic=atomic)
                if position is not None and position[0] == config.flow.source:
                    known.add(position[1])
        hidden = not there and not listed.all_visible
        return MirrorsFacts(running, hidden, self._heartbeat_age(), frozenset(known))

    def _refreshed(self, stored: LatestRecords) -> bool:
        try:
            return stored.refresh()
        except BrokerError as error:
            if not denied(error.code):
                raise
            right = missing_right(self.target.settings, "Read", "topic", stored.topic)
            what = f"looking for positions of MM2 on cluster {self.target.alias}"
            raise BrokerError(error.code, what, right) from error

    def _heartbeat_age(self) -> float | None:
        flow = self.config.flow
        where = TopicPartition(policy_from(self.config).heartbeats_topic(), 0)
        if where.topic not in self.target.metadata([where.topic]).topics:
            return None
        end = log.end_offset(self.target, where)
        newest = None
        for chunk in log.read_to_end(self.target, where, max(0, end - _LAST_HEARTBEATS), end=end):
            for record in decode(chunk):
                try:
                    beat = Heartbeat.decode(record.key or b"", record.value or b"")
                except (ValueError, IndexError):
                    continue
                if (beat.source, beat.target) == (flow.source, flow.target):
                    newest = max(newest or 0, record.timestamp)
        return None if newest is None else max(0.0, time.time() - newest / 1000)

    @staticmethod
    def _all(topics: TopicsFacts) -> list[TopicPartition]:
        here = topics.compared.source.topics
        return [TopicPartition(t, i) for t in topics.compared.remote for i in here[t].partitions]

    def logs(self, topics: TopicsFacts) -> SourceLogs:
        client, metadata, every = self.source, topics.compared.source, self._all(topics)
        ask = partial(admin.list_offsets, client, metadata, every)
        starts, ends = ask(admin.EARLIEST), ask(admin.LATEST)
        since = ask(int((time.time() - _RECENT_SECONDS) * 1000))
        return SourceLogs(
            starts,
            {p: max(0, ends.get(p, at) - at) for p, at in starts.items()},
            # -1: nothing is that new.
            {p: max(0, ends.get(p, at) - at) for p, at in since.items() if at >= 0},
            _RECENT_SECONDS,
            log_sizes(client, metadata, every),
        )

    def sample(self, topics: TopicsFacts) -> Sample | None:
        client, metadata = self.clients["source_client"], topics.compared.source
        every = self._all(topics)
        starts = admin.list_offsets(client, metadata, every, admin.EARLIEST)
        ends = admin.list_offsets(client, metadata, every, admin.LATEST)
        held = {p: ends[p] - start for p, start in starts.items() if ends.get(p, 0) > start}
        if not held:
            return None
        largest = max(held, key=lambda p: held[p])
        read, began = 0, time.perf_counter()
        for chunk in log.read_to_end(client, largest, starts[largest], end=ends[largest]):
            read += len(chunk)
            if read >= _SAMPLE_BYTES or time.perf_counter() - began > _SAMPLE_SECONDS:
                break
        return Sample(largest, read, time.perf_counter() - began)


def look_at_flow(
    config: FlowConfig,
    opposite: FlowConfig | None,
    source: ClusterFacts,
    target: ClusterFacts,
    seconds: float,
    progress: Progress,
) -> FlowFacts:
    """All that is to be known of a flow whose clusters were looked at.

    ``opposite`` is the flow in the opposite direction, if the file enables it.
    """
    for cluster in (source, target):
        if isinstance(cluster.identity, Missing):
            why = Missing(f"cluster {cluster.alias} cannot be asked")
            return FlowFacts(config, source, target, *[why] * 8)
    with ExitStack() as stack:
        asking = _Asking(config, opposite, seconds, stack)
        name = str(config.flow)
        (topics,) = ask_all({f"{name}: topics": asking.topics}, seconds, progress).values()
        questions: dict[str, Callable[[], object]] = {"internal": asking.internal}
        if not isinstance(topics, Missing):
            questions |= {
                "rights": partial(asking.rights, topics),
                "ledger": partial(asking.ledger, topics),
                "mirrors": partial(asking.mirrors, topics),
                "preview": partial(preview, config, asking.source, asking.target),
                "sample": partial(asking.sample, topics),
                "logs": partial(asking.logs, topics),
            }
        named = {f"{name}: {part}": question for part, question in questions.items()}
        told = ask_all(named, seconds, progress)
        facts = {part: told[f"{name}: {part}"] for part in questions}
    why = topics if isinstance(topics, Missing) else Missing("it was not asked")
    parts = ("internal", "rights", "ledger", "mirrors", "preview", "sample", "logs")
    found = [cast("Missing", facts.get(part, why)) for part in parts]
    return FlowFacts(config, source, target, topics, *found)
