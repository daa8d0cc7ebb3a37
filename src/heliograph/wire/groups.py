"""Consumer groups: which there are, what they have committed, and commits for those not in use.

Runs in the driver and in commands. Groups live on different brokers, their coordinators. Whatever
is asked of many groups is asked of each coordinator at once, and answered for each group by itself:
one that is denied or whose coordinator is away does not disturb the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from heliograph.model import TopicPartition
from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError, WireError, check

__all__ = ["Answers", "Committed", "GroupClient", "GroupList", "ListedGroup"]

T = TypeVar("T")

_GROUP_ID_NOT_FOUND = 69
_NOTHING: frozenset[int] = frozenset()
#: NOT_AVAILABLE and NOT_COORDINATOR: another broker is it, or will be.
_MOVED = frozenset({15, 16})
_GROUP_KEY = 0
#: The highest versions that call topics by their names; later ones want ids.
_FETCH_BY_NAME = 9
_COMMIT_BY_NAME = 9
#: The first versions that take many groups.
_FETCH_MANY, _FIND_MANY = 8, 4
#: So that one answer has some MB at most, of groups with thousands of partitions.
_GROUPS_PER_REQUEST = 250
#: How long a broker may take to read the groups that it has just become coordinator of.
_LOADING_SECONDS = 2.0
#: A memberless commit: brokers take it only for groups without members.
_NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as brokers list it.

    Attributes:
        kind: ``classic``, ``consumer``, ``share`` or ``streams``; empty before Kafka 3.8.
        protocol_type: ``consumer``, ``connect`` ...; empty for a group that only has offsets.
        state: ``Stable``, ``Empty`` ...; empty before Kafka 2.6.
    """

    group: str
    kind: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupList:
    """The groups of a cluster; those of brokers that failed are missing.

    Attributes:
        all_visible: whether we may see every group; otherwise only those that we may DESCRIBE.
    """

    groups: Mapping[str, ListedGroup]
    failures: Sequence[WireError]
    all_visible: bool


class Committed(NamedTuple):
    """An offset that a group has committed, -1 for none; ``error`` is the partition's own."""

    offset: int
    metadata: str = ""
    error: int = NONE


@dataclass(slots=True)
class Answers(Generic[T]):
    """What coordinators said of groups; each group is in one of the two."""

    found: dict[str, T] = field(default_factory=dict)
    errors: dict[str, WireError] = field(default_factory=dict)


