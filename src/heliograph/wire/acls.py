"""Access rights of a cluster: who may do what to which resource. Runs anywhere.

A cluster without an authorizer has none, and says so: NoAuthorizer. Where we may not read or change
rights, the error names the right that we lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from heliograph.shown import shown
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import NONE, BrokerError
from heliograph.wire.rights import denied, missing_right

__all__ = ["WILDCARD", "Acl", "NoAuthorizer", "create", "delete", "describe"]

WILDCARD = "*"
"""As a literal resource's name: all of its type. As a host: any. ``User:*`` is everybody."""

_SECURITY_DISABLED = 54
#: Far below the 10,000 changes that a KRaft controller takes at once.
_ACLS_PER_REQUEST = 1000
_ANY = 1
# Kafka's names by code; codes 0 and 1 (UNKNOWN, ANY) are for filters only.
_RESOURCE_TYPES = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
_PATTERNS = {3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_PERMISSIONS = {2: "DENY", 3: "ALLOW"}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One right, or its denial, in Kafka's words.

    Attributes:
        resource_type: ``TOPIC``, ``GROUP`` ...
        pattern: whether ``name`` is the resource's (``LITERAL``) or its beginning (``PREFIXED``).
        operation: ``READ``, ``ALL`` ...
        permission: ``ALLOW`` or ``DENY``.
    """

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        prefixed = "prefixed " if self.pattern == "PREFIXED" else ""
        host = "" if self.host == WILDCARD else f" from {shown(self.host)}"
        kind = self.resource_type.lower()
        what = f"{self.permission} {self.operation} on {prefixed}{kind} {shown(self.name)}"
        return f"{what} to {shown(self.principal)}{host}"


class NoAuthorizer(BrokerError):
    """The cluster has no authorizer: everybody may do everything, and there are no ACLs."""


def describe(client: ClusterClient, resource_type: str) -> set[Acl]:
    """All ACLs of resources of a type; needs DESCRIBE on the cluster."""
    message = DescribeAclsRequest(
        resource_type_filter=_code(_RESOURCE_TYPES, resource_type),
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    response = client.request(message)
    what = f"reading the ACLs of cluster {client.alias}"
    _check(client, response.error_code, what, response.error_message, "Describe")
    return {
        Acl(
            _name(_RESOURCE_TYPES, resource.resource_type),
            resource.resource_name,
            _name(_PATTERNS, resource.pattern_type),
            acl.principal,
            acl.host,
            _name(_OPERATIONS, acl.operation),
            _name(_PERMISSIONS, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    }


def create(client: ClusterClient, acls: Iterable[Acl]) -> dict[Acl, BrokerError]:
    """Add ACLs, needing ALTER on the cluster; returns those that it does not take.

    One that is there already is no failure.
    """
    failed: dict[Acl, BrokerError] = {}
    kind = CreateAclsRequest.AclCreation
    for chunk in _chunks(acls):
        message = CreateAclsRequest(
            creations=[
                kind(
                    resource_type=_code(_RESOURCE_TYPES, acl.resource_type),
                    resource_name=acl.name,
                    resource_pattern_type=_code(_PATTERNS, acl.pattern),
                    principal=acl.principal,
                    host=acl.host,
                    operation=_code(_OPERATIONS, acl.operation),
                    permission_type=_code(_PERMISSIONS, acl.permission),
                )
                for acl in chunk
            ]
        )
        results = client.to_controller(message).results
        failed |= _failures(client, "adding", chunk, results)
    return failed


def delete(client: ClusterClient, acls: Iterable[Acl]) -> dict[Acl, BrokerError]:
    """Remove exactly these ACLs, needing ALTER on the cluster; returns those that it keeps.

    One that is not there is no failure.
    """
    failed: dict[Acl, BrokerError] = {}
    kind = DeleteAclsRequest.DeleteAclsFilter
    for chunk in _chunks(acls):
        message = DeleteAclsRequest(
            filters=[
                kind(
                    resource_type_filter=_code(_RESOURCE_TYPES, acl.resource_type),
                    resource_name_filter=acl.name,
                    pattern_type_filter=_code(_PATTERNS, acl.pattern),
                    principal_filter=acl.principal,
                    host_filter=acl.host,
                    operation=_code(_OPERATIONS, acl.operation),
                    permission_type=_code(_PERMISSIONS, acl.permission),
                )
                for acl in chunk
            ]
        )
        results = client.to_controller(message).filter_results
        failed |= _failures(client, "removing", chunk, [_first_kept(r) for r in results])
    return failed


def _first_kept(result: Any) -> Any:
    """Of what a filter matched, the first that could not be removed; else the filter's result."""
    return next((m for m in result.matching_acls if m.error_code != NONE), result)


def _failures(
    client: ClusterClient, doing: str, acls: Sequence[Acl], results: Sequence[Any]
) -> dict[Acl, BrokerError]:
    failed: dict[Acl, BrokerError] = {}
    for acl, result in zip(acls, results, strict=True):
        if result.error_code == NONE:
            continue
        if result.error_code == _SECURITY_DISABLED or denied(result.error_code):
            # Says nothing about this one ACL.
            what = f"{doing} ACLs on cluster {client.alias}"
            _check(client, result.error_code, what, result.error_message, "Alter")
        what = f"{doing} {acl} on cluster {client.alias}"
        failed[acl] = BrokerError(result.error_code, what, result.error_message)
    return failed


def _check(
    client: ClusterClient, code: int, what: str, message: str | None, operation: str
) -> None:
    if code == _SECURITY_DISABLED:
        raise NoAuthorizer(code, what)
    if denied(code):
        message = missing_right(client.settings, operation, "cluster")
    if code != NONE:
        raise BrokerError(code, what, message)


def _name(names: dict[int, str], code: int) -> str:
    """A code that this release does not know stays a number, and is still copied."""
    return names.get(code, str(code))


def _code(names: dict[int, str], name: str) -> int:
    return next((code for code, known in names.items() if known == name), None) or int(name)


def _chunks(acls: Iterable[Acl]) -> Iterator[list[Acl]]:
    every = list(acls)
    for start in range(0, len(every), _ACLS_PER_REQUEST):
        yield every[start : start + _ACLS_PER_REQUEST]
