"""Patients for ``heliograph doctor``: files with one flow between the clusters of a lab."""

from __future__ import annotations

import time
import uuid

from mirroring import wait_for

from heliograph.batch.records import Record, build
from heliograph.doctor.examination import examine
from heliograph.doctor.findings import Finding, Verdict
from heliograph.lab import Lab
from heliograph.model import ClientSettings, TopicPartition
from heliograph.wire import admin, log
from heliograph.wire.cluster import ClusterClient

_SECONDS = 60.0


class Patient:
    """A flow with aliases of its own, so that all that it has on the clusters is its own.

    ``keys`` of a cluster are written as ``source.x`` and ``target.x``.
    """

    def __init__(self, lab: Lab, folder, source="A", target="B", **keys):
        unique = uuid.uuid4().hex[:8]
        self.lab = lab
        self.alias, self.other = f"s{unique}", f"t{unique}"
        self.topic, self.remote = f"orders-{unique}", f"s{unique}.orders-{unique}"
        self.ledger, self.group = f"mm2-ledger.{self.alias}.internal", f"group-{unique}"
        self.ok: list[Finding] = []
        self.source = _client(lab, source)
        self.target = _client(lab, target)
        self.path = folder / f"{unique}.properties"
        self.values = {
            "clusters": f"{self.alias}, {self.other}",
            **{f"{self.alias}.{k}": v for k, v in _properties(lab, source).items()},
            **{f"{self.other}.{k}": v for k, v in _properties(lab, target).items()},
            f"{self.alias}->{self.other}.enabled": "true",
            f"{self.other}->{self.alias}.emit.heartbeats.enabled": "false",
            "topics": self.topic,
            "groups": self.group,
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
        }
        self.set(**keys)

    def set(self, **keys):
        """Other values; None takes a key out. The file is private to its owner."""
        for key, value in keys.items():
            written = key.replace("source.", f"{self.alias}.").replace("target.", f"{self.other}.")
            self.values[written] = value
        lines = [f"{k} = {v}" for k, v in self.values.items() if v is not None]
        self.path.write_text("\n".join(lines) + "\n")
        self.path.chmod(0o600)
        return self

    def close(self):
        self.source.close()
        self.target.close()

    def create(self, client, name, partitions=1, **configs):
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        assert not admin.create_topics(
            client, [admin.NewTopic(name, partitions, 1, settings)], 30_000
        )

        def led():
            metadata = client.metadata([name])
            found = metadata.topics.get(name)
            wanted = [TopicPartition(name, i) for i in range(partitions)]
            return (
                found
                and len(admin.list_offsets(client, metadata, wanted, admin.LATEST)) == partitions
            )

        wait_for(led)

    def write(self, client, topic, *pairs, age_seconds=0.0):
        written = int((time.time() - age_seconds) * 1000)
        records = [Record(0, written, key, value) for key, value in pairs or [(b"k", b"v")]]
        log.append(client, TopicPartition(topic, 0), build(records))

    def examine(self, listen=None, seconds=_SECONDS):
        """(check, verdict) -> what was said, of all that is not ok; ``ok`` is the rest."""
        found = examine(self.path, listen, seconds, lambda *_: None)
        self.ok = [f for f in found.findings if f.said.verdict is Verdict.OK]
        bad = [f for f in found.findings if f.said.verdict is not Verdict.OK]
        return {(f.check, str(f.said.verdict)): f"{f.said.text} -> {f.said.do}" for f in bad}


def _properties(lab, alias):
    properties = lab[alias].client_properties("PLAIN")
    if properties.get("security.protocol") == "PLAINTEXT":
        del properties["security.protocol"]
    return properties


def _client(lab, alias):
    return ClusterClient(ClientSettings(alias, lab[alias].client_properties("PLAIN")), "test")
