"""Brokers know a client as MM2's: what the user says, then the flow and the role."""

import pytest

from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient


@pytest.mark.parametrize(
    ("properties", "known_as"),
    [
        ({}, "A->B|source"),
        ({"client.id": "me"}, "me|A->B|source"),
        ({"client.id": " "}, "A->B|source"),
    ],
)
def test_client_id(properties, known_as):
    settings = ClientSettings("A", {"bootstrap.servers": "a:1", **properties})
    assert ClusterClient(settings, "A->B|source").client_id == known_as