class GroupClient:
    """The groups of one cluster. Remembers their coordinators. One thread at a time."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self._coordinators: dict[str, int] = {}

    # -- which there are ----------------------------------------------------------------------

    def list_groups(self) -> GroupList:
        """Every group that we may see; raises only if no broker answers."""
        groups: dict[str, ListedGroup] = {}
        failures: list[WireError] = []
        brokers = self.client.metadata(()).brokers
        for node in brokers:
            try:
                response = self.client.retry(partial(self._ask_for_list, node), _LOADING_SECONDS)
            except WireError as error:
                failures.append(error)
                continue
            for g in response.groups:
                kind, state = g.group_type or "", g.group_state or ""
                listed = ListedGroup(g.group_id, kind.lower(), g.protocol_type, state)
                groups[g.group_id] = listed
        if len(failures) == len(brokers):
            raise failures[0]
        return GroupList(groups, failures, self._all_visible())

    def _ask_for_list(self, node: int) -> Any:
        response = self.client.request(ListGroupsRequest(), node)
        check(response.error_code, f"listing the groups of broker {node}")
        return response

    def _all_visible(self) -> bool:
        """Brokers leave out what we may not see, without a word."""
        try:
            message = DescribeClusterRequest(include_cluster_authorized_operations=True)
            # They tell our rights only to whoever may DESCRIBE the cluster.
            return bool(self.client.request(message).authorized_operations)
        except BrokerError:
            return True  # before 2.8, which cannot tell

    # -- what they have committed -------------------------------------------------------------

    def committed(
        self, groups: Iterable[str], *, stable: bool = False
    ) -> Answers[dict[TopicPartition, Committed]]:
        """All offsets of groups, of topics that we may DESCRIBE; none for a group that is not.

        With ``stable``, a partition with an offset in an open transaction has an error instead.
        """
        return self.committed_of(dict.fromkeys(groups), stable=stable)

    def committed_of(
        self,
        wanted: Mapping[str, Collection[TopicPartition] | None],
        *,
        stable: bool = False,
    ) -> Answers[dict[TopicPartition, Committed]]:
        """Offsets of some partitions of each group (None: all that it has).

        For a partition that was asked for by name there is always an answer: -1 if nothing is
        committed, an error if we may not DESCRIBE its topic.
        """

        def ask(node: int, groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
            with self.client.lent(node) as connection:
                version = connection.version(OffsetFetchRequest.API_KEY, _FETCH_BY_NAME)
                if version >= _FETCH_MANY:
                    pieces = _pieces(groups, _GROUPS_PER_REQUEST)
                    messages = [_fetch_many(g, wanted, stable) for g in pieces]
                else:
                    messages = [_fetch_one(g, wanted[g], stable) for g in groups]
                answers = connection.requests(messages, self.client.request_timeout, version)
            if version >= _FETCH_MANY:
                yield from ((g.group_id, g) for answer in answers for g in answer.groups)
            else:
                yield from zip(groups, answers, strict=True)

        def read(answer: Any) -> dict[TopicPartition, Committed]:
            return {
                TopicPartition(t.name, p.partition_index): Committed(
                    p.committed_offset, p.metadata or "", p.error_code
                )
                for t in answer.topics
                for p in t.partitions
            }

        return self._ask(wanted, "committed offsets", ask, read)

    # -- states -------------------------------------------------------------------------------

    def states(self, groups: Iterable[str]) -> Answers[str]:
        """The state of each group as its coordinator knows it; ``Dead`` for one that is not there.

        Groups of the newer protocols have to be listed: this question is about classic ones.
        """
        return self._described(groups, "the state", lambda g: str(g.group_state), rights=False)

    def operations(self, groups: Iterable[str]) -> Answers[frozenset[int]]:
        """What we may do to each group, as codes of AclOperation; nothing if that is not told."""

        def read(group: Any) -> frozenset[int]:
            told = group.authorized_operations
            return frozenset(told) if isinstance(told, (set, frozenset, list, tuple)) else _NOTHING

        return self._described(groups, "our rights", read, rights=True)

    def _described(
        self, groups: Iterable[str], what: str, read: Callable[[Any], T], *, rights: bool
    ) -> Answers[T]:
        def ask(node: int, groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
            messages = [
                DescribeGroupsRequest(groups=piece, include_authorized_operations=rights)
                for piece in _pieces(groups, _GROUPS_PER_REQUEST)
            ]
            with self.client.lent(node) as connection:
                answers = connection.requests(messages, self.client.request_timeout)
            for answer in answers:
                for g in answer.groups:
                    if g.error_code == _GROUP_ID_NOT_FOUND:
                        g.error_code, g.group_state = NONE, "Dead"
                    yield g.group_id, g

        return self._ask(groups, what, ask, read)

    # -- commits ------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> Answers[dict[TopicPartition, int]]:
        """Commit without being a member; the error code of each partition, 0 if it was written.

        Brokers refuse this for a group that has members, at the moment of the write.
        """

        def ask(node: int, groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
            messages = [_commit(g, offsets[g]) for g in groups]
            with self.client.lent(node) as connection:
                version = connection.version(OffsetCommitRequest.API_KEY, _COMMIT_BY_NAME)
                answers = connection.requests(messages, self.client.request_timeout, version)
            yield from zip(groups, answers, strict=True)

        def read(answer: Any) -> dict[TopicPartition, int]:
            return {
                TopicPartition(t.name, p.partition_index): p.error_code
                for t in answer.topics
                for p in t.partitions
            }

        answers = self._ask(offsets, "committing offsets", ask, read)
        for group, codes in answers.found.items():
            if not _MOVED.isdisjoint(codes.values()):
                self._coordinators.pop(group, None)
        return answers

    # -- deleting -----------------------------------------------------------------------------

    def delete(self, groups: Iterable[str]) -> Answers[None]:
        """Delete groups with all that they have committed; one that is not there counts as done.

        Brokers refuse this for a group that has members.
        """

        def ask(node: int, groups: Sequence[str]) -> Iterator[tuple[str, Any]]:
            messages = [
                DeleteGroupsRequest(groups_names=piece)
                for piece in _pieces(groups, _GROUPS_PER_REQUEST)
            ]
            with self.client.lent(node) as connection:
                answers = connection.requests(messages, self.client.request_timeout)
            for answer in answers:
                for result in answer.results:
                    if result.error_code == _GROUP_ID_NOT_FOUND:
                        result.error_code = NONE
                    yield result.group_id, result

        return self._ask(groups, "deleting", ask, lambda _: None)

    # -- coordinators -------------------------------------------------------------------------

    def _ask(
        self,
        groups: Iterable[str],
        what: str,
        ask: Callable[[int, Sequence[str]], Iterator[tuple[str, Any]]],
        read: Callable[[Any], T],
    ) -> Answers[T]:
        """One question to all coordinators of groups; a moved group is looked for the next time."""
        answers: Answers[T] = Answers()
        nodes = self._find(groups, answers.errors)
        for node, members in nodes.items():
            try:
                for group, answer in ask(node, members):
                    code = getattr(answer, "error_code", NONE) or NONE
                    if code == NONE:
                        answers.found[group] = read(answer)
                    else:
                        answers.errors[group] = self._error(code, what, group)
                    if code in _MOVED:
                        self._coordinators.pop(group, None)
            except WireError as error:
                for group in members:
                    if group not in answers.found:
                        answers.errors.setdefault(group, error)
                    self._coordinators.pop(group, None)
        return answers

    def _find(
        self, groups: Iterable[str], errors: dict[str, WireError]
    ) -> Mapping[int, Sequence[str]]:
        """Groups by coordinator; those that have none go to ``errors``."""
        groups = list(groups)
        unknown = [g for g in groups if g not in self._coordinators]
        if unknown:
            self._look_for(unknown, errors)
        nodes: dict[int, list[str]] = {}
        for group in groups:
            if group in self._coordinators:
                nodes.setdefault(self._coordinators[group], []).append(group)
        return nodes

    def _look_for(self, groups: Sequence[str], errors: dict[str, WireError]) -> None:
        request = FindCoordinatorRequest
        with self.client.lent() as connection:
            version = connection.version(request.API_KEY, request.max_version)
            if version >= _FIND_MANY:
                messages = [
                    request(key_type=_GROUP_KEY, coordinator_keys=piece)
                    for piece in _pieces(groups, _GROUPS_PER_REQUEST)
                ]
            else:
                messages = [request(key=group, key_type=_GROUP_KEY) for group in groups]
            answers = connection.requests(messages, self.client.request_timeout, version)
        found: Iterable[tuple[str, Any]]
        if version >= _FIND_MANY:
            found = ((c.key, c) for answer in answers for c in answer.coordinators)
        else:
            found = zip(groups, answers, strict=True)
        for group, answer in found:
            if answer.error_code == NONE:
                self._coordinators[group] = answer.node_id
            else:
                errors[group] = self._error(answer.error_code, "the coordinator", group)

    def _error(self, code: int, what: str, group: str) -> BrokerError:
        return BrokerError(code, f"{what} of group {shown(group)} on cluster {self.client.alias}")


def _pieces(groups: Sequence[str], size: int) -> list[list[str]]:
    return [list(groups[i : i + size]) for i in range(0, len(groups), size)]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _fetch_many(
    groups: Sequence[str],
    wanted: Mapping[str, Collection[TopicPartition] | None],
    stable: bool,
) -> Any:
    kind = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = []
    for group in groups:
        partitions = wanted[group]
        topics = None if partitions is None else [
            kind.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in _by_topic(partitions).items()
        ]  # fmt: skip
        asked.append(kind(group_id=group, topics=topics))
    return OffsetFetchRequest(groups=asked, require_stable=stable)


def _fetch_one(group: str, partitions: Collection[TopicPartition] | None, stable: bool) -> Any:
    topics = None if partitions is None else [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in _by_topic(partitions).items()
    ]  # fmt: skip
    return OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)


def _commit(group: str, offsets: Mapping[TopicPartition, Committed]) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        topics=[
            kind(
                name=name,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(name, index)].offset,
                        # An epoch of the source's means nothing on the target.
                        committed_leader_epoch=-1,
                        committed_metadata=offsets[TopicPartition(name, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(offsets).items()
        ],
    )
