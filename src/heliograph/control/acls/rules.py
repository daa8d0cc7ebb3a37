"""Which ACLs of the source belong on the target, and what follows from that. Pure.

MM2's rules: of topics by name, what the flow mirrors; the resource is renamed; ALLOW WRITE is left
out, for only the mirror writes to remote topics; ALLOW ALL becomes ALLOW READ; all else as it is.
Opt-in: prefixed patterns, groups, and removal of what was copied and is gone.

Nobody may do more to a copy than to its source. Two things follow that MM2 does not do:

- An ALLOW for ``*`` (all topics, all groups) is not copied. On the target it would be about topics
  that have nothing to do with the source; MM2 makes it an inert ``A.*``, or with the identity
  policy opens the whole target.
- A DENY for ``*`` or for a prefix follows the ALLOWs: each ALLOW that is copied takes along what is
  denied of its resource. MM2 drops such a DENY, and who is kept out at the source gets in.

And a DENY WRITE for everybody is not copied: on the target it would be the mirror that is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from heliograph.wire.acls import WILDCARD, Acl

__all__ = ["AclPlan", "AclRules", "Change", "plan"]

_EVERYBODY = "User:*"


@dataclass(frozen=True, slots=True)
class AclRules:
    """What a flow copies.

    Attributes:
        source: alias, for reasons; so is ``target``.
        mirrors: whether the flow mirrors a topic of this name.
        remote: the target's name of a source topic.
        accepts_group: whether the flow's group filter selects a group.
        mirrored: the source topics that the flow mirrors now.
        foreign: topics of the target that are not copies of the source's.
        prefixed: whether prefixed patterns are copied (heliograph.acls.prefixed).
        groups: whether ACLs of groups are (heliograph.acls.groups).
        revoke: whether copies are removed with their originals (heliograph.acls.revoke).
    """

    source: str
    target: str
    mirrors: Callable[[str], bool]
    remote: Callable[[str], str]
    accepts_group: Callable[[str], bool]
    mirrored: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    prefixed: bool = False
    groups: bool = False
    revoke: bool = False

    def rename(self, acl: Acl) -> str:
        """The name of the ACL's resource on the target; groups keep theirs."""
        return self.remote(acl.name) if acl.resource_type == "TOPIC" else acl.name

    def objection(self, acl: Acl) -> str:
        """Why an ACL is left out that could be copied; empty if it is copied."""
        prefixed = acl.pattern == "PREFIXED"
        if prefixed and not self.prefixed:
            return "heliograph.acls.prefixed is off"
        if acl.resource_type == "GROUP":
            return "" if self.accepts_group(acl.name) else "the flow's groups do not include it"
        if prefixed:
            return self._objection_to_prefix(acl.name)
        return "" if self.mirrors(acl.name) else "the flow does not mirror the topic"

    def _objection_to_prefix(self, prefix: str) -> str:
        """A prefix must be about topics of this flow, and on the target about nothing else."""
        covered = [topic for topic in self.mirrored if topic.startswith(prefix)]
        remote = self.remote(prefix)
        if not covered:
            return "no topic that the flow mirrors begins with it"
        if not all(self.remote(topic).startswith(remote) for topic in covered):
            return "the replication policy does not keep the beginnings of names"
        other = min((topic for topic in self.foreign if topic.startswith(remote)), default=None)
        if other is not None:
            return f"{remote} is also the beginning of {other} on {self.target}"
        return ""


