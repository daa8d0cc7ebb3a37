"""Clusters with authorizers: people, and what they are allowed to do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mirroring import wait_for

from heliograph.config import FlowConfig, load
from heliograph.lab import Lab
from heliograph.model import ClientSettings
from heliograph.wire import acls, admin
from heliograph.wire.acls import Acl
from heliograph.wire.cluster import ClusterClient

#: Quicker to log in with than SCRAM, which hashes a password thousands of times.
MECHANISM = "PLAIN"


def settings_of(lab: Lab, alias: str, user: str = "alice") -> ClientSettings:
    return ClientSettings(alias, lab[alias].client_properties(MECHANISM, user))


def acl(text: str) -> Acl:
    """``ALLOW READ topic orders bob``; a trailing ``…`` makes a name a prefix, * is any."""
    permission, operation, kind, name, user = text.split()
    pattern = "PREFIXED" if name.endswith("…") else "LITERAL"
    return Acl(kind.upper(), name.rstrip("…"), pattern, f"User:{user}", "*", operation, permission)


def allow(user: str, operation: str, kind: str = "cluster", name: str = "kafka-cluster") -> Acl:
    return acl(f"ALLOW {operation} {kind} {name} {user}")


def acls_of(client: ClusterClient, *parts: str) -> set[Acl]:
    """ACLs of topics and groups whose names contain one of ``parts``.

    A broker learns of ACLs a moment after they were created, in their order: when it knows one that
    is created now, it knows all that were before.
    """
    with granted(client, acl(f"ALLOW READ group settled-{uuid.uuid4().hex} nobody")):
        pass
    found = acls.describe(client, "TOPIC") | acls.describe(client, "GROUP")
    return {one for one in found if any(part in one.name for part in parts)}


def grant(client: ClusterClient, *wanted: Acl) -> None:
    assert acls.create(client, wanted) == {}
    kinds = {one.resource_type for one in wanted}
    wait_for(lambda: all(one in _all(client, kinds) for one in wanted))


def revoke(client: ClusterClient, *unwanted: Acl) -> None:
    assert acls.delete(client, unwanted) == {}
    kinds = {one.resource_type for one in unwanted}
    wait_for(lambda: not any(one in _all(client, kinds) for one in unwanted))


@contextmanager
def granted(client: ClusterClient, *wanted: Acl) -> Iterator[None]:
    """For rights that other tests would notice."""
    grant(client, *wanted)
    try:
        yield
    finally:
        revoke(client, *wanted)


def _all(client: ClusterClient, kinds: set[str]) -> set[Acl]:
    return {one for kind in kinds for one in acls.describe(client, kind)}


def create_topic(client: ClusterClient, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    assert (
        admin.create_topics(client, [admin.NewTopic(name, partitions, 1, settings)], 30_000) == {}
    )

    def led() -> bool:
        found = client.metadata([name]).topics.get(name)
        return found is not None and (
            sum(p.leader >= 0 for p in found.partitions.values()) == partitions
        )

    wait_for(led)


def write_config(
    lab: Lab, folder: Path, users: tuple[str, str] = ("alice", "alice"), **keys: str
) -> Path:
    """A file with flow A->B of a lab; ``users`` is who logs in at A and at B."""
    lines = ["clusters = A, B", "A->B.enabled = true", "B->A.emit.heartbeats.enabled = false"]
    for alias, user in zip("AB", users, strict=True):
        properties = settings_of(lab, alias, user).properties
        lines += [f"{alias}.{key} = {value}" for key, value in properties.items()]
    for topic in ("", "offset-syncs.topic.", "heartbeats.topic.", "checkpoints.topic."):
        lines.append(f"{topic}replication.factor = 1")
    lines += [f"{key} = {value}" for key, value in keys.items()]
    path = folder / "mm2.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


def flow_config(path: Path) -> FlowConfig:
    return next(f for f in load(path).flows if str(f.flow) == "A->B")
