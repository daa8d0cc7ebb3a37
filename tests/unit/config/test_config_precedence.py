import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.keys import flow_key
from heliograph.config.precedence import Precedence
from heliograph.config.properties import dump, parse
from heliograph.model import Flow

AB = Flow("A", "B")

# Highest first. Every subset of the places must be decided by the first of it.
PLACES = {
    ("source", "consumer", "security.protocol"): (
        "A->B.source.consumer.security.protocol",
        "A.consumer.security.protocol",
        "A.security.protocol",
        "security.protocol",
        "A->B.consumer.security.protocol",
        "A->B.source.cluster.security.protocol",
    ),
    ("source", "consumer", "isolation.level"): (
        "A->B.source.consumer.isolation.level",
        "A.consumer.isolation.level",
        "A->B.consumer.isolation.level",
    ),
    ("target", "admin", "ssl.truststore.location"): (
        "A->B.target.admin.ssl.truststore.location",
        "B.admin.ssl.truststore.location",
        "B.ssl.truststore.location",
        "ssl.truststore.location",
        "A->B.admin.ssl.truststore.location",
        "A->B.target.cluster.ssl.truststore.location",
    ),
    ("target", "producer", "ssl.truststore.location"): (
        "A->B.producer.override.ssl.truststore.location",
        "B.producer.ssl.truststore.location",
        "B.ssl.truststore.location",
        "ssl.truststore.location",
    ),
}
# MM2 reads none of these for the client in question.
IGNORED = {
    ("source", "consumer", "isolation.level"): (
        "isolation.level", "A.isolation.level", "consumer.isolation.level",
        "B.consumer.isolation.level", "A.producer.isolation.level", "B->A.consumer.isolation.level",
    ),
    ("target", "producer", "linger.ms"): (
        "linger.ms", "producer.linger.ms", "B.linger.ms", "A->B.producer.linger.ms",
        "A->B.target.producer.linger.ms", "producer.override.linger.ms",
    ),
    ("source", "consumer", "poll.timeout.ms"): ("A->B.consumer.poll.timeout.ms",),
    ("source", "consumer", "override.x"): ("A->B.consumer.override.x",),
}  # fmt: skip


def _precedence(values):
    return Precedence("mm2.properties", parse(dump(values)))


@given(st.sampled_from(sorted(PLACES)), st.data())
def test_s94_the_highest_place_decides(client, data):
    side, role, name = client
    places = PLACES[client]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, unique=True))
    winner = min(chosen, key=places.index)
    found = _precedence({key: key for key in chosen}).client_values(AB, side, role)
    assert found[name].value == winner
    assert found[name].origin == f"mm2.properties:{chosen.index(winner) + 1} {winner}"


@pytest.mark.parametrize("client", sorted(IGNORED))
def test_s94_places_that_mm2_does_not_read(client):
    side, role, name = client
    for key in IGNORED[client]:
        assert name not in _precedence({key: "x"}).client_values(AB, side, role)


@pytest.mark.parametrize(
    ("values", "expected", "origin"),
    [
        ({}, ".*", "default"),
        ({"topics": "a"}, "a", "mm2.properties:1 topics"),
        ({"topics": "a", "A->B.topics": "b"}, "b", "mm2.properties:2 A->B.topics"),
        ({"A->B.topics": "b", "topics": "a"}, "b", "mm2.properties:1 A->B.topics"),
        ({"B->A.topics": "b", "A.topics": "c", "B.topics": "d"}, ".*", "default"),
    ],
)
def test_flow_over_top_level_over_default(values, expected, origin):
    found = _precedence(values).flow_value(AB, flow_key("topics"))
    assert (found.value, found.origin) == (expected, origin)


def test_a_key_that_mm2_drops_at_the_top_level():
    key = flow_key("use.defaults.from")
    assert _precedence({key.name: "source"}).flow_value(AB, key).value == "target"
    assert _precedence({f"A->B.{key.name}": "source"}).flow_value(AB, key).value == "source"


def test_a_default_that_differs_says_so():
    found = _precedence({}).flow_value(AB, flow_key("refresh.topics.interval.seconds"))
    assert (found.value, found.origin) == ("5", "default (MM2: 600)")