@dataclass(frozen=True, slots=True)
class Change:
    """An ACL to add, to remove or to leave out, and why."""

    acl: Acl
    reason: str


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What is to be done on the target; each in an order that never opens a gap in between.

    Attributes:
        additions: what the target lacks, DENY first.
        removals: what was copied and the source has no more, ALLOW first.
        left_out: ACLs of the source that are not copied.
        forgotten: what was copied, is gone from both sides, and need not be remembered.
        without: aliases of clusters without an authorizer; then there is nothing to do.
    """

    additions: Sequence[Change] = ()
    removals: Sequence[Change] = ()
    left_out: Sequence[Change] = ()
    forgotten: Sequence[Acl] = ()
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """An ACL of the source, what it is on the target (None: never copied), and why not, if not."""

    acl: Acl
    image: Acl | None
    objection: str = ""


def plan(
    source: Iterable[Acl], target: Iterable[Acl], remembered: Iterable[Acl], rules: AclRules
) -> AclPlan:
    """Compare what the source has with what the target has and what we have added there.

    Args:
        source: ACLs of topics, and of groups if ``rules.groups``.
        target: likewise.
        remembered: what was added to the target by earlier runs.
        rules: of the flow.
    """
    judged = [_judge(acl, rules) for acl in sorted(set(source))]
    denials = _Denials(j.acl for j in judged)
    there, ours = set(target), set(remembered)
    wanted: dict[Acl, _Cause] = {}
    # With what would be wanted under another configuration: the source still has it.
    possible: set[Acl] = set()
    for one in judged:
        for image, cause in _images(one, denials, rules):
            possible.add(image)
            if not one.objection:
                wanted.setdefault(image, cause)
    gone = {acl for acl in ours if acl not in possible and _in_sight(acl, rules)}
    removed = f"{rules.source} has no such ACL any more; it was copied from there"
    return AclPlan(
        additions=[
            Change(acl, _why(acl, wanted[acl], rules))
            for acl in sorted(wanted.keys() - there, key=_deny_first)
        ],
        removals=[
            Change(acl, removed)
            for acl in sorted(gone & there, key=_deny_first, reverse=True)
            if rules.revoke
        ],
        left_out=[Change(j.acl, j.objection) for j in judged if j.objection],
        forgotten=sorted(gone - there),
    )


def _deny_first(acl: Acl) -> tuple[bool, Acl]:
    return acl.permission != "DENY", acl


def _in_sight(acl: Acl, rules: AclRules) -> bool:
    """Whether the source was asked for ACLs of this kind."""
    return acl.resource_type == "TOPIC" or (acl.resource_type == "GROUP" and rules.groups)


def _judge(acl: Acl, rules: AclRules) -> _Judged:
    allow = acl.permission == "ALLOW"
    topic = acl.resource_type == "TOPIC"
    if topic and allow and acl.operation == "WRITE":
        return _Judged(acl, None, "only the mirror writes to remote topics")
    if topic and not allow and acl.operation == "WRITE" and acl.principal == _EVERYBODY:
        # E.g. the fence of a switchover: it is about the source alone.
        return _Judged(acl, None, "it would keep the mirror from writing to the remote topic")
    if acl.pattern == "LITERAL" and acl.name == WILDCARD:
        kind = acl.resource_type.lower()
        if allow:
            return _Judged(
                acl, None, f"it would also open {kind}s that are not from {rules.source}"
            )
        return _Judged(acl, None, f"it goes with each {kind} that an ALLOW is copied for")
    operation = "READ" if topic and allow and acl.operation == "ALL" else acl.operation
    image = replace(acl, name=rules.rename(acl), operation=operation)
    return _Judged(acl, image, rules.objection(acl))


#: The ACL of the source that an image comes from; for a denial, also the ALLOW that it goes with.
_Cause = tuple[Acl, Acl | None]


def _images(judged: _Judged, denials: _Denials, rules: AclRules) -> Iterator[tuple[Acl, _Cause]]:
    """What is on the target if an ACL of the source is copied: it, and what is denied of it."""
    acl, image = judged.acl, judged.image
    if image is None:
        return
    yield image, (acl, None)
    if acl.permission == "ALLOW":
        for deny in denials.that_may_concern(acl):
            common = _intersection(deny, acl)
            if common is not None:
                yield replace(common, name=rules.rename(common)), (deny, acl)


def _why(image: Acl, cause: _Cause, rules: AclRules) -> str:
    origin, allow = cause
    if allow is not None:
        return f"{rules.source} has {origin}, and {allow} is copied"
    changed = ", and ALL becomes READ" if image.operation != origin.operation else ""
    return f"{rules.source} has {origin}{changed}"


class _Denials:
    """The denials among ACLs, by whom they are for: there may be very many ALLOWs to ask about."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._all: list[Acl] = []
        self._by_principal: dict[str, list[Acl]] = {}
        for acl in acls:
            # No copy allows writing to a topic, and a DENY for everybody would hit the mirror.
            # Rights on groups are copied as they are, whatever they allow.
            needless = acl.resource_type == "TOPIC" and acl.operation == "WRITE"
            if acl.permission == "DENY" and not needless:
                self._all.append(acl)
                self._by_principal.setdefault(_person(acl), []).append(acl)

    def that_may_concern(self, allow: Acl) -> Iterator[Acl]:
        """Denials for somebody whom ``allow`` may be for, of the same type of resource."""
        person = _person(allow)
        found = self._all
        if person != _EVERYBODY:
            found = [d for who in (person, _EVERYBODY) for d in self._by_principal.get(who, ())]
        return (deny for deny in found if deny.resource_type == allow.resource_type)


def _person(acl: Acl) -> str:
    """The principal; groups and roles may be anybody: who is in them, ACLs do not tell."""
    return acl.principal if acl.principal.startswith("User:") else _EVERYBODY


def _intersection(deny: Acl, allow: Acl) -> Acl | None:
    """``deny`` for those resources only that ``allow`` is about; None if there is none."""
    narrow, wide = (deny, allow) if _covers(allow, deny) else (allow, deny)
    if not _covers(wide, narrow):
        return None
    return replace(deny, name=narrow.name, pattern=narrow.pattern)


def _covers(wide: Acl, narrow: Acl) -> bool:
    """Whether all resources of ``narrow`` are resources of ``wide``."""
    if wide.pattern == "LITERAL":
        same = narrow.pattern == "LITERAL" and narrow.name == wide.name
        return same or wide.name == WILDCARD
    everything = narrow.pattern == "LITERAL" and narrow.name == WILDCARD
    return narrow.name.startswith(wide.name) and not everything
