"""Being a member of a group: Kafka's coordinator decides who is in, and hands out assignments.

Kafka's classic group protocol, for a group whose members are not consumers. Every member joins with
a few bytes about itself. The coordinator makes one of them the leader, which assigns to all. A
member that falls silent is removed after the session timeout. Runs in the driver; one thread at a
time, with a client of its own, because joining waits for the others. Only `GroupMember.remove` may
be called by other threads meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError, WireError

__all__ = ["INCONSISTENT_PROTOCOL", "GroupMember", "Joined", "Removed"]

_GROUP_KEY = 0
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCING = 22, 25, 27
#: Members of another kind are in the group.
INCONSISTENT_PROTOCOL = 23
_MEMBER_ID_REQUIRED = 79
#: The coordinator has moved, or has forgotten us: join again.
_AGAIN = frozenset({_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCING, 15, 16, 82})
#: So that one server answers about many groups in later versions; we ask about one.
_FIND_ONE = 3
#: Later versions only add what we do not use.
_JOIN, _SYNC, _HEARTBEAT, _LEAVE = 7, 5, 4, 4
#: What a join may take longer than the slowest member.
_SPARE_SECONDS = 5.0

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""The leader's duty: from what members said of themselves, by member id, to what each gets."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One generation of the group: who we are in it, and what was assigned to us."""

    generation: int
    member_id: str
    leads: bool
    assignment: bytes


class Removed(WireError):
    """The coordinator does not know this member any more. It may join again, as a new one.

    It has lost what was assigned to it, so it must not say again what it said of itself.
    """


class GroupMember:
    """This process in a group. After `join`, call `heartbeat` often enough; at the end `leave`."""

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        *,
        protocol_type: str,
        protocol: str,
        session_seconds: float,
        rebalance_seconds: float,
    ) -> None:
        """Describe the member.

        Args:
            client: nobody else uses it.
            group: its id.
            protocol_type: members of another type are not let in.
            protocol: the name of what members say of themselves; all must know it.
            session_seconds: a member that is silent for so long is removed.
            rebalance_seconds: how long the others wait for a member to join again.
        """
        self._client = client
        self._group = group
        self._protocol_type = protocol_type
        self._protocol = protocol
        self._session_ms = int(session_seconds * 1000)
        self._rebalance_ms = int(rebalance_seconds * 1000)
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = -1

    def join(self, metadata: bytes, assign: Assign) -> Joined:
        """Join, or join again; waits until all members have. Raises WireError, also `Removed`."""
        while True:
            answer = self._ask_to_join(metadata)
            if answer.error_code == _MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
            elif answer.error_code == _UNKNOWN_MEMBER and self._member_id:
                self._forget()
            elif answer.error_code == _REBALANCING:
                continue
            else:
                break
        self._check(answer.error_code, "joining")
        self._member_id, self._generation = answer.member_id, answer.generation_id
        leads = answer.leader == answer.member_id
        shares: Mapping[str, bytes] = {}
        if leads:
            shares = assign({m.member_id: bytes(m.metadata) for m in answer.members})
        synced = self._sync(shares)
        if synced.error_code == _UNKNOWN_MEMBER:
            self._forget()
        if synced.error_code in _AGAIN:
            return self.join(metadata, assign)
        self._check(synced.error_code, "being assigned to in")
        return Joined(self._generation, self._member_id, leads, bytes(synced.assignment))

    def _forget(self) -> NoReturn:
        self._member_id, self._generation = "", -1
        raise Removed(f"group {shown(self._group)}: the coordinator has removed this member")

    def _ask_to_join(self, metadata: bytes) -> Any:
        kind = JoinGroupRequest.JoinGroupRequestProtocol
        message = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self._member_id,
            protocol_type=self._protocol_type,
            protocols=[kind(name=self._protocol, metadata=metadata)],
        )
        return self._ask(message, _JOIN, self._rebalance_ms / 1000 + _SPARE_SECONDS)

    def _sync(self, shares: Mapping[str, bytes]) -> Any:
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        message = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            assignments=[kind(member_id=m, assignment=share) for m, share in shares.items()],
        )
        return self._ask(message, _SYNC, self._rebalance_ms / 1000 + _SPARE_SECONDS)

    def heartbeat(self) -> bool:
        """Say that we are alive; returns whether the generation still counts. Raises WireError.

        If it does not, the member has to join again.
        """
        message = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        code = self._ask(message, _HEARTBEAT, self._client.request_timeout).error_code
        if code in {_UNKNOWN_MEMBER, _ILLEGAL_GENERATION}:
            self._generation = -1
        if code in _AGAIN:
            return False
        self._check(code, "staying in")
        return True

    @property
    def removed(self) -> bool:
        """Whether the coordinator has said that we are no member any more."""
        return self._generation < 0

    @property
    def member_id(self) -> str:
        """Who this member is in the group; empty if it is not in it."""
        return self._member_id

    def remove(self, member_id: str) -> None:
        """Remove another member at once, as if it had left; one that is not in it any more is fine.

        Coordinators do not ask who sends that. Raises WireError. May be called by any thread.
        """
        code = self._ask_to_remove(member_id).error_code
        if code != _UNKNOWN_MEMBER:
            self._check(code, "removing a member from")

    def leave(self) -> None:
        """Leave at once, so that others need not wait for our silence. Never raises."""
        if not self._member_id or self._coordinator is None:
            return
        with suppress(WireError):
            self._ask_to_remove(self._member_id)
        self._member_id, self._generation = "", -1

    def _ask_to_remove(self, member_id: str) -> Any:
        kind = LeaveGroupRequest.MemberIdentity
        message = LeaveGroupRequest(
            group_id=self._group, member_id=member_id, members=[kind(member_id=member_id)]
        )
        return self._ask(message, _LEAVE, self._client.request_timeout)

    # -- the coordinator ----------------------------------------------------------------------

    def _ask(self, message: Any, highest: int, timeout: float) -> Any:
        """One request to the coordinator; it is looked for again after a failure."""
        node = self._coordinator
        if node is None:
            node = self._coordinator = self._client.retry(self._find, self._session_ms / 1000)
        try:
            with self._client.lent(node) as connection:
                version = connection.version(message.API_KEY, highest)
                answer = connection.request(message, timeout, version)
        except WireError:
            self._coordinator = None
            raise
        if answer.error_code in {15, 16}:
            self._coordinator = None
        return answer

    def _find(self) -> int:
        with self._client.lent() as connection:
            version = connection.version(FindCoordinatorRequest.API_KEY, _FIND_ONE)
            message = FindCoordinatorRequest(key=self._group, key_type=_GROUP_KEY)
            answer = connection.request(message, self._client.request_timeout, version)
        self._check(answer.error_code, "finding the coordinator of")
        node: int = answer.node_id
        return node

    def _check(self, code: int, what: str) -> None:
        if code != NONE:
            where = f"group {shown(self._group)} on cluster {self._client.alias}"
            raise BrokerError(code, f"{what} {where}")
